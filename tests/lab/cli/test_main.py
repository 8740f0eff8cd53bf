import importlib.util
import io
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import typer
from fixture_command import run_command
from fixture_lab import few_digits
from rich.console import Console

import selective_backprop as sb
from selective_backprop.lab.budget import Length
from selective_backprop.lab.cli import main as cli
from selective_backprop.lab.cli import write as presenting
from selective_backprop.lab.data.datasets import load
from selective_backprop.lab.data.noise import UniformFlip
from selective_backprop.lab.recipe import RECIPES, Rates
from selective_backprop.lab.records.example_history import examples_path
from selective_backprop.lab.records.schema import read_run, read_runs
from selective_backprop.lab.runner import interleaved as comparing
from selective_backprop.lab.runner import run_store as places
from selective_backprop.lab.strategies import ARMS, DEFAULT_ARMS, Settings
from selective_backprop.lab.training.lr_schedule import Follows
from selective_backprop.lab.training.run import TrainingRun

DOCS = Path(__file__).parents[3] / "docs"
SMALL = "--limit 256 --epochs 2 --evaluations 3 --rate 1/2"
COMPARE = f"compare {SMALL} --seeds 2 --strategies traditional,selective-backprop --out out"
DRAWN = ("table.md", "comparison.png", "report.html")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A comparison, carried out once, and what it printed."""
    folder = tmp_path_factory.mktemp("compared")
    return SimpleNamespace(folder=folder, outcome=run_command(COMPARE, folder))


@pytest.fixture
def copy(compared, tmp_path):
    """The comparison's folder, to be changed at will."""
    shutil.copytree(compared.folder / "out", tmp_path / "out")
    return tmp_path


@pytest.fixture
def untrained(monkeypatch):
    """Nothing can be trained."""

    def refuse(plan, data, **_):
        raise AssertionError(f"{plan.arm} is trained")

    monkeypatch.setattr(comparing, "TrainingRun", refuse)


@pytest.fixture
def undrawn(monkeypatch):
    """Nothing is drawn, which takes a second."""
    monkeypatch.setattr(presenting, "draw_comparison", lambda runs, path: None)
    monkeypatch.setattr(presenting, "write_report", lambda runs, path, **_: None)


@pytest.fixture
def plans(monkeypatch, tmp_path):
    """Returns the plans that a line makes, without carrying them out."""

    class Made(Exception):
        pass

    def stop(plans, place, **options):
        raise Made(plans)

    def plans_of(line):
        monkeypatch.setattr(cli, "run_rivals", stop)
        monkeypatch.setattr(places, "load_data", lambda name, root, limit: few_digits())
        with pytest.raises(Made) as made:
            cli.app(line.split(), standalone_mode=False)
        return made.value.args[0]

    monkeypatch.chdir(tmp_path)
    return plans_of


