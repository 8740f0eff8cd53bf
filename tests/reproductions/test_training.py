"""Runs are trained once, one or several at a time, and go on where they were interrupted."""

from dataclasses import replace

import pytest
from fixture_lab import untimed
from fixture_papers import Screen, fixture_order, fixture_scale, fixture_setting

import selective_backprop as sb
from reproductions.papers import find_figures
from reproductions.training import default_jobs, file_of, is_done, train, train_missing
from selective_backprop.lab.records.schema import read_run

SCALE = fixture_scale(fixture_setting(model="tiny_cnn"))


@pytest.fixture
def order(tmp_path):
    return fixture_order(tmp_path, SCALE, seeds=1)


@pytest.fixture
def plans(order):
    return order.jobs_of(find_figures(["fig-1"], SCALE))


def run(wanted, order, folder=None, *, jobs=1, watch=lambda *_: None):
    store = order.store(folder or order.folder)
    train(wanted, store, jobs=jobs, threads=1, watch=watch)


def test_each_evaluation_is_told_of(order, plans):
    told = []
    run(plans[:1], order, watch=lambda plan, point: told.append((plan, point.progress)))
    evaluations = plans[0].evaluations
    assert told == [(plans[0], (i + 1) / evaluations) for i in range(evaluations)]


def test_an_interruption_costs_the_run_that_was_under_way_and_no_other(order, plans):
    told = []

    def watch(plan, point):
        told.append(plan)
        if len(told) == plans[0].evaluations + 1:  # one evaluation into the second
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plans, order, watch=watch)
    assert [is_done(plan, order.folder) for plan in plans] == [True, False, False]
    first, second = (file_of(plan, order.folder) for plan in plans[:2])
    assert len(read_run(second).points) == 1
    before, screen = first.read_bytes(), Screen()
    train_missing(screen, plans, order, order.folder)
    assert all(is_done(plan, order.folder) for plan in plans)
    assert first.read_bytes() == before
    assert "3 runs: 1 on record, 2 to do, about " in screen.text


def test_a_half_written_record_is_repeated_and_a_damaged_one_told_of(order, plans):
    run(plans[:1], order)
    path = file_of(plans[0], order.folder)
    whole = read_run(path)
    path.write_bytes(path.read_bytes()[:-9])
    assert not is_done(plans[0], order.folder)
    run(plans[:1], order)
    assert untimed(list(read_run(path).points)) == untimed(list(whole.points))
    path.write_bytes(b"no record\n" + path.read_bytes())
    with pytest.raises(sb.RecordError, match=f"{path.name}.*move that file away"):
        is_done(plans[0], order.folder)


def test_several_processes_record_what_one_does(order, plans, tmp_path):
    told = []
    run(plans[1:], order, jobs=2, watch=lambda plan, point: told.append(plan))
    assert [told.count(plan) for plan in plans[1:]] == [plan.evaluations for plan in plans[1:]]
    run(plans[1:], order, tmp_path / "alone")
    for plan in plans[1:]:
        both = [read_run(file_of(plan, each)) for each in (order.folder, tmp_path / "alone")]
        assert untimed(list(both[0].points)) == untimed(list(both[1].points))


def test_processes_that_are_told_to_end_keep_what_they_have_begun(tmp_path):
    scale = fixture_scale(fixture_setting(model="tiny_cnn", epochs=20, evaluations=20))
    order = fixture_order(tmp_path, scale, seeds=1)

    def end(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(order.jobs_of(find_figures(["fig-1"], scale)), order, jobs=2, watch=end)
    assert list(order.folder.glob("*.checkpoint"))


def test_what_cannot_be_trained_says_why(order, plans):
    bad = replace(plans[0], recipe=replace(plans[0].recipe, model="no_such_net"))
    with pytest.raises(sb.ConfigurationError, match="'no_such_net'"):
        run([bad], order)


def test_threads_leave_room_for_fewer_runs_and_a_gpu_for_one(monkeypatch):
    monkeypatch.setattr("reproductions.training.hardware", lambda: {"cores": 8})
    assert [default_jobs("cpu", threads) for threads in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert default_jobs("cuda", 1) == 1
