"""Train on a table: predict from measurements of a tumour's cells whether it is benign."""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

torch.manual_seed(0)
table = load_breast_cancer()
order = torch.randperm(len(table.target))
columns = torch.tensor(table.data, dtype=torch.float32)[order]
columns = (columns - columns[:400].mean(0)) / columns[:400].std(0)
benign = torch.tensor(table.target, dtype=torch.float32)[order].unsqueeze(1)
loader = DataLoader(TensorDataset(columns[:400], benign[:400]), batch_size=16, shuffle=True)

model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 1))
loss_fn = nn.BCEWithLogitsLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = sb.SelectiveLoader(loader, model, loss_fn, sb.selective_backprop(rate=1 / 3))

steps = 0
for _ in range(6):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
        steps += 1

with torch.no_grad():
    error = ((model(columns[400:]) > 0) != benign[400:].bool()).float().mean()
print(f"{steps} steps, test error {error:.1%}")
