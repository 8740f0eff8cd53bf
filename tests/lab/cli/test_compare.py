"""The commands `compare` and `train`: what they run, record and say."""

import re
from dataclasses import asdict

import pytest
import torch
from fixture_command import run_command
from fixture_lab import few_digits

from selective_backprop_lab.budget import Budget
from selective_backprop_lab.cli import main as cli
from selective_backprop_lab.data.composition import NoiseKind
from selective_backprop_lab.recipe import RECIPES, Rates
from selective_backprop_lab.records.example_history import examples_path
from selective_backprop_lab.records.lines import flat
from selective_backprop_lab.records.schema import read_run, read_runs
from selective_backprop_lab.runner import grid
from selective_backprop_lab.strategies import DEFAULT_STRATEGIES, StrategyOptions, parse_strategies

SMALL = "--limit 256 --epochs 2 --evaluations 3 --rate 1/2"


@pytest.fixture
def ordered(monkeypatch, tmp_path):
    """Returns the plans that a line makes, and how they would be run."""

    class Ordered(Exception):
        pass

    def stop(plans, store, **options):
        raise Ordered(plans, options)

    def order(line):
        monkeypatch.setattr("selective_backprop_lab.cli.train.run_grid", stop)
        monkeypatch.setattr(grid, "load_data", lambda name, **_: few_digits())
        with pytest.raises(Ordered) as made:
            cli.app(line.split(), standalone_mode=False)
        return made.value.args

    monkeypatch.chdir(tmp_path)
    return order


@pytest.fixture
def plans(ordered):
    return lambda line: ordered(line)[0]


