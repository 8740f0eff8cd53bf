"""When a run is saved, what that costs it, and what becomes of it where it cannot be."""

import errno
import inspect
import math
import os
import time

import pytest
from fixture_lab import Clock, few_digits, fixture_plan, same_runs, untimed
from fixture_partial_runs import open_run, run_part

import selective_backprop as sb
from selective_backprop_lab.data.loader import ImageDataset
from selective_backprop_lab.records import writer
from selective_backprop_lab.records.schema import read_runs
from selective_backprop_lab.training.resumable_run import Checkpoints, ResumableRun
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.stopping import Stop

PLAN = fixture_plan(epochs=6, evaluations=2)


class Ticking:
    """A clock that passes when updates and checkpoints take their time."""

    def __init__(self, monkeypatch, *, update: float, save: float) -> None:
        self.now, self.saved = 0.0, []
        updated = TrainingRun._step

        def step(run, *batch):
            updated(run, *batch)
            self.now += update

        def write(checkpoints, state):
            self.saved.append(state["elapsed"])
            self.now += save

        monkeypatch.setattr(TrainingRun, "_step", step)
        monkeypatch.setattr(Checkpoints, "save", write)

    def __call__(self) -> float:
        return self.now


# 4 updates in each of two epochs, and 2 in each of the four that follow: 16
@pytest.mark.parametrize(
    ("every", "update", "save", "moments"),
    [
        (None, 10.0, 0.0, [30.0, 60.0, 90.0, 120.0, 150.0]),
        (None, 10.0, 0.5, [30.0, 80.0, 130.0]),
        (None, 1.0, 0.0, []),
        (None, 100.0, 10.0, [100.0, 1100.0]),
        (2.0, 1.0, 50.0, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]),
        (math.inf, 100.0, 0.0, []),
    ],
)
def test_checkpoints_are_so_far_apart_that_they_take_a_hundredth_of_the_time(
    tmp_path, monkeypatch, every, update, save, moments
):
    clock = Ticking(monkeypatch, update=update, save=save)
    run_part(PLAN, few_digits(), tmp_path, every=every, clock=clock)
    assert clock.saved == moments


def test_what_a_checkpoint_takes_is_not_on_the_run_s_bill(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    saved = []

    def write(checkpoints, state):
        saved.append(state)
        clock.now += 1000.0

    monkeypatch.setattr(Checkpoints, "save", write)
    run = run_part(PLAN, few_digits(), tmp_path, every=1e-9)
    assert len(saved) == 16
    assert run.meter.seconds == 0.0


def test_time_at_rest_is_none_of_the_run_s(tmp_path, monkeypatch):
    clock = Ticking(monkeypatch, update=1.0, save=0.0)
    sitting = open_run(PLAN, few_digits(), tmp_path, clock=clock)
    for _ in range(2):
        clock.now += 500.0
        sitting.advance(Stop())
    (record,) = read_runs(tmp_path)
    assert (record.end["elapsed"], record.end["sittings"]) == (16.0, 1)
    assert clock.saved == []


def test_sittings_add_up(tmp_path):
    whole = run_part(PLAN, few_digits(), tmp_path / "whole")
    first = run_part(PLAN, few_digits(), tmp_path / "parts", updates=5)
    second = run_part(PLAN, few_digits(), tmp_path / "parts", updates=9)
    assert (first.meter.updates, second.meter.updates) == (5, 9)
    last = run_part(PLAN, few_digits(), tmp_path / "parts")
    assert same_runs(last, whole)
    assert last.meter.seconds > second.meter.seconds > first.meter.seconds
    (record,) = read_runs(tmp_path / "parts")
    assert record.end["sittings"] == 3
    assert record.end["elapsed"] > record.points[-1].seconds


def test_the_record_goes_back_to_the_checkpoint_and_keeps_its_header(tmp_path):
    run_part(PLAN, few_digits(), tmp_path, updates=5)
    sitting = open_run(PLAN, few_digits(), tmp_path, every=math.inf)
    sitting.advance(Stop())
    sitting.close()
    (before,) = read_runs(tmp_path)
    assert len(before.points) == 1
    open_run(PLAN, few_digits(), tmp_path).close()
    (after,) = read_runs(tmp_path)
    assert (after.points, after.header) == ((), before.header)


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_where_the_disk_is_full_for_a_checkpoint_the_run_goes_on(tmp_path, monkeypatch):
    expected = run_part(PLAN, few_digits(), tmp_path / "whole")
    monkeypatch.setattr("selective_backprop_lab.training.resumable_run.replacing", full)
    with pytest.warns(sb.SelectionWarning, match="No space left on device. The run goes on"):
        run = run_part(PLAN, few_digits(), tmp_path / "full", every=1e-9)
    assert same_runs(run, expected)


def test_where_the_disk_is_full_for_the_record_what_was_recorded_stays_and_goes_on(
    tmp_path, monkeypatch
):
    expected = run_part(PLAN, few_digits(), tmp_path / "whole")
    sitting = open_run(PLAN, few_digits(), tmp_path / "full", every=1e-9)
    sitting.advance(Stop())
    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "fsync", full)
        with (
            pytest.warns(sb.SelectionWarning, match="The run goes on"),
            pytest.raises(
                sb.RecordError,
                match=r"jsonl cannot be written: No space.*another folder.*run the same",
            ),
        ):
            sitting.advance(Stop())
    sitting.close()
    (kept,) = read_runs(tmp_path / "full")
    assert len(kept.points) == 1
    run = run_part(PLAN, few_digits(), tmp_path / "full")
    assert same_runs(run, expected)
    (record,) = read_runs(tmp_path / "full")
    assert untimed(record.points[:1]) == untimed(kept.points)


