"""When a run is saved, what that costs it, and what becomes of it where it cannot be."""

import errno
import math
from importlib.util import find_spec

import pytest
from fixture_lab import (
    MeteredClock,
    few_digits,
    fixture_plan,
    open_session,
    same_runs,
    train_session,
    untimed,
)
from fixture_loaders import Clock

import selective_backprop as sb
from selective_backprop_lab.records import writer
from selective_backprop_lab.records.frame import frame
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.records.writer import TakenError
from selective_backprop_lab.training import resumable_run
from selective_backprop_lab.training.process import Stop
from selective_backprop_lab.training.resumable_run import Checkpoints
from selective_backprop_lab.training.run import TrainingRun

PLAN = fixture_plan(epochs=6, evaluations=2)
WITH_LOCKS = find_spec("fcntl") is not None


class Ticking(Clock):
    """A clock that passes when updates and checkpoints take their time."""

    def __init__(self, monkeypatch, *, update: float, save: float) -> None:
        super().__init__()
        self.saved = []
        updated = TrainingRun._step

        def step(run, *batch):
            updated(run, *batch)
            self.now += update

        def write(checkpoints, state):
            self.saved.append(state["elapsed"])
            self.now += save

        monkeypatch.setattr(TrainingRun, "_step", step)
        monkeypatch.setattr(Checkpoints, "save", write)


# 4 updates in each of two epochs, and 2 in each of the four that follow: 16
@pytest.mark.parametrize(
    ("every", "update", "save", "moments"),
    [
        (None, 10.0, 0.5, [30.0, 80.0, 130.0]),
        (None, 1.0, 0.0, []),
        (None, 100.0, 10.0, [100.0, 1100.0]),
        (2.0, 1.0, 50.0, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]),
    ],
)
def test_checkpoints_are_so_far_apart_that_they_take_a_hundredth_of_the_time(
    tmp_path, monkeypatch, every, update, save, moments
):
    clock = Ticking(monkeypatch, update=update, save=save)
    train_session(PLAN, few_digits(), tmp_path, every=every, clock=clock)
    assert clock.saved == moments


def test_time_at_rest_is_none_of_the_run_s(tmp_path, monkeypatch):
    clock = Ticking(monkeypatch, update=1.0, save=0.0)
    session = open_session(PLAN, few_digits(), tmp_path, clock=clock)
    for _ in range(2):
        clock.now += 500.0
        session.advance(Stop())
    (record,) = read_runs(tmp_path)
    assert (record.end["elapsed"], len(record.end["machines"])) == (16.0, 1)
    assert clock.saved == []


def test_sessions_add_up(tmp_path):
    whole = train_session(PLAN, few_digits(), tmp_path / "whole")
    first = train_session(PLAN, few_digits(), tmp_path / "parts", updates=5)
    second = train_session(PLAN, few_digits(), tmp_path / "parts", updates=9)
    assert (first.meter.updates, second.meter.updates) == (5, 9)
    last = train_session(PLAN, few_digits(), tmp_path / "parts")
    assert same_runs(last, whole)
    assert last.meter.seconds > second.meter.seconds > first.meter.seconds
    (record,) = read_runs(tmp_path / "parts")
    assert len(record.end["machines"]) == 3
    assert len({*record.end["machines"]}) == 1
    assert record.end["shared_gpu"] is False
    assert record.end["elapsed"] > record.points[-1].seconds


def test_the_end_names_each_machine_and_whether_a_gpu_was_shared(tmp_path, monkeypatch):
    for gpu, updates, shared in (("A", 5, True), ("B", None, False)):
        monkeypatch.setattr(resumable_run, "hardware", lambda gpu=gpu: {"gpu": gpu, "cores": 2})
        train_session(PLAN, few_digits(), tmp_path, updates=updates, shared_gpu=shared)
    (record,) = read_runs(tmp_path)
    assert record.end["machines"] == ["A, 2 cores", "B, 2 cores"]
    assert record.end["shared_gpu"] is True
    assert frame(tmp_path).seconds.isna().all()