def test_a_comparison_writes_a_record_for_each_run_and_all_that_is_drawn_from_them(compared):
    assert compared.outcome.status == 0
    assert compared.outcome.err == ""
    records = read_runs(compared.folder / "out")
    assert [(run.header.arm, run.header.seed) for run in records] == [
        (arm, seed) for arm in ("selective-backprop", "traditional") for seed in (0, 1)
    ]
    assert all(run.finished and len(run.points) == 3 for run in records)
    assert {run.header.command for run in records} == {f"selective-backprop {compared.line}"}
    beside = {file.name for run in records for file in (run.path, examples_path(run.path))}
    found = {path.name for path in (compared.folder / "out").iterdir()}
    assert beside <= found
    assert found - beside == {"table.md", "comparison.png", "report.html"}
    assert (compared.folder / "out/comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "selective-backprop" in (compared.folder / "out/report.html").read_text()


def test_a_comparison_prints_its_table_and_where_the_rest_is(compared):
    text = compared.outcome.text
    assert "256 training examples of digits · small_cnn · 2 epochs · seeds 0 and 1" in text
    # In as many epochs selective-backprop costs less than any traditional run.
    assert "There is no verdict: no traditional run cost as much" in text
    assert "Open out/report.html; beside it are table.md and comparison.png." in text
    assert re.match("Next: .*--budget", compared.outcome.out.splitlines()[-1])


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


def test_a_damaged_record_stops_the_comparison_and_nothing_is_lost(compared, copy, untrained):
    spoiled = next((copy / "out").glob("traditional-seed1-*"))
    spoiled.write_bytes(spoiled.read_bytes().replace(b'"cost"', b'"most"', 1))
    before = {path.name: path.read_bytes() for path in (copy / "out").iterdir()}
    outcome = run_command(compared.line, copy)
    assert outcome.status == 2
    assert outcome.err.startswith(f"error: out/{spoiled.name}, line 2: cost is None")
    assert outcome.err.endswith("move that file away.\n")
    assert {path.name: path.read_bytes() for path in (copy / "out").iterdir()} == before


def test_train_records_one_run_and_sums_it_up(tmp_path, undrawn):
    outcome = run_command(f"train {SMALL} --seed 5", tmp_path)
    assert (outcome.status, outcome.err) == (0, "--rate makes no difference to auto\n")
    (path,) = (tmp_path / "runs/train").glob("*.jsonl")
    last = read_run(path).points[-1]
    assert outcome.out.splitlines()[-1] == (
        f"auto, seed 5: error {last.test_error:.2f} % after 2 epochs; "
        f"{last.scored} examples scored, {last.trained} trained on in {last.updates} updates: "
        f"the cost of {last.cost:.2f} passes, {last.cpu_seconds:.1f} CPU s. "
        f"Record: runs/train/{path.name}"
    )
    outcome = run_command("report runs/train", tmp_path)
    assert outcome.status == 0
    assert "no finished traditional run" in outcome.text


def test_by_default_the_five_arms_train_on_digits_at_equal_cost_with_five_seeds(plans):
    made = plans("compare")
    whole = [plan for plan in made if plan.length == Budget("cost", 20.0)]
    assert [(plan.seed, plan.arm) for plan in whole] == [
        (seed, arm) for seed in range(5) for arm in DEFAULT_STRATEGIES.split(",")
    ]
    (recipe,) = {plan.recipe for plan in made}
    assert recipe == RECIPES["digits"]
    assert {plan.settings for plan in made} == {StrategyOptions(rate=1 / 3, warmup=1 / 10)}
    (alone,) = plans("train")
    assert (alone.arm, alone.seed, alone.length) == ("auto", 0, Budget("epochs", 20.0))
    assert alone.settings == StrategyOptions(rate=1 / 3, warmup=1 / 20)


def test_by_default_no_more_is_tested_than_trained_on_but_at_least_four_times(plans):
    lines = {"budget 1 --budget 2": 10, "epochs 1": 5, "budget 0.1": 4, "budget 9s": 20}
    found = {line: {plan.evaluations for plan in plans(f"compare --{line}")} for line in lines}
    assert found == {line: {number} for line, number in lines.items()}


@pytest.mark.parametrize(
    ("line", "lengths"),
    [
        ("", ["10 passes", "5 passes"]),
        ("--budget 8 --budget 16", ["4 passes", "2 passes"]),  # a half of 16 is there already
        ("--epochs 5", ["2 epochs", "1 epoch"]),
        ("--epochs 1", []),
        ("--budget 60s", ["30 seconds", "15 seconds"]),
    ],
)
def test_plain_training_also_runs_for_a_half_and_a_quarter(plans, capsys, line, lengths):
    arms = "auto,auto+smoothing-0.3,traditional,traditional+smoothing-0.3"
    made = plans(f"compare --strategies {arms} --seeds 2 {line}")
    whole = {plan.length for plan in made if plan.arm == "auto"}
    shorter = [plan for plan in made if plan.length not in whole]
    assert [(plan.seed, str(plan.length), plan.arm) for plan in shorter] == [
        (seed, length, arm)
        for seed in (0, 1)
        for length in lengths
        for arm in ("traditional", "traditional+smoothing-0.3")
    ]
    said = " ".join(capsys.readouterr().out.split())
    assert (f"also runs for {', '.join(lengths)}, because" in said) == bool(lengths)
    assert not [plan for plan in plans(f"compare --strategies auto {line}") if plan.arm != "auto"]


OPTIONS = {
    "--data cifar10": {
        **flat({"recipe": asdict(RECIPES["cifar10"])}),
        **{"length.value": 10.0, "settings.warmup": 0.1},
    },
    "--model resnet9 --batch-size 32 --lr 0.02": {
        **{"recipe.model": "resnet9", "recipe.batch_size": 32, "recipe.learning_rate": 0.02}
    },
    "--epochs 1": {"length.value": 1.0, "settings.warmup": 0.5, "settings.warmup_epoch": False},
    "--budget 60s": {"length.unit": "seconds", "length.value": 60.0, "settings.warmup": 0.1},
    "--limit 300 --lr-schedule steps": {"limit": 300, "recipe.rates": Rates.STEPS},
    "--no-augmentation --rate 1/7": {"recipe.augmentation.shift": 0, "settings.rate": 1 / 7},
    "--pretrained mnist:0-4": {"pretrained": "mnist:0-4"},
    "--noise 1/3 --noise-kind neighbour": {
        **{"composition.noise": 1 / 3, "composition.noise_kind": NoiseKind.NEIGHBOUR}
    },
    "--skew 1.5 --copies 1 --near-copies 2 --places 800 --data-seed 3": {
        **{"composition.skew": 1.5, "composition.copies": 1.0, "composition.near_copies": 2},
        **{"composition.places": 800, "composition.seed": 3},
    },
    "--evaluations 7 --device cpu": {"evaluations": 7, "device": "cpu"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_what_it_says_and_nothing_else(plans, option):
    (plain,), (made,) = plans("train"), plans(f"train --evaluations 20 {option}")
    assert flat(asdict(made)) == flat(asdict(plain)) | OPTIONS[option]


def test_arms_seeds_and_budgets_are_all_combined_once(plans):
    line = "compare --strategies all --seeds 2 --no-shorter --budget 1 --budget 2 --budget 1.0"
    made = [(plan.arm, plan.seed, plan.length) for plan in plans(line)]
    lengths = [Budget("cost", 1.0), Budget("cost", 2.0)]
    every = parse_strategies("all")
    assert made == [(arm, seed, length) for seed in (0, 1) for length in lengths for arm in every]
    made = plans("compare --strategies top-k --budget 2 --budget 2s --seeds 1")
    assert [plan.length for plan in made] == [Budget("cost", 2.0), Budget("seconds", 2.0)]


def test_train_takes_one_strategy_and_seed_and_compare_several_seeds_at_a_time(ordered):
    (plan,), options = ordered("train --strategy top-k --seed 3 --again")
    assert (plan.arm, plan.seed) == ("top-k", 3)
    assert (options["replace"], options["resume"]) == (True, False)
    _, options = ordered("compare --jobs 3 --threads 2")
    assert (options["jobs"], options["threads"], options["replace"]) == (3, 2, False)


def test_a_gpu_is_used_where_there_is_one(plans, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for line, device in {"train": "cuda", "train --device cpu": "cpu"}.items():
        assert plans(line)[0].device == device
    assert plans("train --device cuda:1")[0].device == "cuda:1"
    assert cli.app(["train", "--device", "cuda:2"], standalone_mode=False) == 2
