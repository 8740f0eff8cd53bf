"""The study is trained once, goes on where it was, and writes a page from what is on record."""

import shutil
from dataclasses import replace

import pytest
from fixture_papers import Screen

import selective_backprop as sb
from reproductions import training
from reproductions.auto_study.protocol import ARMS, OURS, Benchmark, Stage
from reproductions.auto_study.study import RUNS as FOLDER
from reproductions.auto_study.study import plans_of, run_study
from reproductions.training import Order, file_of
from selective_backprop.lab.analysis.verdict import GOALS
from selective_backprop.lab.data.augment import Augmentation
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.records.schema import read_runs

# So few digits are scored by so young a net that the halves may lack a class.
pytestmark = pytest.mark.filterwarnings("ignore")
TINY = Stage(
    "Tiny",
    (
        Benchmark(
            "Few digits",
            Recipe(
                "digits",
                "fixture_lab:small_net",
                epochs=2,
                batch_size=32,
                augmentation=Augmentation(shift=1),
            ),
            192,
            (2.0, 4.0),
        ),
    ),
    first_seed=7,
)
RUNS = 2 * (2 * len(ARMS) + 1)


def run(out, stage=TINY, **changes):
    """Run a stage, and return what was said."""
    fields = {"seeds": 2, "device": "cpu", "threads": 1, "jobs": 1, "root": None, "command": "any"}
    screen = Screen()
    run_study(screen, stage, Order(out=out, **fields | changes))
    return screen.text


def without(made, out, arm):
    """Copy the records, but for those of a strategy, and draw what is left."""
    shutil.copytree(made / FOLDER, out / FOLDER)
    (plans,) = plans_of(TINY, 2, "cpu").values()
    for plan in plans:
        if plan.arm == arm:
            file_of(plan, out / FOLDER).unlink()
    run(out, trains=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    return out, run(out)


def test_every_strategy_is_trained_at_each_budget_with_the_stages_own_seeds(made):
    out, said = made
    runs = read_runs(out / "runs")
    assert len(runs) == RUNS
    assert {run.header.seed for run in runs} == {7, 8}
    assert {run.header.arm for run in runs} == set(ARMS)
    assert {run.header.config["budget"] for run in runs} == {2.0, 2.5, 4.0}
    assert all(run.finished for run in runs)
    assert all(
        run.points[-1].cost == pytest.approx(run.header.config["budget"], 0.1) for run in runs
    )
    assert f"{RUNS} runs: 0 on record, {RUNS} to do" in said


def test_the_page_has_a_figure_a_row_for_each_strategy_and_every_goal(made):
    out, said = made
    page = (out / "index.md").read_text(encoding="utf-8")
    assert page.startswith("# Tiny\n")
    assert "](few-digits.png)" in page
    assert (out / "few-digits.png").read_bytes().startswith(b"\x89PNG")
    drawn = (out / "few-digits.svg").read_text(encoding="utf-8")
    for arm in ARMS:
        assert f"| {arm} |" in page
        assert arm in drawn
    goals = [
        line for line in page.splitlines() if any(f"| {each} |" in line for each in GOALS.values())
    ]
    assert len(goals) == 2 + 2 + 1 + 3
    assert f"Of {len(goals)} goals: " in page
    assert "192 training examples, fixture_lab:small_net, batch 32" in page
    assert "Seeds 7 and 8" in page
    assert "Few digits: " in said


def test_nothing_is_trained_again(made, monkeypatch):
    out, _ = made
    monkeypatch.setattr(training, "run_grid", None)
    before = (out / "few-digits.svg").read_bytes()
    assert f"{RUNS} runs: {RUNS} on record\n" in run(out)
    assert (out / "few-digits.svg").read_bytes() == before


def test_what_is_missing_is_left_out_with_a_word(made, tmp_path):
    without(made[0], tmp_path, "kath18")
    page = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "| kath18 |" not in page
    assert "Left out: 4 runs, not on record." in page


def test_a_benchmark_without_auto_is_not_judged(made, tmp_path):
    with pytest.raises(sb.RecordError, match="no benchmark on which traditional and auto were run"):
        without(made[0], tmp_path, OURS)


def test_missing_data_are_named_before_anything_is_trained(tmp_path):
    (benchmark,) = TINY.benchmarks
    absent = replace(benchmark, recipe=replace(benchmark.recipe, data="cifar10"))
    stage = replace(TINY, benchmarks=(benchmark, absent))
    with pytest.raises(sb.DataError, match="no such place is not a folder"):
        run(tmp_path, stage, root=tmp_path / "no such place")
    assert not list(tmp_path.iterdir())
