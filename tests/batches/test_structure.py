"""Rows of any nested batch are counted, taken and joined as if each leaf were a list."""

import copy
import dataclasses
from collections import OrderedDict, UserDict, defaultdict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from fixture_batches import Example, Image, Pair, Scan, Table, same
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from selective_backprop import BatchError
from selective_backprop._batches import structure
from selective_backprop._batches.structure import check_layout, count_rows, cut_rows, join_rows

PLAIN = structure.Layout()


class Words(list):
    """A list with a name of its own."""


def is_column(batch: Any) -> bool:
    return all(isinstance(row, str) or getattr(row, "ndim", 1) == 0 for row in batch)


def take(batch: Any, rows: list[int]) -> Any:
    """The rows of a batch, leaf by leaf, in plain Python."""
    if isinstance(batch, (torch.Tensor, np.ndarray)):
        return batch[rows] if batch.ndim else batch
    if isinstance(batch, dict):
        return type(batch)((key, take(value, rows)) for key, value in batch.items())
    if isinstance(batch, UserDict):
        return type(batch)({key: take(value, rows) for key, value in batch.items()})
    if dataclasses.is_dataclass(batch):
        return type(batch)(**{name: take(value, rows) for name, value in vars(batch).items()})
    if isinstance(batch, Pair):
        return Pair(*(take(value, rows) for value in batch))
    if isinstance(batch, (list, tuple)) and is_column(batch):
        return type(batch)(batch[row] for row in rows)
    if isinstance(batch, (list, tuple)):
        return type(batch)(take(value, rows) for value in batch)
    return batch


DTYPES = [torch.float32, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.complex64]


def tensor_leaves(rows: int) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda tail, dtype, start: (
            (torch.arange(start, start + rows * int(np.prod(tail))) % 100)
            .reshape(rows, *tail)
            .to(dtype)
        ),
        st.sampled_from([(), (1,), (3,), (2, 3), (2, 2, 3)]),
        st.sampled_from(DTYPES),
        st.integers(0, 50),
    )


def leaves(rows: int) -> st.SearchStrategy[Any]:
    return st.one_of(
        tensor_leaves(rows),
        st.lists(st.text(max_size=3), min_size=rows, max_size=rows),
        st.lists(st.text(max_size=3), min_size=rows, max_size=rows).map(tuple),
        st.lists(st.text(max_size=3), min_size=rows, max_size=rows).map(Words),
        st.just([torch.tensor(row / 2) for row in range(rows)]),
        st.just(np.arange(rows * 2).reshape(rows, 2)),
        st.sampled_from([None, 3, 0.5, True, "all", b"all", np.float32(2), 1j]),
        st.sampled_from([torch.tensor(2.0), np.array(7)]),
    )


def structures(rows: int) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["x", "y", "z"])

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        named = st.dictionaries(names, inner, max_size=3)
        return st.one_of(
            named,
            named.map(OrderedDict),
            named.map(UserDict),
            st.builds(Pair, inner, inner),
            st.builds(Example, inner, inner),
            # with a tensor inside, or the list would be one of rows
            st.tuples(tensor_leaves(rows), inner),
            st.tuples(tensor_leaves(rows), inner).map(list),
        )

    return st.recursive(leaves(rows), grow, max_leaves=6)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Any, int]:
    rows = draw(st.integers(1, 6))
    return (draw(tensor_leaves(rows)), draw(structures(rows))), rows


@given(batches(), st.data())
def test_rows_are_counted_and_taken_wherever_they_are(drawn, data):
    batch, size = drawn
    before = copy.deepcopy(batch)
    assert count_rows(batch, PLAIN) == count_rows(batch, PLAIN, expected=size) == size
    rows = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
    found = join_rows([batch], PLAIN, [torch.tensor(rows)])
    assert same(found, take(batch, rows))
    assert same(batch, before)


@given(batches(), st.data())
def test_what_was_cut_can_be_joined_again(drawn, data):
    batch, rows = drawn
    before = copy.deepcopy(batch)
    middle = data.draw(st.integers(0, rows))
    pieces = [cut_rows(batch, PLAIN, 0, middle), cut_rows(batch, PLAIN, middle, rows)]
    assert same(join_rows(pieces, PLAIN), batch)
    assert same(batch, before)


