"""What was counted between two snapshots."""

import math
from dataclasses import fields

import pytest

import selective_backprop as sb


def test_every_count_is_subtracted_and_what_is_no_count_is_as_it_is_now():
    names = [field.name for field in fields(sb.Stats)]
    earlier = sb.Stats(**{name: number for number, name in enumerate(names)})
    now = sb.Stats(**{name: 3 * number + 7 for number, name in enumerate(names)})
    since = now.since(earlier)
    for number, name in enumerate(names):
        assert getattr(since, name) == 3 * number + 7 - number * (name not in ("epoch", "ties")), (
            name
        )


def test_the_rate_of_an_epoch_counts_rows_that_waited_and_not_those_that_wait():
    first = sb.Stats(epoch=0, candidates=125, kept=124, waiting=1)
    later = sb.Stats(epoch=3, candidates=500, kept=500)
    assert first.rate == later.rate == later.since(first).rate == 1.0
    assert later.since(first).waiting == -1
    assert math.isnan(sb.Stats().rate)
    assert math.isnan(sb.Stats(candidates=5, waiting=5).rate)


@pytest.mark.parametrize(
    ("stats", "said"),
    [
        (sb.Stats(), "before the first epoch"),
        (sb.Stats(0), "up to epoch 1: 0 of 0 trained on, 0 batches"),
        (
            sb.Stats(1, 8985, kept=5445, batches=1),
            "up to epoch 2: 5,445 of 8,985 trained on (61 %), 1 batch",
        ),
        (
            sb.Stats(0, 9, scored=9, waiting=9),
            "up to epoch 1: 0 of 9 trained on (0 %), 0 batches, 9 scored, 9 waiting",
        ),
        (sb.StepStats(1, 64, 16), "16 of 64 trained on (25 %), 1 step"),
    ],
)
def test_printed_counts_are_one_sentence_and_their_repr_shows_the_fields(stats, said):
    assert str(stats) == said
    assert f"candidates={stats.candidates}" in repr(stats)
