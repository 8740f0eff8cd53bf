"""Accumulate gradients over two batches of 16, which needs less memory than one batch of 32."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

torch.manual_seed(0)
digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
data = TensorDataset(pixels[:1400], labels[:1400])
loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = sb.SelectiveLoader(loader, model, loss_fn, sb.selective_backprop(rate=1 / 3))

batches = steps = 0
for _ in range(6):
    for inputs, targets in loader:
        (loss_fn(model(inputs), targets) / 2).backward()
        batches += 1
        if batches % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1

with torch.no_grad():
    error = (model(pixels[1400:]).argmax(1) != labels[1400:]).float().mean()
print(f"{steps} steps, test error {error:.1%}")