@given(batches(), st.data())
def test_rows_of_several_batches_are_joined_in_their_order(drawn, data):
    batch, size = drawn
    picks = data.draw(
        st.lists(st.lists(st.integers(0, size - 1), max_size=4).map(sorted), min_size=1, max_size=3)
    )
    rows = [torch.tensor(pick, dtype=torch.int64) for pick in picks]
    found = join_rows([batch] * len(picks), PLAIN, rows)
    assert same(found, take(batch, [row for pick in picks for row in pick]))


def test_what_was_cut_shares_its_memory_and_what_was_joined_does_not():
    batch = {"x": torch.arange(6.0)}
    assert cut_rows(batch, PLAIN, 2, 5)["x"].data_ptr() == batch["x"][2:].data_ptr()
    for rows in ([torch.arange(6)], None):
        join_rows([batch], PLAIN, rows)["x"].zero_()
        assert batch["x"][1] == 1.0


def test_containers_keep_their_type_and_what_else_they_know_but_not_of_other_rows():
    batch = defaultdict(lambda: "missing", x=torch.arange(3))
    found = join_rows([batch], PLAIN, [torch.tensor([1])])
    assert (found["nothing"], found["x"].tolist()) == ("missing", [1])
    assert "nothing" not in batch
    encoded = UserDict(x=torch.arange(3))
    encoded._encodings = ["one", "two", "three"]  # as in Transformers' BatchEncoding
    assert join_rows([encoded], PLAIN, [torch.tensor([1])])._encodings is None
    assert cut_rows(encoded, PLAIN, 1, 2)._encodings is None
    assert len(encoded._encodings) == 3


def test_a_mapping_that_is_no_dict_becomes_one():
    found = join_rows([MappingProxyType({"x": torch.arange(4)})], PLAIN, [torch.tensor([1])])
    assert (type(found), found["x"].tolist()) == (dict, [1])


def test_images_and_volumes_keep_their_memory_format():
    formats = {torch.channels_last: 2, torch.contiguous_format: 2, torch.channels_last_3d: 3}
    for layout, axes in formats.items():
        images = torch.randn(5, 3, *[4] * axes).contiguous(memory_format=layout)
        joined = join_rows([images, images], PLAIN, [torch.tensor([0, 3]), torch.tensor([4])])
        assert joined.is_contiguous(memory_format=layout)
        assert torch.equal(joined, images[[0, 3, 4]])
        assert join_rows([images, images], PLAIN).is_contiguous(memory_format=layout)


def test_joined_rows_are_plain_data_wherever_they_came_from():
    table = torch.arange(12.0).reshape(3, 4).t()  # its rows are no neighbours in memory
    rows = [torch.tensor([1, 3]), torch.arange(4)]
    assert torch.equal(join_rows([table, table], PLAIN, rows), table[[1, 3, 0, 1, 2, 3]])
    inputs = torch.ones(4, requires_grad=True) * 2
    assert not join_rows([inputs, inputs], PLAIN, rows).requires_grad
    with torch.inference_mode():
        made = torch.ones(4)
    joined = join_rows([made, made], PLAIN, rows)
    weight = torch.ones(6, requires_grad=True)
    (weight * joined).sum().backward()  # which saves them for its backward pass
    assert torch.equal(weight.grad, joined)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_rows_of_large_unsigned_integers_are_joined(dtype):
    column = torch.tensor([1, 2, 60_000], dtype=dtype)
    joined = join_rows([column, column], PLAIN, [torch.tensor([2, 0]), torch.arange(3)])
    assert (joined.dtype, joined.tolist()) == (dtype, [60_000, 1, 1, 2, 60_000])


def test_a_list_of_plain_records_is_one_of_rows():
    records = [Example("a", note=1), {"width": 4}, Example("c", note=3)]
    batch = (torch.arange(3), records)
    assert count_rows(batch, PLAIN) == 3
    assert join_rows([batch], PLAIN, [torch.tensor([0, 2])])[1] == [records[0], records[2]]


