"""Every warning points at the line of the user's program that called into the package."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Each case is named by the function that warns, each from another depth of frames; `# here` marks
# the line that is to be named.
PROGRAM = """
import json, sys, warnings
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, BatchSampler, RandomSampler
import selective_backprop as sb

DATA = TensorDataset(torch.randn(32, 2), torch.arange(32) % 2)
MODEL, LOSS = nn.Linear(2, 2), nn.CrossEntropyLoss()

def wrap(strategy, data=DATA, loss_fn=LOSS, model=MODEL, batch=8, **options):
    return sb.SelectiveLoader(  # here
        DataLoader(data, batch), model, loss_fn, strategy, quiet=True, **options
    )

def warn_of_sampler():
    class Grouped(BatchSampler):
        pass
    loader = DataLoader(DATA, batch_sampler=Grouped(RandomSampler(DATA), 8, False))
    sb.SelectiveLoader(loader, MODEL, LOSS, sb.random_backprop(1 / 2))  # here

def warn_of_axes():
    square = torch.randn(8, 8), torch.arange(8) % 2
    strategy = sb.selective_backprop(1 / 2, warmup_epochs=0)
    step = sb.SelectiveStep(nn.Linear(8, 2), LOSS, strategy)
    step(square)  # here

def warn_of_loss():
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    loader = sb.SelectiveLoader(DataLoader(DATA, 8), MODEL, smooth, sb.auto(), with_selection=True)
    iter(loader)  # here

def record():
    loader = wrap(sb.auto(), with_selection=True)
    for _, selection in loader:
        loader.record(selection, torch.ones(8))  # here

def _compare():
    numbers, inputs = torch.arange(512), torch.randn(512, 2)
    first, second = (wrap(sb.auto(), TensorDataset(inputs, (numbers + n) % 2)) for n in (0, 1))
    for loader in first, second:
        loss_fn = loader.loss_fn
        for inputs, targets in loader:
            loss_fn(MODEL(inputs), targets)  # here
        second.load_state_dict(first.state_dict())

def _weigh():
    loader = wrap(sb.infobatch(), data=TensorDataset(DATA[:][0], *DATA[:][1:] * 2), epochs=3)
    loss_fn = loader.loss_fn
    for inputs, targets, others in loader:
        loss_fn(MODEL(inputs), targets)
        loss_fn(MODEL(inputs), others)  # here

def epoch_begins():
    for _ in range(3):
        for batch in wrap(sb.selective_backprop(1 / 2)):  # here
            pass

def epoch_ends():
    loader = sb.SelectiveLoader(
        DataLoader(DATA, 8), MODEL, LOSS,
        sb.selective_backprop(1 / 4, draw="bernoulli", warmup_epochs=0),
        losses=lambda model, batch: torch.ones(len(batch[1])), quiet=True,
    )
    for batch in loader:  # here
        pass

def _warn():
    class Doubling(nn.Linear):
        def forward(self, inputs):
            return super().forward((1 + torch.is_grad_enabled()) * inputs)
    model, reuse = Doubling(2, 2), sb.experimental.ReuseActivations()
    strategy = sb.selective_backprop(1 / 2, warmup_epochs=0)
    choose = sb.SelectiveStep(model, LOSS, strategy, reuse=reuse)
    for batch in DataLoader(DATA, 8):
        choose(batch)  # here

def step():
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    short = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=1)
    loader = wrap(sb.random_backprop(1 / 2))
    scheduler = sb.CandidateScheduler(short, loader)
    for batch in loader:
        optimizer.step()
        scheduler.step()  # here

def __iter__():
    for example in sb.unique_stream(0 for _ in range(100_001)):  # here
        pass

found = {}
for name in sys.argv[1:]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        globals()[name]()
    ours = [each for each in caught if issubclass(each.category, sb.SelectionWarning)]
    found[name] = [(each.filename, each.lineno) for each in ours]
print(json.dumps(found))
"""
NAMES = re.findall(r"^def (_*[a-z]\w+)\(\)", PROGRAM, re.MULTILINE)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """The lines that the warnings of a program name, run as users run theirs: unchecked."""
    path = tmp_path_factory.mktemp("warned") / "program.py"
    path.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, str(path), *NAMES],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return path, json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_every_warning_points_at_the_callers_line(named, name):
    path, found = named
    lines = path.read_text().splitlines()
    assert found[name], "it did not warn"
    for file, line in found[name]:
        assert Path(file) == path
        assert lines[line - 1].endswith("# here"), lines[line - 1]
