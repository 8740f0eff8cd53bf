import signal
from types import SimpleNamespace

import pytest
from fixture_lab import carry_out, few_digits, fixture_plan, run_plans, untimed
from fixture_runs import fixture_point

import selective_backprop as sb
from selective_backprop_lab.records.schema import read_run, read_runs
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
            grid,
            "TrainingRun",
            lambda plan, data, **_: FakeRun(self.log, self.fails, plan, data),
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


def test_arms_of_one_seed_take_turns_from_evaluation_to_evaluation(compare):
    plans = three_arms(evaluations=2)
    compare(plans)
    assert compare.happened("advanced") == plans * 2


def test_who_is_least_far_goes_next_where_arms_are_evaluated_differently_often(compare):
    often, seldom = fixture_plan("traditional", evaluations=4), fixture_plan("low-k", evaluations=2)
    compare([often, seldom])
    order = "".join("o" if plan is often else "s" for plan in compare.happened("advanced"))
    assert order == "osooso"


def test_records_come_back_in_the_order_of_the_plans_and_hold_every_point(compare):
    plans = [*three_arms(seed=1), *three_arms(seed=0)]
    records = compare(plans)
    assert [(run.header.arm, run.header.seed) for run in records] == [
        (plan.arm, plan.seed) for plan in plans
    ]
    assert all(run.finished and len(run.points) == 3 for run in records)
    assert all(run.header.command == "typed" for run in records)
    assert [run.end["meters"] for run in records] == [{"arm": plan.arm} for plan in plans]
    assert [point for plan, point in compare.seen if plan == plans[0]] == list(records[0].points)


def test_what_is_recorded_is_not_run_again(compare):
    plans = three_arms()
    first = compare(plans[:2])
    both = compare(plans)
    assert compare.happened("made") == plans[2:]
    assert both[:2] == first
    assert [plan for plan, point in compare.seen if point is None] == plans[:2]
    assert compare(plans) == both
    assert not compare.log


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


def test_an_arm_whose_losses_are_finite_no_more_ends_alone_and_is_named(compare):
    plans = [*three_arms(seed=0), *three_arms(seed=1)]
    advice = 'Mend the data or lower the learning rate; nonfinite="skip" leaves such examples out.'
    error = sb.LossError(f"3 of 4 losses are not finite: with losses nan. {advice}")
    compare.fails = {("low-k", 0, 2): error, ("random-backprop", 1, 0): error}
    with pytest.raises(sb.LossError) as failed:
        compare(plans)
    assert str(failed.value).splitlines() == [
        f"{which}: 3 of 4 losses are not finite: with losses nan. Lower the learning rate: --lr of "
        "train and compare."
        for which in ("low-k, seed 0", "random-backprop, seed 1")
    ]
    kept = {(run.header.arm, run.header.seed): run for run in read_runs(compare.folder)}
    unfinished = {which for which, run in kept.items() if not run.finished}
    assert unfinished == {("low-k", 0), ("random-backprop", 1)}
    assert len(kept) == 6


@pytest.mark.usefixtures("signals_as_usual")
def test_ctrl_c_while_an_arm_fails_is_not_forgotten(compare):
    class Interrupted(dict):
        def __getitem__(self, which):
            signal.raise_signal(signal.SIGINT)
            return super().__getitem__(which)

    plans = [fixture_plan("low-k", seed=seed) for seed in (0, 1)]
    compare.fails = Interrupted({("low-k", 0, 1): sb.LossError("not finite")})
    with pytest.raises(KeyboardInterrupt):
        compare(plans)
    assert compare.happened("made") == plans[:1]


def test_where_nobody_can_be_told_any_more_what_was_trained_is_kept(tmp_path):
    def broken(plan, point):
        raise UnicodeEncodeError("charmap", "-", 0, 1, "cannot be shown")

    with pytest.raises(UnicodeEncodeError):
        run_plans(three_arms(), few_digits(), tmp_path, command="", watch=broken)
    assert [path.name.split("-seed")[0] for path in tmp_path.glob("*.checkpoint")] == [
        "traditional"
    ]


def test_run_again_the_old_records_stay_beside_the_new(compare):
    plans = three_arms()
    compare(plans)
    old = {name: (compare.folder / name).read_bytes() for name in compare.files()}
    compare(plans, replace=True)
    assert compare.happened("made") == plans
    for name, content in old.items():
        assert (compare.folder / f"{name}.replaced").read_bytes() == content
        assert read_run(compare.folder / name).finished


def test_a_record_cut_off_in_its_last_line_is_run_again_and_kept(compare):
    plans = three_arms()
    records = compare(plans)
    path = records[1].path
    path.write_bytes(path.read_bytes()[:-20])
    cut = path.read_bytes()
    compare(plans)
    assert compare.happened("made") == [plans[1]]
    assert path.with_name(path.name + ".partial").read_bytes() == cut


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.replace(b'"point"', b'"pint"', 1),
        lambda content: b"no record\n" + content,
        lambda content: b"\x00" * len(content) + b"\n",
        lambda content: b"",
    ],
    ids=["word", "line", "zeros", "empty"],
)
def test_a_damaged_record_stops_a_comparison_before_it_starts_and_everything_stays(compare, spoil):
    plans = three_arms()
    records = compare(plans[1:])
    path = records[0].path
    path.write_bytes(spoil(path.read_bytes()))
    before = {name: (compare.folder / name).read_bytes() for name in compare.files()}
    with pytest.raises(sb.RecordError, match=f"{path.name}.*move that file away"):
        compare(plans)
    assert not compare.log
    assert {name: (compare.folder / name).read_bytes() for name in compare.files()} == before
    path.rename(path.with_suffix(".away"))
    assert all(run.finished for run in compare(plans))
    assert compare.happened("made") == plans[:2]


def test_real_runs_are_recorded_as_they_are_when_alone(tmp_path):
    plans = three_arms(epochs=2)
    records = run_plans(plans, few_digits(), tmp_path, command="", watch=lambda plan, point: None)
    for plan, record in zip(plans, records, strict=True):
        alone = carry_out(plan)
        assert untimed(list(record.points)) == untimed(alone.points)
        assert record.end["meters"]["batches"] == alone.points[-1].updates
        assert record.header.config == plan.description()


def test_an_again_that_stops_in_the_middle_loses_no_finished_record(compare):
    plans = three_arms()
    compare(plans)
    old = {name: (compare.folder / name).read_bytes() for name in compare.files()}
    compare.fails = {("traditional", 0, 1): RuntimeError("broken")}
    with pytest.raises(RuntimeError):
        compare(plans, replace=True)
    for name, content in old.items():
        assert (compare.folder / f"{name}.replaced").read_bytes() == content


def test_what_cannot_be_built_leaves_no_record_behind(tmp_path):
    plans = three_arms(model="no_such_net")
    with pytest.raises(sb.ConfigurationError, match="'no_such_net'"):
        run_plans(plans, few_digits(), tmp_path, command="", watch=lambda plan, point: None)
    assert not list(tmp_path.iterdir())
