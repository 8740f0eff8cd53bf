"""A second process reads what was meant for it, says what went wrong, and never stays behind."""

import copy
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from fixture_doors import fresh_net, same_tensors
from fixture_pipelined import BATCH, BATCHES, InLine, begin, counting, of, processes, step
from torch import nn

import selective_backprop as sb
from selective_backprop._batches.losses import ExampleLosses
from selective_backprop.experimental._pipelined.process_backend import SecondProcess


@pytest.mark.parametrize(("every", "ahead"), [(1, 20), (20, 1)])
def test_neither_batches_nor_weights_are_written_over_before_they_were_read(
    every, ahead, monkeypatch
):
    def go_on(process: SecondProcess, answer: Any) -> Any:
        os.kill(number, signal.SIGCONT)
        return wait_for(process, answer)

    wait_for = SecondProcess.wait_for
    model, other = fresh_net(), fresh_net()
    before = processes()
    running = begin(
        sb.experimental.Pipelined(sb.scorers.Forward(), every, ahead=ahead, check=None), model
    )
    inline = InLine(lambda: begin(sb.scorers.Forward(), copy.deepcopy(other)), every)
    assert running.score(BATCH, None).tolist() == inline.score(BATCH, None).tolist()
    (number,) = processes() - before
    os.kill(number, signal.SIGSTOP)  # until somebody waits for it
    monkeypatch.setattr(SecondProcess, "wait_for", go_on)
    found, expected = [], []
    for seed, batch in enumerate(BATCHES):
        for each in (model, other):
            torch.manual_seed(seed)
            step(each)
        found.append(running.begin(batch, None))
        expected.append(inline.score(batch, None).tolist())
    assert [wait().tolist() for wait in found] == expected


def test_modes_of_the_model_s_parts_are_sent_along():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 4))
    scorer = sb.scorers.Forward(training=True)  # which scores in the modes that the model is in
    running = begin(sb.experimental.Pipelined(scorer, 1, check=None), model)
    exact = begin(scorer, model)
    found = []
    for frozen in (False, True, False):
        model[0].train(not frozen)
        found.append(running.score(BATCH, None))
        assert torch.equal(found[-1], exact.score(BATCH, None))
    assert not torch.equal(found[0], found[1])


def test_a_model_whose_memory_is_shared_is_not_written_to():
    model = fresh_net().share_memory()
    before = processes()
    running = begin(sb.experimental.Pipelined(sb.scorers.Forward(), 1, check=None), model)
    running.score(BATCH, None)
    (process,) = processes() - before
    os.kill(process, signal.SIGSTOP)
    wait = running.begin(BATCH, None)
    step(model)
    state = copy.deepcopy(model.state_dict())
    os.kill(process, signal.SIGCONT)
    wait()
    assert same_tensors(model.state_dict(), state)


def test_what_the_user_has_stays_where_it_is():
    model = fresh_net()
    batch = tuple(column.clone() for column in BATCH)
    running = begin(sb.experimental.Pipelined(sb.scorers.Forward(), 1, check=None), model)
    running.score(batch, torch.arange(16))
    running.load_state_dict(running.state_dict())
    running.score(batch, torch.arange(16))
    assert not any(tensor.is_shared() for tensor in (*batch, *model.state_dict().values()))
    assert all(map(torch.equal, batch, BATCH))


def test_batches_of_any_size_fit():
    running = counting(ahead=1)
    sizes = [3, 1, 0, 5, 500, 2, 5000, 5001, 1]
    begun = [running.begin(of(rows), None) for rows in sizes]
    for count, (rows, wait) in enumerate(zip(sizes, begun, strict=True), 1):
        assert wait().tolist() == [count] * rows
    assert running.score(of(2, "a" * 100_000), None).tolist() == [len(sizes) + 1] * 2


def test_batches_that_nobody_waits_for_are_let_go():
    running = counting(ahead=2)
    for _ in range(20):
        running.begin(of(3), None)
    assert running.score(of(3), None).tolist() == [21] * 3
    assert len(running.inner._backend._process._asked) == 0


