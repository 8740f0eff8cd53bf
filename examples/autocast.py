"""Train in half precision: float16 with a gradient scaler on a GPU, bfloat16 on a CPU."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
# bfloat16 has the range of float32, so it needs no scaling.
precision = torch.float16 if device == "cuda" else torch.bfloat16
digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(pixels[:1400], labels[:1400]), batch_size=32, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler(device, enabled=precision == torch.float16)


def losses(model, batch):  # called outside the autocast context of the loop
    inputs, targets = batch[0].to(device), batch[1].to(device)
    with torch.autocast(device, precision):
        return nn.functional.cross_entropy(model(inputs), targets, reduction="none")


loader = sb.SelectiveLoader(loader, model, None, sb.selective_backprop(1 / 3), losses=losses)

steps = 0
for _ in range(6):
    for inputs, targets in loader:
        optimizer.zero_grad()
        with torch.autocast(device, precision):
            loss = loss_fn(model(inputs.to(device)), targets.to(device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        steps += 1

with torch.no_grad():
    error = (model(pixels[1400:].to(device)).argmax(1).cpu() != labels[1400:]).float().mean()
print(f"{steps} steps, test error {error:.1%}")
