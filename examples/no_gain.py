"""Selection gains nothing here: the digits are few and different, and all labels are right."""

import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb


def train(epochs, strategy, seed=0, lr=0.03):
    """Return the passes over the data, the seconds, and the test error."""
    torch.manual_seed(seed)
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    images = torch.tensor(digits.images[order], dtype=torch.float32).div(16).unsqueeze(1)
    labels = torch.tensor(digits.target[order])
    data = TensorDataset(images[:1200], labels[:1200])
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten()),
        nn.Linear(1024, 10),
    )
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, epochs)
    if strategy is not None:
        loader = sb.SelectiveLoader(loader, model, loss_fn, strategy, quiet=True)
        loss_fn = loader.loss_fn

    trained, started = 0, time.perf_counter()
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
            trained += len(targets)
        schedule.step()
    seconds = time.perf_counter() - started

    model.eval()
    with torch.no_grad():
        error = (model(images[1200:]).argmax(1) != labels[1200:]).float().mean().item()
    return trained / 1200, seconds, error


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads are slower for a net this small
    for name, epochs, strategy in (
        ("plain", 16, None),
        ("selective", 16, sb.auto()),
        ("plain, shortened", 4, None),
    ):
        passes, seconds, error = train(epochs, strategy)
        print(f"{name}: {passes:.1f} passes, {seconds:.1f} s, test error {error:.1%}")
