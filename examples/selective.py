"""Train a small network on handwritten digits, in a loop as everybody writes it."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).div(16).unsqueeze(1)
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=32, shuffle=True)

model = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten()),
    nn.Linear(1024, 10),
)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = sb.SelectiveLoader(loader, model, loss_fn, sb.auto())
loss_fn = loader.loss_fn

steps = 0
for _ in range(8):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        steps += 1

model.eval()
with torch.no_grad():
    error = (model(images[1400:]).argmax(1) != labels[1400:]).float().mean()
print(f"{steps} steps, test error {error:.1%}")