def test_a_comparison_writes_a_record_for_each_run_and_all_that_is_drawn_from_them(compared):
    assert compared.outcome.status == 0
    assert compared.outcome.err == ""
    records = read_runs(compared.folder / "out")
    assert [(run.header.arm, run.header.seed) for run in records] == [
        (arm, seed) for arm in ("selective-backprop", "traditional") for seed in (0, 1)
    ]
    assert all(run.finished and len(run.points) == 3 for run in records)
    beside = {file.name for run in records for file in (run.path, examples_path(run.path))}
    found = {path.name for path in (compared.folder / "out").iterdir()}
    assert beside <= found
    assert found - beside == set(DRAWN)
    assert (compared.folder / "out/comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "selective-backprop" in (compared.folder / "out/report.html").read_text()


def test_a_comparison_prints_its_table_and_where_the_rest_is(compared):
    text = compared.outcome.text
    assert "256 training examples · small_cnn · 2 epochs · seeds 0 and 1" in text
    assert "Final error: mean of the last tenth" in text
    assert text.endswith("Open out/report.html; table.md and comparison.png lie beside it.")
    rows = [line for line in compared.outcome.out.splitlines() if "±" in line and "×" in line]
    assert [row.split()[0] for row in rows[:1]] == ["traditional"]


def test_a_record_says_what_was_typed(compared):
    commands = {run.header.command for run in read_runs(compared.folder / "out")}
    assert commands == {f"selective-backprop {COMPARE}"}


def test_the_same_command_again_trains_nothing_and_draws_the_same(copy, untrained, undrawn):
    before = (copy / "out/table.md").read_bytes()
    again = run_command(COMPARE, copy)
    assert again.status == 0
    assert again.out.count("recorded already, not run again") == 4
    assert (copy / "out/table.md").read_bytes() == before


def test_a_report_is_drawn_from_the_records_alone(copy, untrained):
    before = (copy / "out/table.md").read_bytes()
    for name in DRAWN:
        (copy / "out" / name).unlink()
    assert run_command("report out", copy).status == 0
    assert (copy / "out/table.md").read_bytes() == before
    assert all((copy / "out" / name).stat().st_size > 500 for name in DRAWN)


def test_a_report_goes_elsewhere_if_asked_to(copy):
    before = sorted((copy / "out").iterdir())
    for name in DRAWN:
        (copy / "out" / name).unlink()
    outcome = run_command("report out -o '[a]/:b:'", copy)
    assert (outcome.status, outcome.err) == (0, "")
    assert "Open [a]/:b:/report.html" in outcome.out
    assert sorted(path.name for path in (copy / "[a]/:b:").iterdir()) == sorted(DRAWN)
    assert sorted((copy / "out").iterdir()) == [path for path in before if path.name not in DRAWN]


def test_a_page_alone_goes_into_the_file_that_is_named(copy):
    before = sorted((copy / "out").iterdir())
    outcome = run_command("report out -o pages/one.html", copy)
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.endswith("Open pages/one.html.\n")
    assert [path.name for path in (copy / "pages").iterdir()] == ["one.html"]
    assert sorted((copy / "out").iterdir()) == before
    assert "Trained on most often" in (copy / "pages/one.html").read_text()


def test_what_is_wrong_with_a_record_is_said_and_the_rest_is_reported(copy, undrawn):
    spoiled, cut = sorted((copy / "out").glob("selective-backprop-*.jsonl"))
    spoiled.write_bytes(spoiled.read_bytes().replace(b'"cost"', b'"most"', 1))
    cut.write_bytes(cut.read_bytes()[:-9])
    examples_path(next((copy / "out").glob("traditional-seed0-*.jsonl"))).write_bytes(b"half")
    outcome = run_command("report out", copy)
    assert outcome.status == 0
    first, second = outcome.err.splitlines()
    assert first.startswith(f"warning: out/{spoiled.name}, line 2: cost is None")
    assert "damaged" in second
    assert "selective-backprop, seed 1, is unfinished" in outcome.text
    assert "traditional" in (copy / "out/table.md").read_text()


def test_where_there_is_nothing_to_report_that_is_said(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.jsonl").write_text("half")
    outcome = run_command("report out", tmp_path)
    assert outcome.status == 2
    assert "error: there is no record to show in out" in outcome.err
    assert "out/a.jsonl: no header" in outcome.err
    assert run_command("report nowhere", tmp_path).status == 2


def test_run_again_a_comparison_keeps_the_old_records(copy):
    command = f"train {SMALL} --strategy traditional --out out --again"
    old = {path.name: path.read_bytes() for path in (copy / "out").glob("traditional-seed0-*")}
    assert run_command(command, copy).status == 0
    for name, content in old.items():
        assert (copy / "out" / f"{name}.replaced").read_bytes() == content
        if name.endswith(".jsonl"):
            found = read_run(copy / "out" / name)
            assert found.header.command == f"selective-backprop {command}"
            assert examples_path(found.path).exists()
    assert len(old) == 2


def test_a_damaged_record_stops_the_comparison_and_nothing_is_lost(copy, untrained):
    spoiled = next((copy / "out").glob("traditional-seed1-*"))
    spoiled.write_bytes(spoiled.read_bytes().replace(b'"cost"', b'"most"', 1))
    before = {path.name: path.read_bytes() for path in (copy / "out").iterdir()}
    outcome = run_command(COMPARE, copy)
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: out/{spoiled.name}, line 2: cost is None")
    assert outcome.err.endswith("move that file away.\n")
    assert {path.name: path.read_bytes() for path in (copy / "out").iterdir()} == before


def test_ctrl_c_keeps_what_was_recorded_and_the_same_command_goes_on(tmp_path, undrawn):
    line = f"compare {SMALL} --seeds 2 --strategies traditional,random-backprop --out out"
    advance = TrainingRun.advance

    def interrupted(run, pause):
        if run.plan.seed == 1 and len(run.points) == 1:
            raise KeyboardInterrupt
        return advance(run, pause)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "advance", interrupted)
        outcome = run_command(line, tmp_path)
    assert outcome.status == 130
    assert outcome.err.startswith(
        "interrupted; what was recorded is kept. compare, reproduce and study"
    )
    kept = {run.path.name: run for run in read_runs(tmp_path / "out")}
    assert [run.finished for run in kept.values()] == [True, False, True, False]
    assert sum(len(run.points) for run in kept.values()) == 3 + 1 + 3 + 1
    outcome = run_command(line, tmp_path)
    assert outcome.status == 0
    assert outcome.out.count("recorded already, not run again") == 2
    records = {run.path.name: run for run in read_runs(tmp_path / "out")}
    assert all(run.finished for run in records.values())
    assert all(records[name] == run for name, run in kept.items() if run.finished)
    assert len(list((tmp_path / "out").glob("*.partial"))) == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--stale 2", ["rate", "stale"]),
        ("--strategy traditional --warmup 0.3", ["rate", "warmup"]),
        ("--strategy stale-sb --stale 2", []),
        ("--strategy selective-backprop --keep 0.5 --warmup 0.3", ["keep"]),
    ],
)
def test_train_names_the_options_that_its_strategy_does_not_use(options, named, tmp_path):
    outcome = run_command(f"train {SMALL} {options}", tmp_path)
    assert outcome.status == 0
    assert re.findall(r"^--(\w+) makes no difference", outcome.err, re.MULTILINE) == named


