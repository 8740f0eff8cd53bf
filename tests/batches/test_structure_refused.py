"""What does not fit is padded where the user says with what, and else refused by name."""

import copy
import dataclasses
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from fixture_batches import Example, Pair, same
from torch.nn.utils.rnn import pack_sequence

import selective_backprop as sb
from selective_backprop._batches.structure import (
    Layout,
    check_layout,
    count_rows,
    cut_rows,
    join_rows,
    move_batch,
)

PLAIN = Layout()


@pytest.mark.parametrize(
    ("batch", "path"),
    [
        ({"x": torch.ones(3), "grid": torch.ones(5)}, "grid"),
        ((torch.ones(3), (torch.ones(3), torch.ones(5))), "1.1"),
        (Pair(torch.ones(3), {"deep": torch.ones(5)}), "targets.deep"),
        (Example(torch.ones(3), torch.ones(5)), "note"),
        ((torch.ones(3), ["a", "b"]), "1"),
        ((["a", "b"], torch.ones(3)), "0"),  # before the tensor that tells the count
        ((torch.ones(3), np.ones(5)), "1"),
        ((torch.ones(3), (224, 224)), "1"),
    ],
)
def test_leaves_that_disagree_are_refused_by_name_unless_they_are_whole(batch, path):
    with pytest.raises(sb.BatchError) as refusal:
        count_rows(batch, PLAIN)
    message = str(refusal.value)
    assert f"item {path!r} has" in message
    assert f"whole={{{path!r}}}" in message
    whole = Layout(whole=frozenset({path}))
    assert count_rows(batch, whole) == 3
    found = join_rows([batch, batch], whole, [torch.tensor([1]), torch.tensor([2])])
    assert count_rows(found, whole) == 2
    assert same(join_rows([batch], whole), batch)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (3, 4),
        ("a", None),
        (torch.tensor(1.0), torch.tensor(2.0)),
        (torch.tensor(1.0), 1.0),
        (np.float32(1), np.float32(2)),
        ([], {}),
    ],
)
def test_what_has_no_rows_must_be_equal_in_batches_that_are_joined(one, other):
    batch = {"x": torch.ones(2), "scale": one}
    for layout in (PLAIN, Layout(whole=frozenset({"scale"}))):
        assert join_rows([batch, copy.deepcopy(batch)], layout)["scale"] is one
        with pytest.raises(sb.BatchError, match="'scale'"):
            join_rows([batch, {"x": torch.ones(2), "scale": other}], layout)


PACKED = pack_sequence([torch.ones(3), torch.ones(2)])


@pytest.mark.parametrize(
    ("whole", "equal"),
    [
        (torch.tensor([1.0, 2.0, torch.nan]), True),
        (np.ones(3), True),
        (["a", "b", "c"], True),
        (Path("a"), True),
        (torch.eye(3).to_sparse(), False),  # it has rows, and cannot be compared at once
        (PACKED, False),
        (object(), False),
    ],
)
def test_a_whole_is_kept_if_the_batches_share_it_or_hold_equal_ones(whole, equal):
    layout = Layout(whole=frozenset({"0"}))
    batch, other = (whole, torch.ones(2)), (copy.deepcopy(whole), torch.ones(2))
    assert cut_rows(batch, layout, 0, 1)[0] is whole
    assert join_rows([batch, batch], layout)[0] is whole
    with nullcontext() if equal else pytest.raises(sb.BatchError, match=r"'0' .* differs"):
        assert join_rows([batch, other], layout)[0] is whole


@dataclasses.dataclass
class Halved:
    inputs: torch.Tensor

    def __post_init__(self) -> None:
        self.inputs = self.inputs / 2


@dataclasses.dataclass
class Filled:
    inputs: torch.Tensor
    targets: torch.Tensor | None = dataclasses.field(default=None, init=False)


class Attributed(dict):
    """A dict whose items are its attributes, too, by a widespread recipe."""

    def __init__(self, **items: torch.Tensor) -> None:
        super().__init__(items)
        self.__dict__ = self


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (Halved(torch.arange(4)), "Halved, a dataclass .*return a dict"),
        (Filled(torch.arange(4)), "Filled, a dataclass .*return a dict"),
        (Attributed(x=torch.arange(4)), "Attributed holds x beside its items.*return a dict"),
    ],
)
def test_a_container_that_would_be_another_with_other_rows_is_refused(batch, message):
    with pytest.raises(sb.BatchError, match=message):
        check_layout(batch, PLAIN)


@pytest.mark.parametrize(
    "batch", [(), None, (1, "text"), {"x": np.ones(3)}, (torch.tensor(1.0), ["a", "b", "c"])]
)
def test_a_batch_without_tensors_is_refused(batch):
    for expected in (None, 3):
        with pytest.raises(sb.BatchError, match="no tensor"):
            count_rows(batch, PLAIN, expected)


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "nested"),
        (torch.eye(3).to_sparse(), "sparse_coo"),
        (PACKED, "PackedSequence"),
        ({"a", "b", "c"}, "set"),
        (Path("a"), "PosixPath"),
        (range(3), "range"),
    ],
)
def test_what_has_no_rows_to_take_is_refused_by_name_unless_it_is_whole(leaf, kind):
    batch = {"x": torch.ones(3), "deep": (torch.ones(3), leaf)}
    with pytest.raises(sb.BatchError, match=f"'deep.1' .*{kind}"):
        count_rows(batch, PLAIN)
    whole = Layout(whole=frozenset({"deep.1"}))
    assert count_rows(batch, whole) == 3
    assert join_rows([batch], whole, [torch.tensor([1])])["deep"][1] is leaf
    assert move_batch(batch, torch.device("cpu")) is batch


