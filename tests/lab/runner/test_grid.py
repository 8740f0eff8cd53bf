from fixture_command import run_command
from fixture_lab import few_digits, fixture_plan, untimed

from selective_backprop.lab.cli import write as presenting
from selective_backprop.lab.records.example_history import read_examples
from selective_backprop.lab.records.schema import read_runs
from selective_backprop.lab.runner.grid import run_rivals
from selective_backprop.lab.runner.run_store import Place

NET = """
from torch import nn

def make(channels, classes, side):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * side * side, classes))
"""


def place(folder):
    return Place(folder, None, "typed")


def test_the_runs_of_a_seed_and_length_take_turns_and_seeds_follow_each_other(tmp_path):
    plans = [
        fixture_plan(arm, seed=seed, cost=cost, evaluations=2)
        for arm in ("traditional", "low-k")
        for seed in (0, 1)
        for cost in (1.0, 2.0)
    ]
    heard = []
    runs = run_rivals(plans, place(tmp_path), jobs=1, threads=1, watch=lambda *of: heard.append(of))
    turns = [(plan.seed, plan.length.value) for plan, _ in heard]
    assert turns == sorted(turns)
    assert len(turns) == 2 * len(plans)
    for plan, run in zip(plans, runs, strict=True):
        assert (run.header.arm, run.header.seed) == (plan.arm, plan.seed)
        assert run.points == tuple(point for other, point in heard if other == plan)
        assert len(read_examples(run.path)) == len(few_digits().train_labels)
    heard.clear()
    again = run_rivals(
        plans, place(tmp_path), jobs=2, threads=1, watch=lambda *of: heard.append(of)
    )
    assert heard == [(plan, None) for plan in plans]
    assert [run.points for run in again] == [run.points for run in runs]


def test_several_processes_record_and_tell_what_one_does(tmp_path):
    (tmp_path / "of_mine.py").write_text(NET)
    line = (
        "compare --model of_mine:make --noise 1/4 --limit 128 --budget 1 --seeds 2 --evaluations 2 "
        "--strategies traditional,auto --rate 1/2"
    )
    for jobs in (1, 2):
        outcome = run_command(f"{line} --jobs {jobs} --out {jobs}", tmp_path)
        assert (outcome.status, outcome.err) == (0, "")
        for arm in ("traditional", "auto"):
            assert f"{arm}, seed 1: error" in outcome.text
    alone, beside = read_runs(tmp_path / "1"), read_runs(tmp_path / "2")
    assert len(alone) == 4
    for one, other in zip(alone, beside, strict=True):
        assert one.path.name == other.path.name
        assert one.header.config == other.header.config
        assert untimed(list(one.points)) == untimed(list(other.points))
    assert "| auto |" in (tmp_path / "2" / "table.md").read_text(encoding="utf-8")


def test_the_table_of_a_comparison_does_without_runs_that_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(presenting, "draw_comparison", lambda runs, path: None)
    monkeypatch.setattr(presenting, "write_report", lambda runs, path, **_: None)
    line = (
        "compare --lr 1e6 --model tiny_cnn --limit 128 --epochs 2 --seeds 2 "
        "--evaluations 2 --strategies traditional,selective-backprop --out out"
    )
    outcome = run_command(line, tmp_path)
    assert outcome.status == 2
    assert len(outcome.err.splitlines()) == 2
    for seed in (0, 1):
        assert f"selective-backprop, seed {seed}: 64 of 64 losses are not finite" in outcome.err
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "| selective-backprop (2 unfinished) | – |" in table
    assert "| traditional | " in table


def test_what_is_run_again_stays_beside_it(tmp_path):
    plan = fixture_plan(epochs=1, evaluations=1)

    def run(**options):
        return run_rivals(
            [plan], place(tmp_path), jobs=2, threads=1, watch=lambda *_: None, **options
        )

    (first,) = run()
    written = first.path.read_bytes()
    (again,) = run(replace=True)
    assert untimed(list(again.points)) == untimed(list(first.points))
    (kept,) = (path for path in tmp_path.glob("*.replaced") if ".jsonl" in path.name)
    assert kept.read_bytes() == written
