"""Whatever goes wrong on one rank, none waits for ever, and each says what happened."""

import re

import fixture_rank_models
import fixture_rank_tasks as tasks
import pytest
from fixture_ranks import started_ranks

import selective_backprop as sb


@pytest.fixture
def pair(processes):
    return processes.form(2)


@pytest.mark.parametrize(("batches", "overlap"), [(0, False), (2, True)])
def test_a_rank_that_fails_says_why_and_the_others_that_it_did(pair, batches, overlap):
    other, failing = pair.run(tasks.fail_while_scoring, 1, batches, overlap)
    assert failing.kind == "LossError"
    assert "not finite" in failing.message
    assert other.kind == "LoaderError"
    assert "rank 1 of 2" in other.message


def test_ranks_that_break_off_after_different_batches_are_told_apart(pair):
    for answer in pair.run(tasks.break_off_alone, 0):
        assert answer.kind == "LoaderError"
        assert re.search("epoch 1", answer.message)
        assert re.search("exchange 2 .*epoch 0", answer.message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trains": (4, 5)}, "rank 1 .*batch_size=5, rank 0 .*batch_size=4"),
        ({"leftovers": ("carry", "drop")}, "leftovers=drop, rank 0 .*leftovers=carry"),
        (
            {"selector": (sb.selectors.Percentile(1.0), sb.selectors.Percentile(2.0))},
            r"beta=2.0.*beta=1.0",
        ),
    ],
)
def test_ranks_that_were_built_differently_are_refused_with_the_difference(pair, options, message):
    for answer in pair.run(tasks.build_differently, options):
        assert answer.kind == "ConfigurationError"
        assert re.search(message, answer.message)
        assert "on all ranks" in answer.message


def test_ranks_with_schedules_of_different_lengths_are_refused(pair):
    for answer in pair.run(fixture_rank_models.schedule_differently):
        assert answer.kind == "ConfigurationError"
        assert re.search("rank 1 .*steps of the schedule=10, rank 0 .*=8; ", answer.message)


def test_ranks_at_different_epochs_are_refused(pair):
    for answer in pair.run(tasks.number_differently):
        assert answer.kind == "ConfigurationError"
        assert re.search(r"rank 1 .*set_epoch\(\)=1, rank 0 .*=0", answer.message)


def test_the_state_of_another_rank_is_refused(pair):
    own, other = pair.run(tasks.load_the_other_rank_s, 0)
    assert own is None
    assert other.kind == "ConfigurationError"
    assert re.search("rank=0.*rank=1", other.message)


def test_a_killed_rank_ends_the_others_with_a_message(tmp_path):
    with started_ranks(2, tmp_path) as pair:
        pair.form(2)
        pair.send(tasks.die, [(1, 3)] * 2)
        answer = pair.receive(0)
        assert answer.kind == "LoaderError"
        assert re.search("rank 0.* exchange 4 of epoch 0.* rank 1.*died", answer.message)
        pair.processes[1].join()
        assert pair.processes[1].exitcode == -9


def test_a_rank_that_never_comes_is_waited_for_until_the_group_s_timeout(processes):
    waiting, _ = processes.form(2, timeout=1.0).run(tasks.stay_away, 1)
    assert waiting.kind == "LoaderError"
    assert re.search(r"rank 0.* [1-9]\.\d s .*rank 1.* timeout=", waiting.message)
    assert "init_process_group" in waiting.message
