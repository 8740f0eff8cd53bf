"""Train the network of accelerate_digits.py without selection."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(gradient_accumulation_steps=2)
torch.manual_seed(0)
digits = load_digits()
pixels = torch.tensor(digits.data / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(pixels[:1400], labels[:1400]), batch_size=16, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

steps = 0
for _ in range(8):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_fn(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        steps += accelerator.sync_gradients

model = accelerator.unwrap_model(model)
with torch.no_grad():
    guesses = model(pixels[1400:].to(accelerator.device)).argmax(1).cpu()
error = (guesses != labels[1400:]).float().mean()
print(f"rank {accelerator.process_index}: {steps} steps, test error {error:.1%}", flush=True)
accelerator.end_training()
