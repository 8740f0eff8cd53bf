"""A stream without its copies: what counts as one, and how many examples are remembered."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from fixture_loaders import NumberedStream
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import selective_backprop as sb

Pair = namedtuple("Pair", "x y")
ROW = torch.tensor([1.0, 0.0])
DISTINCT = [
    (ROW, 0),
    (ROW, 1),
    (ROW, 1.0),
    (ROW, True),
    (ROW, torch.tensor(1)),
    (ROW, np.int64(1)),
    (ROW, -1),
    (ROW, -2),  # Python's `hash` is that of -1
    (ROW, 0.0),
    (ROW, -0.0),
    (ROW, float("nan")),
    (-ROW, 0),  # 0.0 and -0.0 differ in a bit
    (ROW.view(1, 2), 0),
    (ROW.bfloat16(), 0),
    (torch.tensor([1.0, 0.0, 0.0]), 0),
    (ROW[:1], ROW[1:]),
    ((ROW[:1], ROW[1:]), 0),
    (ROW.numpy(), 0),
    {"x": ROW, "y": 0},
    {"x": 0, "y": ROW},
    (torch.tensor(1.0), torch.tensor(0)),
    ROW,
    "a row",
    ["a", "row"],
    b"a row",
    None,
    torch.tensor([float("nan")]),
]


@pytest.mark.parametrize("example", DISTINCT, ids=repr)
def test_only_the_first_of_equal_examples_comes(example):
    found = list(sb.unique_stream([example, *DISTINCT, *DISTINCT]))
    assert found[0] is example
    assert list(map(id, found[1:])) == [id(each) for each in DISTINCT if each is not example]


def test_equal_bytes_count_whatever_their_strides_and_containers():
    wide = torch.arange(6.0).view(2, 3)
    stream = [wide, wide.T.contiguous().T, Pair(ROW, 0), (ROW, 0), wide.clone().requires_grad_()]
    assert len(list(sb.unique_stream([*stream, float("nan"), float("nan")]))) == 3


@given(st.lists(st.integers(0, 9)), st.integers(2, 24))
def test_what_is_remembered_is_at_least_the_last_half_of_so_many(numbers, most):
    kept = list(sb.unique_stream(numbers, most=most))
    assert set(kept) == set(numbers)
    for place, number in enumerate(numbers):
        if number in numbers[max(0, place - most // 2) : place]:
            before = [*sb.unique_stream(numbers[:place], most=most)]
            assert [*sb.unique_stream(numbers[: place + 1], most=most)] == before


def test_what_comes_often_is_never_forgotten():
    numbers = [each for number in range(1, 100) for each in (0, number)]
    assert list(sb.unique_stream(numbers, most=4)) == [0, *range(1, 100)]


def test_each_iteration_and_each_worker_begins_anew():
    stream = sb.unique_stream([1, 1, 2])
    assert list(stream) == list(stream) == [1, 2]
    loader = DataLoader(sb.unique_stream(NumberedStream(8)), 2, num_workers=2)
    assert sorted(int(each) for _, index in loader for each in index) == [*range(8)]


def test_the_epoch_is_passed_on():
    class Noted(NumberedStream):
        def set_epoch(self, epoch):
            self.epoch = epoch

    data = Noted(4)
    sb.unique_stream(data).set_epoch(3)
    sb.unique_stream([1]).set_epoch(3)
    assert data.epoch == 3


@pytest.mark.parametrize("example", [(ROW, object()), np.array([None, 1]), np.zeros(1, "O,i")])
def test_what_has_no_bytes_is_refused(example):
    with pytest.raises(sb.LoaderError, match="whose bytes are not known"):
        list(sb.unique_stream([example]))
