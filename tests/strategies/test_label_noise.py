"""The share of wrong labels that predictions tell, against a plain twin and known shares."""

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop.scorers import WrongShare
from selective_backprop.strategies._auto.wrong_labels import (
    BLOCKS,
    IMPROBABLE,
    LEAST_ROWS,
    LabelNoise,
)

CLASSES = 10


def ended(noise):
    noise.totals = noise.own()
    return noise.found


def drawn(rows, wrong, seed=0, smoothing=0.0):
    """Return logits, smoothed where asked, and labels: drawn by their probabilities, or wrong."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3.0 * torch.randn(rows, CLASSES, generator=generator)
    p = logits.softmax(1)
    labels = torch.multinomial(p, 1, generator=generator)[:, 0]
    flips = torch.rand(rows, generator=generator) < wrong
    labels[flips] = torch.randint(CLASSES, (int(flips.sum()),), generator=generator)
    return ((1 - smoothing) * p + smoothing / CLASSES).log(), labels


def read(logits, labels, batch=100, smoothing=0.0):
    noise = LabelNoise()
    for some, own in zip(logits.split(batch), labels.split(batch), strict=True):
        noise.observe(some, own, smoothing)
    return noise


def twin(logits, labels):
    """Return what the head of the module says, a row and a class after the other."""
    seen = expected = at_random = 0.0
    for row, label in zip(logits.softmax(1).tolist(), labels.tolist(), strict=True):
        seen += row[label] < IMPROBABLE
        expected += sum(p for p in row if p < IMPROBABLE)
        at_random += sum(p < IMPROBABLE for p in row) / len(row)
    return (seen - expected) / (at_random - expected)


@given(st.integers(0, 999), st.sampled_from([0.1, 0.3, 0.8]))
def test_the_share_is_what_the_rule_says_of_the_second_half(seed, wrong):
    logits, labels = drawn(600, wrong, seed)
    found = ended(read(logits, labels, 20))
    assert found.share == pytest.approx(min(1.0, max(0.0, twin(logits[300:], labels[300:]))))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("wrong", [0.0, 0.05, 0.2, 0.4])
def test_the_share_of_labels_drawn_at_random_lies_in_the_interval(wrong, smoothing):
    inside = 0
    for seed in range(40):
        found = ended(read(*drawn(2000, wrong, seed, smoothing), 80, smoothing))
        inside += abs(found.share - wrong) <= found.half_width
        assert found.half_width < 0.08
    assert inside >= 34  # of 40 intervals of 95 %; fewer come once in 1,000 times
    assert found.is_clear == (wrong > 0)


@pytest.mark.parametrize("batches", [24, 25, BLOCKS, BLOCKS + 1, 5 * BLOCKS + 3])
def test_what_a_young_model_said_in_the_first_half_does_not_count(batches):
    logits, labels = drawn(10 * batches, 0.3)
    first = 10 * (batches // 2 - batches // BLOCKS)  # known to a block
    foolish = torch.cat([logits[:first].flip(1), logits[first:]])
    assert torch.equal(read(logits, labels, 10).own(), read(foolish, labels, 10).own())


@pytest.mark.parametrize(("batches", "seen"), [(23, 12), (100, 50), (10 * BLOCKS, BLOCKS / 2)])
def test_of_a_long_pass_a_bounded_number_of_batches_is_looked_at(batches, seen):
    assert float(read(*drawn(10 * batches, 0.3), 10).own()[0]) == 10 * seen


@pytest.mark.parametrize(("batches", "parts"), [(23, 4), (57, 3), (2 * BLOCKS + 5, 2)])
def test_parts_of_a_batch_count_as_the_batch(batches, parts):
    logits, labels = drawn(40 * batches, 0.3)
    whole, noise = read(logits, labels, 40), LabelNoise()
    for number, (some, own) in enumerate(zip(logits.split(40), labels.split(40), strict=True)):
        for piece, few in zip(some.chunk(parts), own.chunk(parts), strict=True):
            noise.observe(piece, few, batch=number)
    assert noise.own()[:9].tolist() == pytest.approx(whole.own()[:9].tolist())
    short = LabelNoise()
    for number in range(22):  # too few batches, in however many parts
        for _ in range(parts):
            short.observe(logits[:40], labels[:40], batch=number)
    assert ended(short) is None


def sorted_within(labels, parts):
    pieces = torch.arange(len(labels)).chunk(parts)
    return torch.cat([part[labels[part].argsort(stable=True)] for part in pieces])


def in_blocks(labels, length):
    """Return the order in which blocks of one class alternate."""
    blocks = list(labels.argsort(stable=True).split(length))
    return torch.cat([blocks[place] for place in torch.randperm(len(blocks))])


@pytest.mark.parametrize(("batch", "rows"), [(4, 2000), (64, 4000)])
@pytest.mark.parametrize(("classes", "skew"), [(2, 0.0), (10, 0.0), (10, 1.5), (300, 0.0)])
def test_nothing_is_estimated_where_examples_of_one_class_come_together(batch, rows, classes, skew):
    torch.manual_seed(0)
    shares = torch.arange(1, classes + 1) ** -skew
    labels, logits = torch.multinomial(shares, rows, True), torch.randn(rows, classes)
    orders = [sorted_within(labels, parts) for parts in (1, 2, 4, 16)]
    orders += [in_blocks(labels, length) for length in (64, 256)]
    for order in orders if classes < 300 else orders[:3]:
        noise = read(logits, labels[order], batch)
        assert ended(noise) is None
        assert noise.ordered
    for _ in range(3):
        noise = read(logits, labels[torch.randperm(rows)], batch)
        ended(noise)
        assert not noise.ordered


def test_rows_in_order_are_told_from_rows_of_one_class_and_from_too_few():
    logits, labels = drawn(2000, 0.2)
    logits[:, 3] = 9.0
    assert ended(read(logits, torch.full_like(labels, 3), 20)) is not None
    few = read(logits[:100], labels[:100].sort().values, 2)
    assert ended(few) is None
    assert not few.ordered


def test_rows_that_are_ignored_do_not_count():
    logits, labels = drawn(2000, 0.2)
    labels[::2] = -100
    assert ended(read(logits, labels)) == ended(read(logits[1::2], labels[1::2], 50))


def test_labels_of_yes_or_no_are_two_classes():
    logits = torch.where(torch.rand(4000, generator=torch.Generator().manual_seed(1)) < 0.5, 9, -9)
    yes = (logits > 0).float()
    yes[::5] = 1 - yes[::5]  # half as many as are drawn at random
    for targets, outputs in ((yes, logits.float()), (yes[:, None], logits[:, None].float())):
        found = ended(read(outputs, targets))
        assert found.share == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.randn(300, 4), torch.rand(300, 4).softmax(1)),
        (torch.randn(300, 4, 7), torch.ones(300, 7, dtype=torch.int64)),
        (torch.randn(300, 3), torch.rand(300, 3).round()),
        (torch.randn(300), torch.ones(300, dtype=torch.int64)),
        (torch.randn(300, 2), None),
        (None, torch.ones(300, dtype=torch.int64)),
        (torch.tensor(1.0), torch.tensor(1.0)),
    ],
)
def test_what_has_no_label_for_each_row_tells_nothing(outputs, targets):
    noise = LabelNoise()
    for _ in range(4):
        noise.observe(outputs, targets)
    assert ended(noise) is None


def test_too_few_rows_or_batches_and_a_model_that_knows_nothing_tell_nothing():
    logits, labels = drawn(2 * LEAST_ROWS - 4, 0.5)
    assert ended(read(logits, labels, 2)) is None
    assert ended(read(*drawn(2200, 0.5))) is None
    assert ended(read(torch.zeros(4000, CLASSES), drawn(4000, 0.5)[1])) is None
    assert ended(LabelNoise()) is None


def test_a_model_that_diverged_leaves_no_number_that_cannot_be_saved():
    logits, labels = drawn(2000, 0.2)
    logits[1500:] = math.nan
    noise = read(logits, labels)
    assert noise.own().isfinite().all()
    LabelNoise().load_state_dict(noise.state_dict())


@pytest.mark.parametrize("at", [1, BLOCKS, 3 * BLOCKS + 1])
def test_a_pass_goes_on_from_a_state_as_if_it_had_not_stopped(at):
    logits, labels = drawn(10 * 4 * BLOCKS, 0.2)
    whole = read(logits, labels, 10)
    file = io.BytesIO()
    torch.save(read(logits[: 10 * at], labels[: 10 * at], 10).state_dict(), file)
    noise = LabelNoise()
    file.seek(0)
    noise.load_state_dict(torch.load(file, weights_only=True))
    for some, own in zip(logits[10 * at :].split(10), labels[10 * at :].split(10), strict=True):
        noise.observe(some, own)
    assert torch.equal(noise.own(), whole.own())
    found = ended(noise)
    again = LabelNoise()
    again.load_state_dict(noise.state_dict())
    assert again.found == found
    again.observe(logits, labels)  # of a later pass
    assert again.found == found


def test_it_says_the_share_with_its_interval():
    assert str(WrongShare(0.2042, 0.0316)) == "20% ± 3.2% of the labels look wrong"
    assert WrongShare(0.03, 0.01).is_clear
    assert not WrongShare(0.02, 0.001).is_clear
    assert not WrongShare(0.04, 0.05).is_clear
