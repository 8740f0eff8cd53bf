"""Train on batches that are dictionaries: `outputs=` returns outputs and targets of a batch."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb

torch.manual_seed(0)
digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
examples = [
    {"pixels": image, "label": label, "name": f"digit-{number}"}
    for number, (image, label) in enumerate(zip(pixels[:1400], labels[:1400], strict=True))
]
loader = DataLoader(examples, batch_size=32, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def predict(model, batch):
    return model(batch["pixels"]), batch["label"]


strategy = sb.selective_backprop(rate=1 / 3)
loader = sb.SelectiveLoader(loader, model, loss_fn, strategy, outputs=predict)

steps = 0
for _ in range(6):
    for batch in loader:
        optimizer.zero_grad()
        loss_fn(*predict(model, batch)).backward()
        optimizer.step()
        steps += 1

with torch.no_grad():
    error = (model(pixels[1400:]).argmax(1) != labels[1400:]).float().mean()
print(f"{steps} steps, test error {error:.1%}")
