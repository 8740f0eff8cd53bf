"""Select a few batches with the installed package, where nothing but its own dependencies is."""

import importlib.util
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

assert importlib.util.find_spec("jaxtyping") is None, "jaxtyping is for tests alone"
assert Path(sb.__file__).is_relative_to(sys.prefix), f"{sb.__file__} is not the installed package"
torch.manual_seed(0)
inputs = torch.randn(240, 4)
data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
model, loss_fn = torch.nn.Linear(4, 2), torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
strategy = sb.selective_backprop(rate=1 / 3, warmup_epochs=0)
loader = sb.SelectiveLoader(DataLoader(data, batch_size=8, shuffle=True), model, loss_fn, strategy)
for batch, targets in loader:
    optimizer.zero_grad()
    loss_fn(model(batch), targets).backward()
    optimizer.step()
assert (loader.stats.candidates, loader.stats.kept) == (240, 80), loader.stats
command = [str(Path(sys.executable).with_name("selective-backprop")), "--help"]
refused = subprocess.run(command, capture_output=True, text=True)
assert refused.returncode == 1, refused
assert "selective-backprop[lab]" in refused.stderr, refused
print(f"selective-backprop {version('selective-backprop')} selects, and names the extra it lacks")