def test_an_error_is_raised_where_its_scores_are_waited_for_and_the_next_batch_is_scored():
    running = counting()
    wrong, right = running.begin(of(3, "wrong"), None), running.begin(of(3), None)
    with pytest.raises(ArithmeticError, match="that is wrong") as caught:
        wrong()
    assert "process that scores" in caught.value.__notes__[0]
    assert "fixture_pipelined.py" in caught.value.__notes__[0]
    assert right().tolist() == [1] * 3
    with pytest.raises(sb.LoaderError, match="Unpicklable: that is strange"):
        running.score(of(3, "strange"), None)


def test_a_process_that_is_killed_is_told_of():
    before = processes()
    running = counting()
    running.score(of(3), None)
    (process,) = processes() - before
    os.kill(process, signal.SIGSTOP)
    wait = running.begin(of(3), None)
    os.kill(process, signal.SIGKILL)
    for attempt in (wait, wait, lambda: running.begin(of(3), None)):
        with pytest.raises(sb.LoaderError, match=r"SIGKILL.*loader anew"):
            attempt()


def exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_process_goes_with_the_scorer_and_an_interrupt_is_not_its_business():
    gc.collect()  # an error that an earlier test raised may still hold its process
    before = processes()
    running = counting()
    running.score(of(3), None)
    (process,) = processes() - before
    os.kill(process, signal.SIGINT)
    wait = running.begin(of(3), None)
    assert wait().tolist() == [2] * 3
    del running
    assert exists(process)  # somebody could still wait
    os.kill(process, signal.SIGSTOP)  # however busy it is
    del wait
    assert not exists(process)
    assert processes() == before


def test_it_goes_with_a_parent_that_is_killed():
    def live_shortly() -> None:
        running = counting()
        running.begin(of(1000), None)
        os.kill(os.getpid(), signal.SIGKILL)

    end, other = os.pipe()
    parent = multiprocessing.get_context("fork").Process(target=live_shortly)
    parent.start()
    parent.join()
    os.close(other)
    assert os.read(end, 1) == b""  # which comes when nobody holds the other end any more
    os.close(end)


def test_it_goes_with_an_interpreter_that_ends():
    script = """
        import torch, selective_backprop as sb
        scorer = sb.experimental.Pipelined(sb.scorers.Forward(), 2, check=None)
        losses = lambda model, batch: model(batch)[:, 0]
        running = scorer.start(sb.scorers.Context(8, 16, torch.nn.Linear(2, 2), losses, rate=1 / 2))
        wait = running.begin(torch.ones(3, 2), None)
        print(len(wait()), flush=True)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        timeout=60,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (found.stdout, found.stderr, found.returncode) == ("3\n", "", 0)


@pytest.fixture
def spawned(monkeypatch):
    monkeypatch.setattr(torch.multiprocessing, "get_start_method", lambda allow_none: "spawn")


def test_a_process_that_is_spawned_scores_alike(spawned):
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    losses = ExampleLosses(nn.CrossEntropyLoss(weight=torch.rand(3)))
    scorer = sb.experimental.Pipelined(sb.scorers.Forward(), 2, check=None)
    running = begin(scorer, model, losses)
    inline = InLine(lambda: begin(sb.scorers.Forward(), copy.deepcopy(model), losses), 2)
    for _ in range(3):
        torch.testing.assert_close(running.score(BATCH, None), inline.score(BATCH, None))
        step(model)
    assert not any(parameter.is_shared() for parameter in model.parameters())
    assert not losses.loss_fn.weight.is_shared()


def test_a_model_that_cannot_be_sent_is_refused(spawned):
    scorer = sb.experimental.Pipelined(sb.scorers.Forward(), 2)
    with pytest.raises(sb.ConfigurationError, match=r'not forked.*set_start_method\("fork"\)'):
        begin(scorer, nn.Linear(2, 3), lambda model, batch: 1).score(BATCH, None)


def test_a_batch_that_cannot_be_sent_is_refused():
    with pytest.raises(sb.BatchError, match="cannot be sent"):
        counting().begin((torch.ones(3), lambda: 1), None)
