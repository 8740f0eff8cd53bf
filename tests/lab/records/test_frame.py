"""Records as one table."""

from pathlib import Path

import pytest
from fixture_runs import fixture_run

import selective_backprop_lab as lab
from selective_backprop_lab.records.frame import COLUMNS, frame, frame_of
from selective_backprop_lab.records.schema import read_runs

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "records" / "demo"


def test_a_row_is_an_evaluation_and_every_column_is_described():
    runs, found = read_runs(DEMO), frame(DEMO)
    assert list(found.columns) == list(COLUMNS)
    assert len(found) == sum(len(run.points) for run in runs)
    run, rows = runs[0], found[found.run == runs[0].name]
    assert [*rows.error] == [point.test_error for point in run.points]
    assert [*rows.evaluation] == list(range(len(run.points)))
    assert {*rows.seed} == {run.header.seed}
    assert {*rows.arm} == {run.header.arm}


def test_the_lab_s_door_is_the_frame():
    assert lab.frame is frame


@pytest.mark.parametrize(
    ("end", "timed"),
    [
        ({}, True),
        ({"machines": ["A", "A"], "shared_gpu": False}, True),
        ({"machines": ["A", "B"]}, False),
        ({"machines": ["A"], "shared_gpu": True}, False),
    ],
)
def test_a_run_of_two_machines_or_on_a_shared_gpu_has_no_seconds(end, timed):
    found = frame_of([fixture_run(end=end)])
    assert {*found[["seconds", "cpu_seconds"]].notna().to_numpy().flat} == {timed}
    assert found.cost.notna().all()
