"""Train on a stream: an iterable data set, whose examples have no index."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb

torch.manual_seed(0)
digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)


class Stream(IterableDataset):
    def __iter__(self):
        for row in torch.randperm(1400).tolist():
            yield pixels[row], labels[row]


loader = DataLoader(Stream(), batch_size=32)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = sb.SelectiveLoader(loader, model, loss_fn, sb.auto(stream=True))

steps = 0
for _ in range(6):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        steps += 1

with torch.no_grad():
    error = (model(pixels[1400:]).argmax(1) != labels[1400:]).float().mean()
print(f"{steps} steps, test error {error:.1%}")
