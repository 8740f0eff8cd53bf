from types import SimpleNamespace

import pytest
from fixture_lab import few_digits, fixture_plan, run_plans
from fixture_runs import fixture_point

from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.runner import grid
from selective_backprop_lab.training.run import TrainingRun

ARMS = ("traditional", "random-backprop", "low-k")


class FakeRun(TrainingRun):
    """A run that takes no time, and notes when it takes its turns."""

    meter = SimpleNamespace(updates=0)

    def __init__(self, log, fails, plan, data):
        self.log, self.fails, self.config, self.data = log, fails, plan, data
        self.points = []
        self.observations = []
        log.append(("made", plan))

    def advance(self, pause):
        if (self.config.arm, self.config.seed, len(self.points)) in self.fails:
            raise self.fails[self.config.arm, self.config.seed, len(self.points)]
        self.points.append(fixture_point((len(self.points) + 1) / self.config.evaluations))
        self.log.append(("advanced", self.config))
        return self.points[-1]

    def look(self):
        return []

    def meters(self):
        return {"arm": self.config.arm}

    def history(self):
        return None


class Comparison:
    """Runs plans in a folder, with runs that take no time, and tells what happened."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.log = []
        self.fails = {}
        self.seen = []
        monkeypatch.setattr(
            grid, "TrainingRun", lambda plan, data, **_: FakeRun(self.log, self.fails, plan, data)
        )

    def __call__(self, plans, **options):
        self.log.clear()
        self.seen.clear()
        return run_plans(
            plans,
            few_digits(),
            self.folder,
            command="typed",
            watch=lambda plan, point: self.seen.append((plan, point)),
            **options,
        )

    def happened(self, what):
        return [plan for event, plan in self.log if event == what]

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def compare(tmp_path, monkeypatch):
    return Comparison(tmp_path / "runs", monkeypatch)


def three_arms(seed=0, **changes):
    return [fixture_plan(arm, seed=seed, **changes) for arm in ARMS]


def test_who_is_least_far_goes_next_where_arms_are_evaluated_differently_often(compare):
    often, seldom = fixture_plan("traditional", evaluations=4), fixture_plan("low-k", evaluations=2)
    compare([often, seldom])
    order = "".join("o" if plan is often else "s" for plan in compare.happened("advanced"))
    assert order == "osooso"


@pytest.mark.parametrize("stop", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_comparison_that_stops_in_the_middle_keeps_all_and_goes_on_later(compare, stop):
    plans = [*three_arms(seed=0), *three_arms(seed=1)]
    compare.fails = {("random-backprop", 1, 2): stop}
    with pytest.raises(type(stop)):
        compare(plans)
    kept = {
        (run.header.arm, run.header.seed): (len(run.points), run.finished)
        for run in read_runs(compare.folder)
    }
    assert kept == {
        **{(arm, 0): (3, True) for arm in ARMS},
        ("traditional", 1): (3, True),
        ("random-backprop", 1): (2, False),
        ("low-k", 1): (2, False),
    }
    compare.fails = {}
    records = compare(plans)
    assert compare.happened("made") == plans[4:]
    assert all(run.finished for run in records)
    partial = [name for name in compare.files() if name.endswith(".partial")]
    assert [name.split("-seed1-")[0] for name in partial] == ["low-k", "random-backprop"]
