"""Train on handwritten digits with Ray Train in two processes: python ray_ddp.py."""

import ray
import torch
from ray import train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import selective_backprop as sb


def train_digits() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    data = TensorDataset(pixels[:1400], labels[:1400])
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))

    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = prepare_model(net)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = sb.SelectiveLoader(loader, model, loss_fn, sb.auto())
    loss_fn = loader.loss_fn

    steps = 0
    for epoch in range(8):
        loader.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
    with torch.no_grad():
        error = (net(pixels[1400:]).argmax(1) != labels[1400:]).float().mean()
    rank = train.get_context().get_world_rank()
    print(f"rank {rank}: {steps} steps, test error {error:.1%}", flush=True)
    train.report({"steps": steps, "error": float(error)})


if __name__ == "__main__":
    ray.init(num_cpus=8)
    scaling = ScalingConfig(num_workers=2)  # use_gpu=True on GPUs
    TorchTrainer(train_digits, scaling_config=scaling).fit()
