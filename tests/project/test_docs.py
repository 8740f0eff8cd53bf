"""The documentation names what there is, and what it shows runs."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import torch
from discovery import strategies
from fixture_command import run_command
from fixture_extend import DOCS, examples_of, names_of
from fixture_loaders import bits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from selective_backprop._batches.serialization import unseal
from selective_backprop._core.saved_state import Saved
from selective_backprop_lab.records.schema import read_runs

FACE = (sb, sb.scorers, sb.selectors, sb.experimental, sb.guide)


def test_the_reference_documents_every_public_name_once_and_no_other():
    page, documented = (DOCS / "reference.md").read_text(encoding="utf-8"), []
    for module, names in re.findall(
        r"^\.\. documented:: (\S+)\n\n((?:   .+\n)+)", page, re.MULTILINE
    ):
        documented += [f"{module}.{name.partition('[')[0]}" for name in names.split()]
    public = {f"{module.__name__}.{name}" for module in FACE for name in module.__all__}
    twice = {"selective_backprop.selectors.Context"}  # documented as the scorers'
    assert sorted(documented) == sorted(public - twice)


def test_every_page_is_reached_from_the_index_and_every_strategy_from_how_to_choose():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index, flags=re.DOTALL)
    lines = "\n".join(trees).splitlines()
    listed = [line for line in lines if line and not line.startswith(":")]
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")
    described = re.findall(r"`sb\.(\w+)\(", (DOCS / "choose.md").read_text(encoding="utf-8"))
    assert strategies() <= {*described}


def test_every_example_in_a_docstring_runs():
    tried = failed = 0
    for module in pkgutil.walk_packages(sb.__path__, "selective_backprop."):
        if module.name.startswith("selective_backprop.integrations"):
            continue
        found = importlib.import_module(module.name)
        outcome = doctest.testmod(found, optionflags=doctest.ELLIPSIS)
        tried, failed = tried + outcome.attempted, failed + outcome.failed
    assert tried > 10
    assert failed == 0  # doctest has printed which


def test_data_and_a_model_of_ones_own_are_compared_as_the_page_says(tmp_path):
    data, model = examples_of("command")
    (tmp_path / "my_data.py").write_text(data, encoding="utf-8")
    (tmp_path / "mine.py").write_text(model, encoding="utf-8")
    page = (DOCS / "command.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\$ selective-backprop (compare --data my_data.*)$", page, re.MULTILINE)
    outcome = run_command(f"{line} --model mine:make --seeds 1 --epochs 4 --out out", tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    runs = read_runs(tmp_path / "out")
    assert [run.header.arm for run in runs] == ["auto", *3 * ["traditional"]]  # two are shorter
    ends = [run.points[-1].test_error for run in runs if run.header.config["epochs"] == 4]
    assert max(ends) < 50  # by chance it is 90


def test_the_first_five_minutes_run(capsys):
    torch.manual_seed(0)
    names, loaders = {}, []
    for example in examples_of("start"):
        exec(example, names)
        if "loader" in names and names["loader"] not in loaders:
            loaders.append(names["loader"])
    assert len(loaders) == 3
    for loader in loaders:  # the first epoch whole, a part of the others
        assert 1 / 4 < loader.stats.kept / loader.stats.candidates < 0.7
        assert loader.stats.scored == 0
    assert names["optimizer"].param_groups[0]["lr"] < 0.005
    assert "trained on" in capsys.readouterr().out


def classified(*shape: int, classes: int) -> TensorDataset:
    return TensorDataset(torch.randn(*shape), torch.arange(shape[0]) % classes)


def test_strategies_that_bring_models_along_are_made_as_the_page_says():
    torch.manual_seed(0)
    data, make_model = classified(96, 64, classes=10), lambda: nn.Linear(64, 10)
    names = names_of(data, make_model(), batch_size=8) | {"labels": data.tensors[1]}
    names |= {"make_model": make_model, "reference": make_model()}
    names["train"] = lambda model, seed: 0  # epochs
    for example, name in zip(examples_of("choose"), ["pruned", "rho-loss"], strict=True):
        exec(example, names)
        loader = names["loader"]
        assert loader.strategy.name == name
        assert sum(1 for _ in loader) == loader.stats.batches > 0
    assert len(names["subset"]) == 48


def test_a_loop_without_copies_trains_on_each_example_once(capsys):
    rows, judge = torch.arange(60) % 20, nn.Linear(4, 3)
    points, labels = torch.eye(3, 4)[rows % 3], rows % 3
    points[:, 3], points[rows == 7, 1], labels[rows == 7] = rows, 9.0, 0  # 7 is surely a 1
    nn.init.eye_(judge.weight)
    names = names_of(TensorDataset(points, labels), judge, batch_size=5) | {"judge": judge}
    example, both = examples_of("copies")
    exec(example, names)
    assert sum(len(targets) for _, targets in names["loader"]) == 20
    exec(both, names)
    assert names["loader"].strategy.subset.indices.tolist() == [*range(7), *range(8, 20)]
    assert "40 of 60" in capsys.readouterr().out


def test_a_loop_that_notes_doubts_names_the_examples_that_look_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example, *_ = examples_of("audit")
    labels = torch.arange(200) % 2
    points = labels[:, None] * 8.0 - 4.0 + torch.randn(200, 4)
    labels[7] = 0  # which is a 1
    model = nn.Linear(4, 2)
    nn.init.zeros_(model.weight)
    exec(example, names_of(TensorDataset(points, labels), model, batch_size=10, rate=0.02))
    assert "7" in capsys.readouterr().out.strip("[]\n").split()
    assert (tmp_path / "suspects.csv").read_text(encoding="utf-8").splitlines()[1][:4] == "1,7,"


def test_a_loop_that_saves_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_and_load, program = examples_of("long-runs")
    loop = program[program.index("for epoch") : program.rindex("save(")]
    data = classified(960, 4, classes=2)

    def begin() -> dict:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.1))
        names = names_of(data, model, batch_size=8) | {"epochs": 2, "pressed": []}
        names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        half = sb.selective_backprop(rate=1 / 2)
        names["loader"] = sb.SelectiveLoader(names["train_loader"], model, names["loss_fn"], half)
        exec(save_and_load, names)
        return names

    whole, resumed = begin(), begin()
    exec(loop, whole)
    torch.manual_seed(1)
    resumed["load"]("last.pt")  # of batch 100, of 120 in the first epoch
    assert resumed["loader"].next_epoch == 0
    exec(loop.replace("save", "print"), resumed)
    assert resumed["loader"].stats == whole["loader"].stats
    assert bits(resumed["model"].state_dict()) == bits(whole["model"].state_dict())


BEGIN = """
import signal, sys, torch
import selective_backprop as sb