def test_a_run_that_begins_anew_never_goes_on_from_where_an_earlier_one_stood(tmp_path):
    run_part(PLAN, few_digits(), tmp_path, updates=5)
    open_run(PLAN, few_digits(), tmp_path, resume=False).close()  # as a kill leaves it
    run = run_part(PLAN, few_digits(), tmp_path)
    (record,) = read_runs(tmp_path)
    assert record.end["sittings"] == 1
    assert run.meter.updates == record.points[-1].updates


def test_a_finished_record_is_left_alone_where_a_kill_left_the_checkpoint(tmp_path):
    sitting = open_run(PLAN, few_digits(), tmp_path, every=math.inf)
    sitting.advance(Stop())
    sitting.save()
    left = sitting.checkpoints.path.read_bytes()
    sitting.advance(Stop())
    sitting.checkpoints.path.write_bytes(left)
    with pytest.raises(sb.RecordError, match="finished"):
        open_run(PLAN, few_digits(), tmp_path)
    (record,) = read_runs(tmp_path)
    assert record.finished


@pytest.mark.parametrize("part", ["loader", "model", "optimizer", "meter", "points"])
def test_a_checkpoint_that_holds_no_state_of_the_run_is_refused_by_its_name(tmp_path, part):
    sitting = open_run(PLAN, few_digits(), tmp_path, every=math.inf)
    sitting.advance(Stop())
    sitting.save()
    sitting.close()
    path, state = sitting.checkpoints.load()
    sitting.checkpoints.save(state | {"run": state["run"] | {part: {"damaged": 1}}})
    with pytest.raises(
        sb.RecordError, match=rf"(?s){path.name} .*'{PLAN.recipe.model}'.*begin anew"
    ):
        open_run(PLAN, few_digits(), tmp_path)


def test_a_data_set_that_raises_costs_nothing_that_was_kept(tmp_path, monkeypatch):
    expected = run_part(PLAN, few_digits(), tmp_path / "whole")
    getitems = ImageDataset.__getitems__
    reads = iter(range(1000))

    def broken(dataset, indices):
        if dataset.augmentation is not None and next(reads) == 9:
            raise OSError("the disk is gone")
        return getitems(dataset, indices)

    with monkeypatch.context() as patch:
        patch.setattr(ImageDataset, "__getitems__", broken)
        with pytest.raises(OSError, match="gone") as raised:
            run_part(PLAN, few_digits(), tmp_path / "broken", every=1e-9)
    assert raised.value.__notes__[0].startswith("raised while examples [")
    assert same_runs(run_part(PLAN, few_digits(), tmp_path / "broken"), expected)


def test_a_clock_that_jumps_changes_no_time_that_is_kept(tmp_path, monkeypatch):
    jumps = iter(range(10**9))
    now = time.time

    def jumping():
        return now() + 1e8 * (-1) ** next(jumps)

    monkeypatch.setattr(time, "time", jumping)
    run = run_part(fixture_plan(seconds=0.2, evaluations=2), few_digits(), tmp_path, every=1e-9)
    (record,) = read_runs(tmp_path)
    seconds = [point.seconds for point in record.points]
    assert 0.0 < seconds[0] <= seconds[1] < 60.0
    assert record.end["elapsed"] < 60.0
    assert run.meter.seconds < 60.0


def test_every_clock_that_times_a_run_never_goes_backwards():
    assert inspect.signature(ResumableRun).parameters["clock"].default is time.monotonic
    assert time.get_clock_info("perf_counter").monotonic
    assert os.name == "nt" or time.get_clock_info("process_time").monotonic
