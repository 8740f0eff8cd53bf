"""Find and classify a digit in an image. The loss of an image is that of its class and place."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

torch.manual_seed(0)
digits = load_digits()
labels = torch.tensor(digits.target)
places = torch.randint(3, (len(labels), 2))  # the digit's top row and left column
images = torch.zeros(len(labels), 1, 10, 10)
for image, (row, column), digit in zip(images, places.tolist(), digits.images, strict=True):
    image[0, row : row + 8, column : column + 8] = torch.tensor(digit / 16)
data = TensorDataset(images[:1400], labels[:1400], places[:1400] / 2)
loader = DataLoader(data, batch_size=32, shuffle=True)

model = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(256, 12)),
)


def losses(model, batch):
    images, labels, places = batch
    found = model(images)
    place = functional.smooth_l1_loss(found[:, 10:], places, reduction="none").sum(1)
    return functional.cross_entropy(found[:, :10], labels, reduction="none") + place


optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
strategy = sb.selective_backprop(rate=1 / 3)
loader = sb.SelectiveLoader(loader, model, None, strategy, losses=losses)

steps = 0
for _ in range(12):
    for batch in loader:
        optimizer.zero_grad()
        losses(model, batch).mean().backward()
        optimizer.step()
        steps += 1

with torch.no_grad():
    found = model(images[1400:])
    near = ((2 * found[:, 10:] - places[1400:]).abs() < 1).all(1)  # within a pixel
    error = 1 - (near & (found[:, :10].argmax(1) == labels[1400:])).float().mean()
print(f"{steps} steps, test error {error:.1%}")
