"""Records as one table."""

from pathlib import Path

from selective_backprop_lab.records.frame import COLUMNS, frame
from selective_backprop_lab.records.schema import read_runs

DEMO = Path(__file__).parents[3] / "records" / "demo"


def test_a_row_is_an_evaluation_and_every_column_is_described():
    runs, found = read_runs(DEMO), frame(DEMO)
    assert list(found.columns) == list(COLUMNS)
    assert len(found) == sum(len(run.points) for run in runs)
    run, rows = runs[0], found[found.run == runs[0].name]
    assert [*rows.error] == [point.test_error for point in run.points]
    assert [*rows.evaluation] == list(range(len(run.points)))
    assert {*rows.seed} == {run.header.seed}
    assert {*rows.arm} == {run.header.arm}
