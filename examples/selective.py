"""Train on handwritten digits, a fifth with random labels. You may pass a number of epochs."""

import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

torch.manual_seed(0)
torch.set_num_threads(1)  # more threads are slower for a net this small
digits = load_digits()
order = torch.randperm(len(digits.target))
images = torch.tensor(digits.images[order], dtype=torch.float32).div(16).unsqueeze(1)
labels = torch.tensor(digits.target[order])
given = torch.where(torch.rand(1200) < 0.2, torch.randint(10, (1200,)), labels[:1200])
loader = DataLoader(TensorDataset(images[:1200], given), batch_size=32, shuffle=True)

model = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten()),
    nn.Linear(1024, 10),
)
loss_fn = nn.CrossEntropyLoss()
epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 16
optimizer = torch.optim.SGD(model.parameters(), lr=0.003, momentum=0.9)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, epochs)
loader = sb.SelectiveLoader(loader, model, loss_fn, sb.auto())
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
print(f"{trained / 1200:.1f} passes, {seconds:.1f} s, test error {error:.1%}")
