"""Rows of tensors in memory are gathered by one call, and the batches are torch's own."""

import numpy as np
import pytest
import torch
from fixture_loaders import fresh_net
from torch.utils.data import BatchSampler, DataLoader, Subset, TensorDataset, default_collate

import selective_backprop as sb

NUMBERS = torch.arange(23)

KINDS = {
    "a matrix": torch.randn(23, 4),
    "bytes": torch.arange(23, dtype=torch.uint8),
    "words": torch.arange(23).to(torch.uint16),
    "flags": NUMBERS % 2 == 0,
    "images, channels last": torch.randn(23, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "films in another order": torch.randn(23, 2, 4, 5, 3).permute(0, 1, 4, 2, 3),
    "every other row": torch.randn(46, 4)[::2],
    "one row, repeated": torch.randn(1, 4).expand(23, 4),
    "conjugates": torch.randn(23, 2, dtype=torch.complex64).conj(),
    "rows without a number": torch.empty(23, 0),
    "with a gradient": torch.randn(23, 2, requires_grad=True),
}


def traits(tensor: torch.Tensor) -> tuple:
    return type(tensor), tensor.dtype, tensor.stride(), tensor.requires_grad


def check_same(ours: DataLoader, theirs: DataLoader) -> None:
    found = []
    for loader in (ours, theirs):
        torch.manual_seed(0)
        found.append((list(loader), torch.rand(())))  # the random stream goes on alike
    (mine, after), (own, expected) = found
    assert torch.equal(after, expected)
    for one, other in zip(mine, own, strict=True):
        assert type(one) is type(other)
        assert all(map(torch.equal, one, other))
        assert [*map(traits, one)] == [*map(traits, other)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("subset", [False, True])
def test_batches_are_the_same_bit_for_bit(kind, subset):
    data = TensorDataset(KINDS[kind], NUMBERS)
    data = Subset(data, [5, 3, 3, 22, 0, 9, -2]) if subset else data
    loader = DataLoader(data, 5, shuffle=True)
    check_same(sb.in_memory_loader(loader), loader)


ORDERS = [[[0, 1], [-1, -23]], [[np.int32(3), np.int64(4)]], [torch.tensor([7, 2])], [(4, 4, 4)]]


@pytest.mark.parametrize("order", [*ORDERS, [[True]]])
def test_a_batch_sampler_may_yield_any_indices(order):
    loader = DataLoader(TensorDataset(KINDS["a matrix"], NUMBERS), batch_sampler=order)
    check_same(sb.in_memory_loader(loader), loader)


@pytest.mark.parametrize("order", [[[0, 23]], [[-24]], [[]], [["one"]]])
def test_what_torch_refuses_is_refused_with_its_words(order):
    loader = DataLoader(TensorDataset(NUMBERS), batch_sampler=order)
    errors = []
    for each in (loader, sb.in_memory_loader(loader)):
        with pytest.raises((IndexError, TypeError)) as caught:
            list(each)
        errors.append(repr(caught.value))
    assert errors[0] == errors[1]


def test_tensors_may_change_and_be_replaced_between_batches():
    data = TensorDataset(torch.zeros(4, 2))
    loader = sb.in_memory_loader(DataLoader(data, 2))
    sums = [float(batch.sum()) + 0 * float(data.tensors[0].add_(1).sum()) for (batch,) in loader]
    assert sums == [0.0, 4.0]
    data.tensors = (torch.full((2, 4), 5.0).T,)  # in memory in another order
    assert [batch.tolist() for (batch,) in loader] == [[[5.0, 5.0]] * 2] * 2


@pytest.fixture
def read(monkeypatch):
    """Count the examples that are read one by one."""
    counted, read_one = [], TensorDataset.__getitem__

    def read(self, index):
        counted.append(index)
        return read_one(self, index)

    monkeypatch.setattr(TensorDataset, "__getitem__", read)
    return counted


Other, Augmenting = type("Other", (TensorDataset,), {}), type("Augmenting", (DataLoader,), {})
DATA = TensorDataset(torch.randn(23, 4), NUMBERS)


@pytest.mark.parametrize(
    ("loader", "gathers"),
    [
        (lambda: DataLoader(DATA, 5, shuffle=True), True),
        (lambda: DataLoader(Subset(DATA, range(20)), 5), True),
        (lambda: DataLoader(DATA, batch_sampler=BatchSampler(range(23), 5, False)), True),
        (lambda: DataLoader(Other(*DATA.tensors), 5), False),
        (lambda: Augmenting(DATA, 5), False),
        (lambda: DataLoader(DATA, 5, collate_fn=lambda rows: default_collate(rows)), False),
    ],
)
def test_the_loader_gathers_where_nothing_else_changes(loader, gathers, read):
    plain = loader()
    before = dict(vars(plain))
    selecting = sb.SelectiveLoader(plain, fresh_net(), None, sb.random_backprop(1 / 2), quiet=True)
    assert sum(len(targets) for _, targets in selecting)
    assert (not read) == gathers
    assert vars(plain) == before
    assert selecting.dataset is plain.dataset
    assert type(next(iter(plain))) is list


def test_a_users_collate_function_is_replaced_only_by_another():
    loader = DataLoader(DATA, 5, collate_fn=lambda rows: dict(rows))
    with pytest.raises(sb.LoaderError, match="collate function of its own"):
        sb.in_memory_loader(loader)
    named = sb.in_memory_loader(loader, lambda tensors: {"x": tensors[0], "y": tensors[1]})
    first = next(iter(named))
    assert list(first) == ["x", "y"]
    assert first["y"].tolist() == [0, 1, 2, 3, 4]
    half = sb.random_backprop(1 / 2)
    for batch in sb.SelectiveLoader(named, None, None, half, quiet=True):
        assert len(batch["x"]) == len(batch["y"]) == 5


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(Other(NUMBERS), 5), "is a Other, but a TensorDataset is needed"),
        (DataLoader([1, 2, 3]), "is a list, but a TensorDataset"),
        (DataLoader(DATA, batch_size=None), "yields batches"),
    ],
)
def test_what_cannot_be_gathered_is_refused(loader, message):
    with pytest.raises(sb.LoaderError, match=message):
        sb.in_memory_loader(loader)
