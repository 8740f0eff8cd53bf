import pytest
from fixture_lab import few_digits, fixture_plan, run_plans

from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.training.run import TrainingRun

ARMS = ("traditional", "random-backprop", "low-k")


def compare(plans, folder):
    """Run plans, and return what was heard of them."""
    heard = []
    run_plans(plans, few_digits(), folder, watch=lambda *said: heard.append(said))
    return heard


def test_who_is_least_far_goes_next_where_arms_are_evaluated_differently_often(tmp_path):
    often, seldom = fixture_plan("traditional", evaluations=4), fixture_plan("low-k", evaluations=2)
    heard = compare([often, seldom], tmp_path)
    assert "".join("o" if plan is often else "s" for plan, _ in heard) == "osooso"


@pytest.mark.parametrize("stop", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_comparison_that_stops_in_the_middle_keeps_all_and_goes_on_later(
    tmp_path, monkeypatch, stop
):
    plans = [fixture_plan(arm, seed=seed) for seed in (0, 1) for arm in ARMS]
    advance = TrainingRun.advance

    def failing(run, *args):
        if (run.config, len(run.points)) == (plans[4], 2):
            raise stop
        return advance(run, *args)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "advance", failing)
        with pytest.raises(type(stop)):
            compare(plans, tmp_path)
    kept = {(run.header.arm, run.header.seed): len(run.points) for run in read_runs(tmp_path)}
    unfinished = {(arm, 1): 2 for arm in ARMS[1:]}
    assert kept == {**{(arm, seed): 3 for arm in ARMS for seed in (0, 1)}, **unfinished}
    heard = compare(plans, tmp_path)
    assert [plan for plan, point in heard if point is None] == plans[:4]
    runs = read_runs(tmp_path)
    assert all(run.finished for run in runs)
    # What failed begins again, since its state is unknown; a second Ctrl-C saves nothing.
    saved = ["low-k"] if isinstance(stop, Exception) else []
    assert [run.header.arm for run in runs if len(run.end["machines"]) > 1] == saved
