"""The first batch of a training is summed up in one line, once, and not when asked to be quiet."""

import re

import pytest
import torch
from fixture_doors import fixture_data
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb
from selective_backprop._loader.summary import count_cost

LOSS = nn.CrossEntropyLoss()


class Stream(IterableDataset):
    def __iter__(self):
        yield from fixture_data(60)


def door(strategy: sb.Strategy, *, data=None, model=None, **options) -> sb.SelectiveLoader:
    torch.manual_seed(0)
    loader = DataLoader(fixture_data(60) if data is None else data, batch_size=4)
    return sb.SelectiveLoader(loader, model or nn.Linear(2, 2), LOSS, strategy, **options)


def line(capsys: pytest.CaptureFixture[str], strategy: sb.Strategy, **options) -> str:
    """What is said of a first batch."""
    batches = iter(door(strategy, **options))
    said = capsys.readouterr()
    assert said == ("", "")  # nothing before it is there
    next(batches)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.rstrip("\n")


def test_it_says_what_is_selected_what_was_checked_what_waits_and_what_an_epoch_costs(capsys):
    # Rows of two floats and a class number take 16 bytes, and 12 of them are a window.
    said = line(capsys, sb.selective_backprop(1 / 3))
    assert re.match(
        "selective-backprop: .*4 of 12.*0.33.*epoch 2.* 192 B.* 50%.* 0.67 of plain", said
    )
    assert ("example ok" in said, "indices ok" in said) == (True, True)


def test_buffers_too_large_to_be_saved_before_every_pass_are_named(capsys):
    model = nn.Linear(2, 2)
    for name in ("small", "table", "mask", "other"):
        model.register_buffer(name, torch.zeros(2**18 + (name != "small")))
    said = line(capsys, sb.selective_backprop(1 / 3), model=model)
    assert re.search(r"1.05 MB .table, mask .*1 more", said)
    assert "buffers" not in line(capsys, sb.recorded_sb(1 / 3), model=model, with_selection=True)


def test_what_is_remembered_is_counted_with_the_passes_that_it_saves(capsys):
    said = line(capsys, sb.stale_sb(1 / 3, epochs=3))
    assert re.search("stale-sb, 4 of 12.*ledger 480 B.* 25%.* 0.44 of plain", said)


@pytest.mark.parametrize(
    ("strategy", "options", "words"),
    [
        (sb.traditional(), {}, "traditional, all"),
        (sb.random_backprop(1 / 2), {}, "4 of 8 .*0.50.*indices ok"),
        (
            sb.selective_backprop(1 / 2, draw="bernoulli", warmup_epochs=0),
            *({}, "about 0.50 .* 4 per step.*example ok"),
        ),
        (sb.recorded_sb(1 / 3), {"with_selection": True}, "losses .*you record"),
        (sb.easy_skip(), {"with_selection": True, "epochs": 8}, "losses leave, 15 with"),
        (sb.kath18(), {"with_selection": True}, "0.33.* gate opens.*outputs that you record"),
        (
            sb.kath18(measure="loss"),
            *({"with_selection": True}, "losses that you record, or .*scored.*example ok"),
        ),
        (sb.kath18(measure="loss", bias=0.0), {}, "judges by batches .*scored.*example ok"),
        (
            sb.selective_backprop(1 / 3, scorer=sb.scorers.Int8(sb.scorers.Forward())),
            {"model": nn.Sequential(nn.Linear(2, 2))},
            "cheap scores find 100% .*192 B.*scoring ≤ 50%",
        ),
        (sb.selective_backprop(1 / 3), {"data": Stream()}, "no indices"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_it_says_what_is_particular(strategy, options, words, capsys):
    assert re.search(words, line(capsys, strategy, **options))


@pytest.mark.parametrize(("measure", "what"), [("loss", "losses"), ("error-norm", "outputs")])
def test_it_says_that_a_gate_judges_at_no_pass_where_the_loop_takes_the_loaders_loss(
    measure, what, capsys
):
    loader = door(sb.kath18(measure=measure))
    assert loader.loss_fn is not None
    next(iter(loader))
    assert f"{what} of your loop" in capsys.readouterr().err


def test_it_is_said_once_and_not_of_a_training_that_is_resumed(capsys):
    first = door(sb.random_backprop(1 / 3))
    for _ in range(2):
        list(first)
    assert capsys.readouterr().err.count("selective-backprop: ") == 1
    resumed = door(sb.random_backprop(1 / 3))
    resumed.load_state_dict(first.state_dict())
    list(resumed)
    assert capsys.readouterr().err == ""


def test_quiet_says_nothing(capsys):
    list(door(sb.selective_backprop(1 / 3), quiet=True))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("strategy", "scoring", "epoch"),
    [
        (sb.traditional(), 0.0, 1.0),
        (sb.random_backprop(1 / 4), 0.0, 1 / 4),
        (sb.random_scored(1 / 2), 1.0, 1 / 3 + 1 / 2),
        (sb.predicted_sb(1 / 3, epochs=2), 1 / 2, 1 / 6 + 1 / 3),
        (sb.kakurenbo(share=0.25), 0.25, 0.25 / 3 + 0.75),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_costs_are_counted_in_forwards_a_backward_as_two(strategy, scoring, epoch):
    found, total = count_cost(strategy)
    assert found == pytest.approx(scoring)
    assert total / 3 == pytest.approx(epoch)  # in epochs of traditional training