def test_a_batch_is_moved_with_all_its_tensors_and_nothing_else():
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    batch = UserDict(x=(torch.ones(2), [torch.ones(2), "text"]), packed=packed, number=3)
    moved = structure.move_batch(batch, torch.device("meta"))
    assert type(moved) is UserDict
    first, (second, text) = moved["x"]
    assert all(each.is_meta for each in (first, second, moved["packed"].data))
    assert (text, moved["number"], type(moved["packed"])) == ("text", 3, PackedSequence)
    assert structure.move_batch(batch, torch.device("cpu")) is batch  # since it is there already
    more = structure.map_tensors(lambda tensor: tensor + 1, batch)
    assert (more["x"][0].tolist(), more["x"][1][1]) == ([2.0, 2.0], "text")
    assert batch["x"][0].tolist() == [1.0, 1.0]


def test_a_list_of_single_numbers_is_a_list_of_rows():
    numbers = [torch.tensor(number) for number in range(3)]
    batch = {"x": torch.ones(3), "y": numbers, "pair": tuple(numbers)}
    assert count_rows(batch, PLAIN) == 3
    rows = [torch.tensor([0, 2]), torch.tensor([0])]
    found = join_rows([batch, cut_rows(batch, PLAIN, 1, 2)], PLAIN, rows)
    assert [int(number) for number in found["y"]] == [0, 2, 1]
    assert isinstance(found["pair"], tuple)
    assert all(number.is_meta for number in structure.move_batch(batch, torch.device("meta"))["y"])
    assert structure.map_tensors(lambda tensor: tensor + 1, batch)["y"] == [1, 2, 3]


def test_a_mapping_that_iterates_over_its_rows_is_read_by_its_keys():
    batch = (Table(x=torch.arange(4), y=torch.ones(4)), torch.ones(4))
    assert count_rows(batch, PLAIN) == 4
    check_layout(batch, PLAIN, takes=False)
    assert type(structure.map_tensors(lambda tensor: tensor + 1, batch)[0]) is Table
    with pytest.raises(BatchError, match=r"with other rows .*is fixed.*a dict"):
        check_layout(batch, PLAIN)


@pytest.mark.parametrize("kind", [Image, Scan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint16])
def test_rows_of_a_subclass_of_tensors_keep_it(kind, dtype):
    values = torch.arange(6).reshape(3, 2).to(dtype)
    batch = [values.as_subclass(kind), torch.ones(3)]
    check_layout(batch, PLAIN)
    part = cut_rows(batch, PLAIN, 1, 3)
    for pieces in ([batch, part], [[values, torch.ones(3)], part]):  # the state had plain tensors
        for rows in ([torch.tensor([2, 0]), torch.arange(2)], None):
            found = join_rows(pieces, PLAIN, rows)[0]
            assert type(found) is kind
            plain = [values[[2, 0]] if rows else values, values[1:]]
            assert found.tolist() == torch.cat([each.int() for each in plain]).tolist()
    wide = torch.zeros(1, 3, dtype=dtype).as_subclass(kind)
    assert type(join_rows([batch[0], wide], structure.Layout(pad={"": 0}))) is kind


def test_rows_of_a_tensor_that_holds_more_than_numbers_are_refused_and_never_lose_it():
    scan, later = (torch.arange(6.0).reshape(3, 2).as_subclass(Scan) for _ in range(2))
    check_layout([scan], PLAIN)
    later.place = "left"
    for leaf in (later, np.ma.array([1, 2, 3], mask=[True, False, False])):
        batch = [leaf, torch.ones(3)]
        for use in (check_layout, count_rows):
            with pytest.raises(BatchError, match=r"'0' is a (Scan|MaskedArray) that .*plain"):
                use(batch, PLAIN)
        with pytest.raises(BatchError, match="holds more"):
            cut_rows(batch, PLAIN, 0, 2)
        check_layout(batch, PLAIN, takes=False)
        check_layout(batch, structure.Layout(whole=frozenset({"0"})))
    with pytest.raises(BatchError, match="holds more"):
        join_rows([scan, later], PLAIN)