def test_train_records_one_run_and_sums_it_up(tmp_path):
    outcome = run_command(f"train {SMALL} --seed 5", tmp_path)
    assert (outcome.status, outcome.err) == (0, "--rate makes no difference to auto\n")
    (path,) = (tmp_path / "runs/train").glob("*.jsonl")
    last = read_run(path).points[-1]
    assert outcome.out.splitlines()[-1] == (
        f"auto, seed 5: error {last.test_error:.2f} % after 2 epochs; "
        f"{last.scored} examples scored, {last.trained} trained on in {last.updates} updates: "
        f"the cost of {last.cost:.2f} traditional epochs, {last.seconds:.1f} s. "
        f"Record: runs/train/{path.name}"
    )


def test_what_train_recorded_can_be_reported(tmp_path, undrawn):
    run_command(f"train {SMALL}", tmp_path)
    outcome = run_command("report runs/train", tmp_path)
    assert outcome.status == 0
    assert "no finished traditional run" in outcome.text


def test_train_can_be_tried_for_a_single_epoch(tmp_path):
    outcome = run_command("train --limit 256 --epochs 1 --evaluations 1", tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    (run,) = read_runs(tmp_path / "runs/train")
    assert run.points[-1].trained == 256


def test_a_model_of_one_s_own_is_found_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    (tmp_path / "net_of_my_own.py").write_text(
        "from torch import nn\n"
        "def make(channels, classes, side):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, classes))\n"
    )
    options = f"{SMALL} --strategy selective-backprop --model net_of_my_own:make"
    outcome = run_command(f"train {options}", tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    (record,) = read_runs(tmp_path / "runs/train")
    assert record.header.config["model"] == "net_of_my_own:make"


def test_on_a_terminal_there_are_bars(tmp_path, monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(cli, "console", console)
    assert run_command(f"train {SMALL}", tmp_path).status == 0
    assert "━" * 24 in screen.getvalue()


def test_budgets_make_rows_of_their_own(tmp_path, undrawn):
    line = "compare --limit 256 --budget 1 --budget 0.5 --seeds 1 --evaluations 2 --rate 1/2"
    outcome = run_command(f"{line} --strategies traditional,random-backprop --out out", tmp_path)
    assert outcome.status == 0
    labels = [f"{arm} @ {cost}" for cost in (1, 0.5) for arm in ("traditional", "random-backprop")]
    table = (tmp_path / "out/table.md").read_text()
    assert [label for label in labels if f"| {label} |" in table] == labels
    costs = {run.path.name: run.points[-1].cost for run in read_runs(tmp_path / "out")}
    assert sorted(round(cost, 2) for cost in costs.values()) == [0.5, 0.5, 1.0, 1.0]


def test_by_default_the_five_arms_train_on_digits_with_three_seeds(plans):
    made = plans("compare")
    assert [(plan.seed, plan.arm) for plan in made] == [
        (seed, arm) for seed in range(3) for arm in DEFAULT_ARMS
    ]
    (recipe,) = {plan.recipe for plan in made}
    assert recipe == RECIPES["digits"]
    assert {plan.length for plan in made} == {Length("epochs", 20.0)}
    assert {plan.settings for plan in made} == {Settings(rate=1 / 3, warmup=1 / 20)}


@pytest.mark.parametrize("command", ["compare", "train"])
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--data cifar10", {"recipe": asdict(RECIPES["cifar10"])}),
        ("--model resnet9", {"recipe": {"model": "resnet9"}}),
        ("--batch-size 32", {"recipe": {"batch_size": 32}}),
        ("--lr 0.02", {"recipe": {"learning_rate": 0.02}}),
        ("--lr-schedule steps", {"recipe": {"rates": Rates.STEPS}}),
        ("--epochs 4", {"length": {"unit": "epochs", "value": 4.0}, "settings": {"warmup": 0.25}}),
        ("--epochs 1", {"settings": {"warmup": 0.5}}),
        ("--budget 2.5", {"length": {"unit": "cost", "value": 2.5}, "settings": {"warmup": 0.1}}),
        ("--budget 60s", {"length": {"unit": "seconds", "value": 60.0}}),
        ("--rate 0.25", {"settings": {"rate": 0.25}}),
        ("--rate 1/7", {"settings": {"rate": 1 / 7}}),
        ("--draw bernoulli", {"settings": {"draw": sb.selectors.Draw.BERNOULLI}}),
        ("--warmup 0.3", {"settings": {"warmup": 0.3}}),
        ("--warmup 0", {"settings": {"warmup": 0.0}}),
        ("--warmup 1/10", {"settings": {"warmup": 0.1}}),
        ("--limit 300", {"limit": 300}),
        ("--stale 5", {"settings": {"stale": 5}}),
        ("--keep 0.5", {"settings": {"keep": 0.5}}),
        ("--keep 2/3", {"settings": {"keep": 2 / 3}}),
        ("--noise 0.2", {"noise": 0.2}),
        ("--noise 1/3", {"noise": 1 / 3}),
        ("--lr-follows updates", {"lr_follows": Follows.UPDATES}),
        ("--evaluations 7", {"evaluations": 7}),
        ("--device cpu", {"device": "cpu"}),
    ],
)
def test_an_option_changes_what_it_says_and_nothing_else(plans, command, option, expected):
    (plain, *_), (made, *_) = plans(command), plans(f"{command} {option}")
    wanted = asdict(plain)
    for name, value in expected.items():
        wanted[name] = wanted[name] | value if isinstance(value, dict) else value
    if option.startswith("--budget 60s"):
        wanted["settings"]["warmup"] = 0.1
    if option == "--epochs 1":
        wanted["length"]["value"] = 1.0
    if option == "--data cifar10":
        wanted["length"]["value"] = 10.0
        wanted["settings"]["warmup"] = 0.1
    assert asdict(made) == wanted


def test_with_noise_every_arm_trains_on_the_same_flipped_labels(tmp_path, undrawn, monkeypatch):
    seen = []

    class Noted(TrainingRun):
        def __init__(self, plan, data, **more):
            seen.append(data)
            super().__init__(plan, data, **more)

    monkeypatch.setattr(comparing, "TrainingRun", Noted)
    outcome = run_command(f"{COMPARE} --noise 1/4", tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    # of the limited data, whatever the seed of the run
    noisy = UniformFlip(1 / 4)(load("digits", limit=256))
    assert int(noisy.flipped.sum()) == 64
    assert len(seen) == 4
    assert all(torch.equal(data.train_labels, noisy.train_labels) for data in seen)
    assert all(run.header.config["noise"] == 0.25 for run in read_runs(tmp_path / "out"))
    assert "256 training examples, 25 % of the training labels flipped" in outcome.text
    assert "25 % of the training labels flipped" in (tmp_path / "out/table.md").read_text()


def test_runs_with_and_without_noise_lie_side_by_side_and_are_never_compared(copy, undrawn):
    before = {path.name: path.read_bytes() for path in (copy / "out").glob("*.jsonl")}
    outcome = run_command(f"{COMPARE} --noise 1/4", copy)
    assert outcome.status == 0
    assert "recorded already" not in outcome.out
    after = {path.name: path.read_bytes() for path in (copy / "out").glob("*.jsonl")}
    assert len(after) == 2 * len(before)
    assert {name: after[name] for name in before} == before
    outcome = run_command("report out", copy)
    assert outcome.status == 0
    assert outcome.err.startswith("warning: 4 records of noise none, and not of noise 0.25 like")
    assert "25 % of the training labels flipped" in outcome.out


def test_arms_seeds_and_budgets_are_all_combined_once(plans):
    line = "compare --strategies all --seeds 2 --budget 1 --budget 2 --budget 1.0"
    made = [(plan.arm, plan.seed, plan.length) for plan in plans(line)]
    lengths = [Length("cost", 1.0), Length("cost", 2.0)]
    assert made == [(arm, seed, length) for seed in (0, 1) for length in lengths for arm in ARMS]
    made = plans("compare --strategies top-k --budget 2 --budget 2s --seeds 1")
    assert [plan.length for plan in made] == [Length("cost", 2.0), Length("seconds", 2.0)]


def test_train_takes_one_strategy_and_seed(plans):
    (plan,) = plans("train --strategy top-k --seed 3")
    assert (plan.arm, plan.seed) == ("top-k", 3)


def test_threads_are_those_asked_for_and_one_otherwise(plans, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    plans("train")
    plans("compare --threads 3")
    assert asked == [1, 3]


def test_a_gpu_is_used_where_there_is_one(plans, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for line, device in {"train": "cuda", "train --device cpu": "cpu"}.items():
        assert plans(line)[0].device == device
    assert plans("train --device cuda:1")[0].device == "cuda:1"
    assert cli.app(["train", "--device", "cuda:2"], standalone_mode=False) == 2


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("commands", DOCS / "commands.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_option_is_documented():
    text = (DOCS / "command.md").read_text(encoding="utf-8")
    commands = typer.main.get_command(cli.app).commands
    others = {"advise", "audit", "bench", "report"}
    assert set(commands) == {"compare", "train"} | others
    for name, command in commands.items():
        _, _, section = text.partition(f"\n## {name}\n")
        section, _, _ = section.partition("\n## ")
        for parameter in command.params:
            names = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar]
            assert all(f"`{option}" in section for option in names)


def test_the_reference_of_the_command_is_what_the_command_says_now(page):
    text = (DOCS / "command.md").read_text(encoding="utf-8")
    assert text == page.rewrite(text, cli.app), "run: python docs/commands.py"


def test_an_option_that_does_not_say_what_it_is_for_cannot_be_documented(page):
    app = typer.Typer()

    @app.command()
    def one(speed: int = 3) -> None:
        """Do it."""

    @app.command()
    def other() -> None:
        """Do the other."""

    with pytest.raises(ValueError, match="one --speed does not say what it is for"):
        page.describe(app)
