"""Batches of every kind survive a file that holds no code, and what cannot is refused."""

import io
from collections import Counter, OrderedDict, UserDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from fixture_batches import Pair, same
from torch import Tensor

import selective_backprop as sb
from selective_backprop._batches.serialization import pack_batch, seal, unpack_batch, unseal
from selective_backprop._core.saved_state import Saved


@dataclass(frozen=True)
class Frozen:
    inputs: Tensor
    notes: list[str]
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", self.made + 1)


@dataclass(slots=True)
class Slotted:
    inputs: Tensor


class Encoded(UserDict):
    """Like the batches of tokenizers: attributes beside the items."""

    def __init__(self, items: Any, kind: str) -> None:
        super().__init__(items)
        self.kind = kind


class Named(dict):
    label = None


def through_a_file(packed: Any) -> Any:
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def named() -> Any:
    batch = Named(inputs=torch.arange(3))
    batch.label = "first"
    return batch


BATCHES: dict[str, Callable[[], Any]] = {
    "a tensor": lambda: torch.arange(6.0).reshape(2, 3),
    "channels last": lambda: torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "single numbers and none": lambda: [torch.tensor(1.5), torch.empty(0, 3)],
    "half precision": lambda: torch.ones(3, dtype=torch.bfloat16),
    "a tuple": lambda: (torch.arange(3), torch.ones(3)),
    "a list in a dict": lambda: {"a": [torch.arange(3), {"b": torch.ones(3)}], 5: None},
    "an ordered dict": lambda: OrderedDict(b=torch.ones(1), a=torch.zeros(1)),
    "rows of text": lambda: (torch.arange(3), ["one", "two", ""], (b"1", b"\xff\0", b"")),
    "numbers": lambda: (1, 2.5, True, None, "text", b"b", 3 + 4j, np.float32(2.5), float("nan")),
    "arrays": lambda: {"a": np.arange(6).reshape(2, 3), "b": np.array([True, False])},
    "unsigned arrays": lambda: [np.arange(3, dtype=f"u{size}") for size in (1, 2, 4, 8)],
    "arrays of text": lambda: np.array([["one"], ["longer"]]),
    "texts of arrays": lambda: [np.str_("one"), np.str_(""), np.bytes_(b"1"), np.array("two")],
    "arrays of bytes": lambda: np.array([[b"one"], [b""]]),
    "a named tuple": lambda: Pair(torch.arange(3), torch.ones(3)),
    "a dataclass": lambda: Frozen(torch.arange(3), ["a", "b", "c"]),
    "with slots": lambda: Slotted(torch.arange(3)),
    "a mapping with more": lambda: Encoded({"ids": torch.arange(3)}, "text"),
    "a kind of dict": named,
    "a dict whose default is gone": lambda: defaultdict(None, inputs=torch.arange(3)),
    "a counter": lambda: Counter("aab"),
    "all in one": lambda: [Pair(Frozen(torch.ones(1), []), {"x": np.zeros(1)}), Slotted(None)],
}


@pytest.mark.parametrize("kind", BATCHES)
def test_what_a_batch_is_made_of_comes_back_as_it_was(kind):
    batch = BATCHES[kind]()
    (found,) = unseal(Saved(through_a_file(seal((batch,)))), tuple)
    assert same(found, batch)
    assert not isinstance(batch, Tensor) or found.stride() == batch.stride()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(2), torch.zeros(2, 1)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(2), torch.tensor([0.0, -0.0])),
        (torch.ones((), dtype=torch.cfloat).conj(), torch.zeros((), dtype=torch.cfloat).conj()),
        ([1], (1,)),
        ([1, [2]], [1, 2]),
        (1, True),
        (None, "None"),
    ],
    ids=repr,
)
def test_content_that_has_changed_is_refused(one, other):
    sealed, changed = seal((one,)), pack_batch((other,))
    assert type(unseal(Saved(sealed), tuple)[0]) is type(one)
    with pytest.raises(sb.ConfigurationError, match="state is damaged"):
        unseal(Saved((*changed, sealed[-1])), tuple)


def test_what_a_tokenizer_knew_of_rows_is_left_out():
    batch = Encoded({"ids": torch.arange(3)}, "text")
    batch._encodings = [object()]  # as in Transformers' BatchEncoding
    again = unpack_batch(through_a_file(pack_batch(batch)))
    assert same(again, batch)
    assert again._encodings is None


def test_no_code_of_the_user_s_types_runs(monkeypatch):
    packed = through_a_file(pack_batch([Frozen(torch.ones(1), []), Encoded({}, "x"), named()]))
    for kind in (Frozen, Encoded, Named):
        for name in ("__init__", "__new__", "__post_init__", "__setstate__"):
            monkeypatch.setattr(kind, name, None, raising=False)
    frozen, encoded, labelled = unpack_batch(packed)
    assert (frozen.made, encoded.kind, labelled.label) == (1, "x", "first")


def test_what_is_packed_shares_no_memory_with_the_batch_or_what_is_around_it():
    rows = torch.zeros(1000, 10)[3:5]
    packed = pack_batch((rows,))
    assert packed[1][0].untyped_storage().nbytes() == 2 * 10 * 4
    rows.fill_(1.0)
    assert unpack_batch(packed)[0].count_nonzero() == 0


class Opaque:
    pass


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ({"meta": [Opaque()]}, "meta.0 .*Opaque"),
        (defaultdict(lambda: 0, a=torch.ones(1)), "batch .*defaultdict"),
        ((torch.ones(1), {1, 2}), "1 .*set"),
        ({(1, 2): torch.ones(1)}, "batch .*dict"),
        (np.array([None]), "array of object"),
    ],
)
def test_what_a_file_without_code_cannot_hold_is_refused_by_its_path(batch, found):
    with pytest.raises(sb.BatchError, match=found):
        pack_batch(batch)


def test_a_type_that_cannot_be_found_again_is_refused():
    class Local(NamedTuple):
        inputs: Tensor

    with pytest.raises(sb.BatchError, match="top of a module"):
        pack_batch(Local(torch.ones(1)))


def test_a_type_that_is_not_there_or_is_another_one_is_refused_and_never_imported():
    with pytest.raises(sb.ConfigurationError, match=r"antigravity:Pair.*not imported"):
        unpack_batch(("named tuple", "antigravity:Pair", ["x"], [1]))
    for kind, name in (("named tuple", "Slotted"), ("dataclass", "Pair"), ("mapping", "Slotted")):
        with pytest.raises(sb.ConfigurationError, match="something else"):
            unpack_batch((kind, f"{__name__}:{name}", ["x"], [1]))
