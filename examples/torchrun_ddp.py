"""Train on handwritten digits in several processes: torchrun --nproc-per-node 2 torchrun_ddp.py."""

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import selective_backprop as sb

distributed.init_process_group("gloo")  # "nccl" on GPUs
torch.manual_seed(0)
digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
data = TensorDataset(pixels[:1400], labels[:1400])
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
model = DistributedDataParallel(model)
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
    error = (model.module(pixels[1400:]).argmax(1) != labels[1400:]).float().mean()
print(f"rank {distributed.get_rank()}: {steps} steps, test error {error:.1%}", flush=True)
distributed.destroy_process_group()
