"""Every warning points at the line of the user's program that called into the package."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "selective_backprop"
ELSEWHERE = {  # function: what holds its warning
    "integrations/_trl/_checks.py:needs_every_completion": "tests/integrations/test_trl_grpo.py",
    "integrations/_keras/_feed.py:_go_on": "tests/integrations/test_keras.py, where Keras is",
    "lab/training/resumable_run.py:save": "tests/lab/training/test_resumable_run.py",
    "lab/training/resumable_run.py:load": "tests/lab/training/test_checkpoint.py",
}

# Each case is named by the function that warns; `# here` marks the line that is to be named.
PROGRAM = """
import json, sys, warnings
import torch
from fixture_pipelined import Coarse
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, BatchSampler, RandomSampler
import selective_backprop as sb

DATA = TensorDataset(torch.randn(32, 2), torch.arange(32) % 2)
MODEL, LOSS = nn.Linear(2, 2), nn.CrossEntropyLoss()
NOW = sb.Schedule()

def wrap(strategy, data=DATA, loss_fn=LOSS, model=MODEL, batch=8, **options):
    return sb.SelectiveLoader(  # here
        DataLoader(data, batch), model, loss_fn, strategy, quiet=True, **options
    )

def warn_of_sampler():
    class Grouped(BatchSampler):
        pass
    loader = DataLoader(DATA, batch_sampler=Grouped(RandomSampler(DATA), 8, False))
    sb.SelectiveLoader(loader, MODEL, LOSS, sb.random_backprop(1 / 2))  # here

def check_layout():
    class Noted(torch.Tensor):
        pass
    def collate(examples):
        inputs, labels = torch.utils.data.default_collate(examples)
        inputs = inputs.as_subclass(Noted)
        inputs.source = "a file"
        return inputs, labels
    loader = sb.SelectiveLoader(
        DataLoader(DATA, 8, collate_fn=collate), MODEL, LOSS, sb.selective_backprop(1 / 2),
        quiet=True,
    )
    for batch in loader:  # here
        pass

def warn_of_axes():
    square = torch.randn(8, 8), torch.arange(8) % 2
    strategy = sb.selective_backprop(1 / 2, warmup_epochs=0)
    step = sb.SelectiveStep(nn.Linear(8, 2), LOSS, strategy)
    step(square)  # here

def warn_of_loss():
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    loader = sb.SelectiveLoader(DataLoader(DATA, 8), MODEL, smooth, sb.auto(), with_selection=True)
    iter(loader)  # here

def examine_own_loss():
    unlike = lambda outputs, targets: 2 * nn.functional.cross_entropy(
        outputs, targets, reduction="none"
    )
    loader = wrap(sb.auto(), loss_fn=unlike, epochs=3)
    loss_fn = loader.loss_fn
    for inputs, targets in loader:
        loss_fn(MODEL(inputs), targets)  # here

def _weigh():
    loader = wrap(sb.infobatch(), data=TensorDataset(DATA[:][0], *DATA[:][1:] * 2), epochs=3)
    loss_fn = loader.loss_fn
    for inputs, targets, others in loader:
        loss_fn(MODEL(inputs), targets)
        loss_fn(MODEL(inputs), others)  # here

def shape():
    wrap(sb.selective_backprop(0.3), batch=4)

def _warn_if_barren():
    loader = sb.SelectiveLoader(
        DataLoader(DATA, 8), MODEL, LOSS,
        sb.selective_backprop(1 / 4, draw="bernoulli", warmup_epochs=0),
        losses=lambda model, batch: torch.ones(len(batch[1])), quiet=True,
    )
    for batch in loader:  # here
        pass

def epoch_begins():
    loader = wrap(sb.infobatch(), epochs=2)
    loss_fn = loader.loss_fn
    for epoch in range(4):
        for inputs, targets in loader:  # here
            loss_fn(MODEL(inputs), targets)

def end_epoch():
    loader = wrap(sb.selective_backprop(1 / 2))
    assert len(loader) == 4
    for epoch in range(2):
        for batch in loader:  # here
            pass

def warn_of_mixtures():
    targets = torch.tensor([[0.7, 0.3, 0.0]] * 32)
    loader = sb.SelectiveLoader(
        DataLoader(TensorDataset(torch.randn(32, 2), targets), 8), nn.Linear(2, 3), LOSS,
        sb.recorded_sb(1 / 2), with_selection=True, quiet=True,
    )
    batches = iter(loader)
    next(batches)  # here

def _warn_of_lost_classes():
    scores = torch.arange(4.0)
    sb.prune(scores, keep=0.5, labels=torch.tensor([0, 0, 1, 1]))  # here

def _conclude():
    scorer = Coarse(1, sb.experimental.Check(1, least=1.0))
    strategy = sb.selective_backprop(1 / 2, scorer=scorer, warmup_epochs=0)
    loader = wrap(strategy, losses=lambda model, batch: torch.linspace(0.1, 0.8, len(batch[1])))
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

def _warn_if_learned():
    labels = torch.arange(32) % 2
    data = TensorDataset(4.0 * nn.functional.one_hot(labels).float(), labels)
    sb.guide.find_label_issues(nn.Identity(), DataLoader(data, 8), LOSS)  # here

found = {}
for name in sys.argv[1:]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        globals()[name]()
    ours = [each for each in caught if issubclass(each.category, sb.SelectionWarning)]
    found[name] = [(each.filename, each.lineno) for each in ours]
print(json.dumps(found))
"""


def sites() -> dict[str, str]:
    """The functions of the package that warn, each with its file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and _warns(node):
                found[f"{path.relative_to(PACKAGE).as_posix()}:{node.name}"] = node.name
    return found


def _warns(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "warn"
        for node in ast.walk(function)
    )


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """The lines that the warnings of a program name, run as users run theirs: unchecked."""
    path = tmp_path_factory.mktemp("warned") / "program.py"
    path.write_text(PROGRAM)
    names = sorted(name for site, name in sites().items() if site not in ELSEWHERE)
    run = subprocess.run(
        [sys.executable, str(path), *names],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return path, json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "name", sorted(name for site, name in sites().items() if site not in ELSEWHERE)
)
def test_every_warning_points_at_the_callers_line(named, name):
    path, found = named
    lines = path.read_text().splitlines()
    assert found[name], "it did not warn"
    for file, line in found[name]:
        assert Path(file) == path
        assert lines[line - 1].endswith("# here"), lines[line - 1]