@pytest.mark.skipif(not WITH_LOCKS, reason="this system has no locks")
@pytest.mark.parametrize("how", [{}, {"resume": False}, {"replace": True}])
def test_a_run_that_is_being_recorded_is_left_to_the_process_that_records_it(tmp_path, how):
    session = open_session(PLAN, few_digits(), tmp_path, every=math.inf)
    session.advance(Stop())
    session.save()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(TakenError, match="another process"):
        open_session(PLAN, few_digits(), tmp_path, **how)
    other = fixture_plan("low-k", epochs=6, evaluations=2)
    train_session(other, few_digits(), tmp_path)
    assert before.items() <= {path.name: path.read_bytes() for path in tmp_path.iterdir()}.items()
    session.close()
    train_session(PLAN, few_digits(), tmp_path)
    assert len(read_runs(tmp_path)) == 2


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_where_the_disk_is_full_for_a_checkpoint_the_run_goes_on(tmp_path, monkeypatch):
    expected = train_session(PLAN, few_digits(), tmp_path / "whole")
    monkeypatch.setattr("selective_backprop_lab.training.resumable_run.replacing", full)
    with pytest.warns(sb.SelectionWarning, match="No space left on device. The run goes on"):
        run = train_session(PLAN, few_digits(), tmp_path / "full", every=1e-9)
    assert same_runs(run, expected)


def test_where_the_disk_is_full_a_record_stays_and_goes_on(tmp_path, monkeypatch):
    expected = train_session(PLAN, few_digits(), tmp_path / "whole")
    session = open_session(PLAN, few_digits(), tmp_path / "full", every=1e-9)
    session.advance(Stop())
    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "fsync", full)
        said = r"jsonl cannot be written: No space.*another folder.*repeat the command"
        with pytest.warns(match="The run goes on"), pytest.raises(sb.RecordError, match=said):
            session.advance(Stop())
    session.close()
    (kept,) = read_runs(tmp_path / "full")
    assert len(kept.points) == 1
    run = train_session(PLAN, few_digits(), tmp_path / "full")
    assert same_runs(run, expected)
    (record,) = read_runs(tmp_path / "full")
    assert untimed(record.points[:1]) == untimed(kept.points)


def test_a_run_that_begins_anew_never_goes_on_from_where_an_earlier_one_stood(tmp_path):
    train_session(PLAN, few_digits(), tmp_path, updates=5)
    open_session(PLAN, few_digits(), tmp_path, resume=False).close()  # as a kill leaves it
    run = train_session(PLAN, few_digits(), tmp_path)
    (record,) = read_runs(tmp_path)
    assert len(record.end["machines"]) == 1
    assert run.meter.updates == record.points[-1].updates


def test_a_finished_record_is_left_alone_where_a_kill_left_the_checkpoint(tmp_path):
    session = open_session(PLAN, few_digits(), tmp_path, every=math.inf)
    session.advance(Stop())
    session.save()
    left = session.checkpoints.path.read_bytes()
    session.advance(Stop())
    session.checkpoints.path.write_bytes(left)
    with pytest.raises(sb.RecordError, match="finished"):
        open_session(PLAN, few_digits(), tmp_path)
    (record,) = read_runs(tmp_path)
    assert record.finished


@pytest.mark.parametrize("part", ["loader", "model", "meter"])
def test_a_checkpoint_that_holds_no_state_of_the_run_is_refused_by_its_name(tmp_path, part):
    session = open_session(PLAN, few_digits(), tmp_path, every=math.inf)
    session.advance(Stop())
    session.save()
    session.close()
    path, state = session.checkpoints.load()
    session.checkpoints.save(state | {"run": state["run"] | {part: {"damaged": 1}}})
    with pytest.raises(
        sb.RecordError, match=rf"(?s){path.name} .*'{PLAN.recipe.model}'.*start again"
    ):
        open_session(PLAN, few_digits(), tmp_path)


def test_what_a_checkpoint_takes_is_not_on_the_run_s_bill(tmp_path, monkeypatch):
    clock = MeteredClock(monkeypatch)
    monkeypatch.setattr(Checkpoints, "save", clock.tick)
    run = train_session(PLAN, few_digits(), tmp_path, every=1e-9)
    assert (clock.now, run.meter.seconds) == (16.0, 0.0)