def test_ragged_rows_are_padded_where_the_user_says_with_what():
    layout = Layout(pad={"ids": 0, "mask": False, "image": 0.5})
    short = {
        "ids": torch.tensor([[1, 2]]),
        "mask": torch.tensor([[True, True]]),
        "image": torch.zeros(1, 1, 1, 2),
    }
    long = {
        "ids": torch.tensor([[5, 6, 7]]),
        "mask": torch.tensor([[True, True, True]]),
        "image": torch.zeros(1, 1, 2, 1),
    }
    found = join_rows([short, long], layout)
    assert found["ids"].tolist() == [[1, 2, 0], [5, 6, 7]]
    assert found["mask"].tolist() == [[True, True, False], [True, True, True]]
    assert found["image"].tolist() == [[[[0, 0], [0.5, 0.5]]], [[[0, 0.5], [0, 0.5]]]]
    assert short["ids"].tolist() == [[1, 2]]
    assert join_rows([short, short], layout)["ids"].shape == (2, 2)
    arrays = join_rows([np.ones((1, 2)), np.ones((1, 3))], Layout(pad={"": 7}))
    assert arrays.tolist() == [[1, 1, 7], [1, 1, 1]]
    assert join_rows([np.array(["a"]), np.array(["long"])], PLAIN).tolist() == ["a", "long"]


@pytest.mark.parametrize(
    ("one", "other", "shapes"),
    [
        (torch.ones(2, 3), torch.ones(2, 4), ("[2, 3] torch.float32", "[2, 4] torch.float32")),
        (torch.ones(2, 3), torch.ones(2, 3).int(), ("torch.float32", "torch.int32")),
        (np.ones((2, 3)), np.ones((2, 4)), ("[2, 3] float64", "[2, 4] float64")),
        (np.ones(2), np.array(["a", "b"]), ("[2] float64", "[2] <U1")),
        (torch.ones(2, 3), torch.ones(2), ("[2, 3]", "[2]")),
    ],
)
def test_rows_that_cannot_be_joined_are_refused_with_key_shapes_and_pad(one, other, shapes):
    # padding bridges neither axes nor types
    layout = (
        PLAIN if one.ndim == other.ndim and one.dtype == other.dtype else Layout(pad={"deep.0": 0})
    )
    with pytest.raises(sb.BatchError) as refusal:
        join_rows([{"deep": [one, torch.ones(2)]}, {"deep": [other, torch.ones(2)]}], layout)
    message = str(refusal.value)
    assert all(shape in message for shape in shapes)
    assert "pad={'deep.0': value}" in message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": torch.ones(2)}, {"b": torch.ones(2)}),
        ({"a": torch.ones(2)}, {"a": torch.ones(2), "b": torch.ones(2)}),
        ({"a": torch.ones(2)}, (torch.ones(2),)),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2),)),
        ((torch.ones(2), None), (torch.ones(2), ["a", "b"])),
        ((torch.ones(2), ["a", "b"]), (torch.ones(2), None)),
        ((torch.ones(2), torch.tensor(1.0)), (torch.ones(2), torch.ones(2))),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2), np.ones(2))),
        (Example(torch.ones(2)), Pair(torch.ones(2), None)),
    ],
)
def test_batches_of_different_structure_are_refused(one, other):
    with pytest.raises(sb.BatchError, match="different structure"):
        join_rows([one, other], PLAIN)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((torch.ones(3, 2), [torch.tensor(1), torch.tensor(2)]), r"'1' has 2 "),
        (
            (torch.ones(3, 2), [{"boxes": torch.ones(size, 4)} for size in (1, 2, 3)]),
            "'1.0.boxes' .*stack lists",
        ),
        (
            {"images": tuple(torch.ones(1, 2, size) for size in (1, 2, 3)), "y": torch.ones(3)},
            "'images.0' .*stack lists",
        ),
        ((torch.ones(2), torch.ones(5)), "pass whole="),  # a pair of two rows, and no list of rows
    ],
)
def test_a_list_of_examples_made_of_tensors_is_refused_with_advice_that_helps(batch, message):
    with pytest.raises(sb.BatchError, match=message):
        count_rows(batch, PLAIN, expected=2 if "pass whole" in message else 3)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(whole=frozenset({"grid", "x"})), "whole=.*'grid'.*'x'"),
        (Layout(pad={"0": 1.0}), r"pad=.*'0'.*'x', 'deep.y'"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_those_that_lead_somewhere(layout, message):
    batch = {"x": torch.ones(2), "deep": {"y": torch.ones(2)}}
    with pytest.raises(sb.BatchError, match=message):
        check_layout(batch, layout)
    check_layout(batch, Layout(whole=frozenset({"deep.y"}), pad={"x": 0.0}))