class PressesCtrlC(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        if loader.stats.batches == int(sys.argv[1]):
            signal.raise_signal(signal.SIGINT)

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[2]))
inputs = torch.randn(240, 4, generator=torch.Generator().manual_seed(0))
data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.1))
optimizer, epochs = PressesCtrlC(model.parameters(), lr=0.1, momentum=0.9), 3
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
loader = sb.SelectiveLoader(
    loader, model, torch.nn.CrossEntropyLoss(), sb.auto(), epochs=epochs, quiet=True
)
loss_fn = loader.loss_fn
"""


def batches_of(state: dict) -> int:
    return unseal(Saved(state["loader"]["position"]), tuple)[1].tally["batches"]


def test_after_ctrl_c_a_fresh_process_ends_with_the_weights_of_uninterrupted_training(
    tmp_path, monkeypatch, signals_as_usual
):
    save_and_load, program = examples_of("long-runs")

    def run(stop: int, seed: int, *, fresh: bool) -> dict:
        arguments, code = ["-c", str(stop), str(seed)], BEGIN + save_and_load + program
        if fresh:
            command = [sys.executable, "-c", code, *arguments[1:]]
            subprocess.run(command, check=True, timeout=300)
        else:
            monkeypatch.setattr(sys, "argv", arguments)
            exec(code, {"__name__": "__main__"})
        return torch.load("last.pt", weights_only=True)

    monkeypatch.chdir(tmp_path)
    whole = run(-1, 0, fresh=False)
    Path("last.pt").unlink()
    left = run(41, 0, fresh=False)
    assert batches_of(left) == 41 < batches_of(whole)
    assert bits(run(-1, 9, fresh=True)) == bits(whole)


def test_a_loop_with_the_lines_of_auto_skips_what_is_learned():
    torch.manual_seed(0)
    lines, _ = examples_of("auto")
    inputs = torch.randn(256, 2)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    names = names_of(data, nn.Linear(2, 2), batch_size=16, rate=1.0)
    exec(lines, names)
    for _ in range(8):
        for inputs, targets in names["loader"]:
            names["optimizer"].zero_grad()
            names["loss_fn"](names["model"](inputs), targets).backward()
            names["optimizer"].step()
    stats = names["loader"].stats
    assert (stats.candidates, stats.scored) == (8 * 256, 0)
    assert stats.kept < 0.7 * stats.candidates


def test_progress_is_below_two_thirds_for_two_thirds_of_three_epochs():
    plain = DataLoader(classified(48, 4, classes=3), batch_size=16)
    arguments = plain, nn.Linear(4, 3), nn.CrossEntropyLoss(), sb.traditional()
    loader = sb.SelectiveLoader(*arguments, epochs=3)
    early = [loader.progress < 2 / 3 for _ in range(3) for _ in loader]
    assert early == [*[True] * 5, *[False] * 4]  # progress counts the batch that has arrived


def test_two_pages_show_every_picture_and_it_is_the_same_each_time_with_its_words_as_text(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(DOCS))  # where a script finds its neighbours
    pictures = importlib.import_module("pictures")
    pages = "".join((DOCS / f"{page}.md").read_text("utf-8") for page in ("choose", "auto"))
    shown = re.findall(r"^!\[(.*)\]\(pictures/(\S+)\.svg\)$", pages, flags=re.MULTILINE)
    assert sorted(name for _, name in shown) == sorted(pictures.PICTURES)
    assert all(len(words.split()) > 10 for words, _ in shown)  # which say what is seen
    draw = pictures.draw
    first, again = (draw("kakurenbo", tmp_path / each).read_bytes() for each in "ab")
    assert first == again
    assert ">never loaded</text>" in first.decode()
