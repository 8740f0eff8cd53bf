from dataclasses import replace

import pytest
import torch
from fixture_runs import fixture_run
from hypothesis import given
from hypothesis import strategies as st

from reproductions.measures import by_class, follow, lowest, over_training, overlap, standing
from reproductions.probes import LossRanks, pack, unpack
from selective_backprop_lab.records.frame import frame_of
from selective_backprop_lab.records.schema import Observation

NUMBERS = st.lists(st.integers(0, 9), min_size=2, max_size=20)
SHARES = st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0])


@given(st.lists(st.integers(0, 65535)))
def test_numbers_come_back_as_they_were_packed(numbers):
    assert unpack(pack(torch.tensor(numbers, dtype=torch.int64))).tolist() == numbers


def test_packed_numbers_are_the_same_text_on_every_machine():
    assert pack(torch.tensor([1, 256, 65535])) == "AQAAAf//"


@given(NUMBERS, SHARES)
def test_the_lowest_fill_their_share_and_those_that_tie_divide_what_is_left(numbers, share):
    found = lowest(torch.tensor(numbers), share).tolist()
    room = max(1, round(share * len(numbers)))
    assert sum(found) == pytest.approx(room)
    for number, part in zip(numbers, found, strict=True):
        lower, equal = sum(n < number for n in numbers), numbers.count(number)
        assert part == pytest.approx(min(1.0, max(0.0, (room - lower) / equal)))


@given(NUMBERS, SHARES, st.randoms(use_true_random=False))
def test_overlap_does_not_hang_on_the_order_of_the_examples(numbers, share, random):
    other = [random.randint(0, 9) for _ in numbers]
    order = random.sample(range(len(numbers)), len(numbers))
    one, two = torch.tensor(numbers), torch.tensor(other)
    there, back = overlap(one, two, share), overlap(two, one, share)
    assert overlap(one[order], two[order], share) == pytest.approx(there) == pytest.approx(back)


def test_overlap_is_all_nothing_or_what_chance_gives():
    rising = torch.arange(8)
    assert overlap(rising, 2 * rising, 0.25) == 100
    assert overlap(rising, -rising, 0.25) == 0
    assert overlap(rising, torch.zeros(8), 0.25) == 25


@given(NUMBERS)
def test_a_standing_counts_what_is_lower_and_half_of_what_is_equal(numbers):
    expected = [sum(n < m for n in numbers) + numbers.count(m) / 2 for m in numbers]
    assert standing(torch.tensor(numbers)).tolist() == expected


def test_values_are_averaged_by_class_and_an_empty_class_has_none():
    values, labels = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([2, 0, 2])
    assert by_class(values, labels, 3) == [2.0, 0.0, 3.5]


def test_a_number_is_followed_over_the_length_of_a_run_and_averaged_from_a_share_of_it_on():
    seen = [
        Observation(probe="LossRanks()", progress=at, seen={"moved": n})
        for at, n in ((0.25, 9), (0.5, 2), (1, 4))
    ]
    runs = frame_of([replace(fixture_run(), observations=tuple(seen))])
    curve = follow(runs, LossRanks, lambda each: each.moved, 8)
    assert (list(curve.x), list(curve.mean)) == ([2, 4, 8], [9, 2, 4])
    assert [*over_training(runs, LossRanks, lambda each: each.moved)] == [5]
    assert [*over_training(runs, LossRanks, lambda each: each.moved, since=0.5)] == [3]
