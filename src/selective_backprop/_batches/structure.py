"""Count, cut and join the rows of any nested batch.

Containers (lists, tuples, mappings, dataclasses) hold leaves: tensors, arrays, lists of rows and
single values. A leaf's path is the keys, field names and positions that lead to it.
"""

import copy
import dataclasses
import operator
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import starmap
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from selective_backprop._core.errors import BatchError
from selective_backprop._core.options import Padding

PLAIN = frozenset({str, bytes, int, float, complex, bool, type(None)})
# torch does little with unsigned integers of more than 8 bits, but moves rows of signed ones.
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
BEFORE_LOADING = (
    "Strategies that choose examples before they are loaded, such as auto and random_backprop, "
    "need no rows of the batch."
)


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the user said about a batch's structure, by path."""

    whole: frozenset[str] = frozenset()  # leaves of the batch as a whole, not row by row
    # What pads leaves on the right, whose axes after the first may differ in length.
    pad: Mapping[str, float] = dataclasses.field(default_factory=dict)


def _parts(value: Any) -> Sequence[tuple[Any, Any]] | None:
    kind = type(value)
    if isinstance(value, (Tensor, PackedSequence)):
        return None
    if isinstance(value, Mapping):
        return [*value.items()]  # a TensorDict iterates over its rows
    if isinstance(value, (list, tuple)):
        if hasattr(kind, "_fields"):
            return [*zip(kind._fields, value, strict=True)]
        tensors = [part for part in value if type(part) is Tensor and part.ndim]  # nearly always
        return [*enumerate(value)] if tensors or _is_structure(value) else None
    if not dataclasses.is_dataclass(kind):
        return None
    fields = dataclasses.fields(kind)
    if hasattr(kind, "__post_init__") or not all(field.init for field in fields):
        raise BatchError(
            f"the batch holds a {kind.__name__}, a dataclass with __post_init__ or a field of "
            "init=False, which may change when it is made with other rows: return a dict"
        )
    return [(field.name, getattr(value, field.name)) for field in fields]


def _is_structure(value: Sequence[Any]) -> bool:
    """Return whether a list holds tensors at any depth: then it is no list of rows."""
    if PLAIN.issuperset(map(type, value)) or _lists_numbers(value):
        return False
    leaves = (leaf for part in value for leaf in list_leaves(part))
    return any(isinstance(leaf, (Tensor, np.ndarray, PackedSequence)) for leaf in leaves)


def _lists_numbers(value: Any) -> bool:
    """Return whether `value` is a list or tuple of zero-dimensional tensors, one per row."""
    listed = isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and len(value) > 0
    return listed and all(isinstance(part, Tensor) and not part.ndim for part in value)


def _are_tensors(batch: Any) -> bool:
    if type(batch) not in (list, tuple) or not batch:
        return False
    return all(
        type(leaf) is Tensor and leaf.ndim and leaf.layout is torch.strided and not leaf.is_nested
        for leaf in batch
    )


def named_leaves(batch: Any, path: str = "") -> list[tuple[str, Any]]:
    listed = type(batch) in (list, tuple) and {*map(type, batch)} == {Tensor}  # nearly always
    parts = enumerate(batch) if listed and all(leaf.ndim for leaf in batch) else _parts(batch)
    if parts is None:
        return [(path, batch)]
    places = [(f"{path}.{key}" if path else str(key), part) for key, part in parts]
    return [
        leaf
        for place, part in places
        for leaf in ([(place, part)] if type(part) is Tensor else named_leaves(part, place))
    ]


def list_leaves(batch: Any) -> list[Any]:
    if type(batch) in (list, tuple) and all(type(leaf) is Tensor and leaf.ndim for leaf in batch):
        return [*batch]
    return [leaf for _, leaf in named_leaves(batch)]


def list_tensors(batch: Any) -> list[Tensor]:
    leaves = (leaf if _lists_numbers(leaf) else [leaf] for leaf in list_leaves(batch))
    return [each for leaf in leaves for each in leaf if isinstance(each, Tensor)]


def _rebuild(batch: Any, leaves: Iterator[Any]) -> Any:
    if (parts := _parts(batch)) is None:
        return next(leaves)
    named = {
        key: next(leaves) if type(part) is Tensor else _rebuild(part, leaves) for key, part in parts
    }
    kind: Any = type(batch)
    if isinstance(batch, (list, tuple)):
        return kind(*named.values()) if hasattr(kind, "_fields") else kind(named.values())
    if not isinstance(batch, Mapping):
        return dataclasses.replace(batch, **named)
    if kind is dict or not issubclass(kind, (dict, UserDict)):
        return named
    others = getattr(batch, "__dict__", {}).items()
    if more := [name for name, each in others if name != "data" and _is_structure([each])]:
        raise BatchError(
            f"a {kind.__name__} holds {', '.join(more)} beside its items, which would not change "
            f"with them: return a dict. {BEFORE_LOADING}"
        )
    clone = copy.copy(batch)
    clone.update(named)
    if "_encodings" in getattr(clone, "__dict__", {}):
        clone._encodings = None  # of the rows that Transformers' BatchEncoding had before
    return clone


def map_tensors(function: Callable[[Any], Any], batch: Any, kinds: Any = Tensor) -> Any:
    def change(leaf: Any) -> Any:
        if _lists_numbers(leaf):
            changed = [*map(function, leaf)]
            return leaf if all(map(operator.is_, changed, leaf)) else type(leaf)(changed)
        return function(leaf) if isinstance(leaf, kinds) else leaf

    leaves = list_leaves(batch)
    changed = [*map(change, leaves)]
    return batch if all(map(operator.is_, changed, leaves)) else _rebuild(batch, iter(changed))


def move_batch(batch: Any, device: torch.device) -> Any:
    if type(batch) in (list, tuple) and all(
        type(leaf) is Tensor and leaf.device == device for leaf in batch
    ):
        return batch  # nearly always on a CPU

    def move(leaf: Any) -> Any:
        tensor = leaf.data if isinstance(leaf, PackedSequence) else leaf
        return leaf if tensor.device == device else leaf.to(device, non_blocking=tensor.is_pinned())

    return map_tensors(move, batch, (Tensor, PackedSequence))


def move_tensor(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; wait for the copy only if it goes to the CPU."""
    return tensor.to(device, non_blocking=device.type != "cpu")


def count_rows(
    batch: Any, layout: Layout, expected: int | None = None, *, every: bool = True
) -> int:
    """Return how many rows a batch has: those of the first tensor, or `expected` indices.

    Every leaf must have as many. If not `every`, one is enough, and there may be none with rows.
    """
    if type(batch) in (list, tuple) and {*map(type, batch)} == {Tensor} and not layout.whole:
        size = batch[0].shape[:1] if expected is None else (expected,)
        if size and all(
            leaf.shape[:1] == size and leaf.layout is torch.strided and not leaf.is_nested
            for leaf in batch
        ):
            return size[0]  # nearly always
    some, found = expected is not None and not every, []
    for path, leaf in named_leaves(batch):
        with suppress(BatchError) if some else nullcontext():
            if path not in layout.whole and (size := row_count(path, leaf)) is not None:
                found.append((path, leaf, size))
    if expected is not None and not every:
        if (sizes := {size for *_, size in found}) and expected not in sizes:
            raise BatchError(
                f"the items of the batch have {' or '.join(map(str, sorted(sizes)))} rows, but "
                f"the list of indices that was loaded has {expected}. The collate function must "
                "leave out no example"
            )
        return expected
    tensors = [(name_of(path), size) for path, leaf, size in found if isinstance(leaf, Tensor)]
    if not tensors:
        raise BatchError(
            f"the batch ({type(batch).__name__}) holds no tensor with rows. Let the collate "
            f"function stack the examples into tensors. {BEFORE_LOADING}"
        )
    told, count = tensors[0]
    if expected is not None:
        told, count = "the list of indices that was loaded", expected
    for path, leaf, size in found:
        if size != count:
            shape = () if isinstance(leaf, (list, tuple)) else tuple(leaf.shape)
            advice = (
                "The collate function must return one row for each example, on the first axis, "
                "and leave out no example: stack lists of tensors, padded if their sizes differ. "
                "If the item is the same in every batch, as a vocabulary is, pass "
                f"whole={{{path!r}}}. {BEFORE_LOADING}"
            )
            if count in shape:
                advice = rows_elsewhere(shape.index(count))
            raise BatchError(f"{name_of(path)} has {size} rows, but {told} has {count}. {advice}")
    return count


def rows_elsewhere(axis: int) -> str:
    swapped = f"If its rows are on axis {axis}, put .transpose(0, {axis}) of it into the batch"
    return f"{swapped} and undo it in the model."


def check_layout(batch: Any, layout: Layout, *, takes: bool = True) -> None:
    found = [path for path, _ in named_leaves(batch)]
    padded = layout.pad.given if isinstance(layout.pad, Padding) else layout.pad
    for option, paths in (("whole", layout.whole), ("pad", padded)):
        if lost := sorted(set(paths) - set(found)):
            raise BatchError(
                f"{option}= names {', '.join(map(repr, lost))}, but the paths in the batch "
                f"({type(batch).__name__}) are {', '.join(map(repr, found)) or 'none'}"
            )
    if not takes:
        return
    try:
        cut_rows(batch, layout, 0, 1)
    except (RuntimeError, TypeError) as error:  # such as a TensorDict, whose rows are fixed
        kind = type(batch).__name__
        raise BatchError(
            f"a {kind} with other rows cannot be made ({error}): return a dict. {BEFORE_LOADING}"
        ) from error


def cut_rows(batch: Any, layout: Layout, start: int, stop: int) -> Any:
    """Return rows `start` to `stop` of a batch; tensors are views, not copies."""
    if not layout.whole and _are_tensors(batch):
        return type(batch)([leaf[start:stop] for leaf in batch])

    def part(path: str, leaf: Any) -> Any:
        if path in layout.whole or row_count(path, leaf) is None:
            return leaf
        rows = leaf[start:stop]
        return type(leaf)(rows) if isinstance(leaf, (list, tuple)) else rows

    return _rebuild(batch, starmap(part, named_leaves(batch)))


def join_rows(batches: Sequence[Any], layout: Layout, rows: Sequence[Tensor] | None = None) -> Any:
    """Return one batch of the `rows`, by position in each batch; None takes all rows."""
    first, *others = columns = [dict(named_leaves(batch)) for batch in batches]
    for other in others:
        if other.keys() != first.keys():
            raise BatchError(
                f"batches of different structure cannot be joined: one has {[*first]}, another "
                f"{[*other]}"
            )
    joined = [_join_leaves(path, [each[path] for each in columns], rows, layout) for path in first]
    return _rebuild(batches[0], iter(joined))


def _join_leaves(
    path: str, leaves: Sequence[Any], rows: Sequence[Tensor] | None, layout: Layout
) -> Any:
    if path in layout.whole:
        return _join_wholes(path, leaves)
    plain = _are_tensors(leaves)  # nearly always
    if plain and len({(each.dtype, each.device, each.shape[1:]) for each in leaves}) == 1:
        return _join_tensors(leaves, rows)
    if len(kinds := {_kind(leaf) for leaf in leaves}) > 1:
        raise BatchError(
            "batches of different structure cannot be joined: "
            f"{name_of(path)} is {' or '.join(sorted(kinds))}"
        )
    # not only the first leaf: it may be the empty list of a batch without rows
    if {row_count(path, leaf) for leaf in leaves} == {None}:
        return _join_wholes(path, leaves)
    kind = type(leaves[0])
    if not issubclass(kind, (list, tuple)):
        leaves = _pad_to_equal(path, leaves, layout)
    if isinstance(leaves[0], Tensor):
        # Waiting rows of a saved state are plain tensors.
        own = next((kind for kind in map(type, leaves) if kind is not Tensor), Tensor)
        return _join_tensors(leaves, rows).as_subclass(own)
    picks = [range(len(leaf)) for leaf in leaves] if rows is None else [r.tolist() for r in rows]
    pairs = [*zip(leaves, picks, strict=True)]
    if issubclass(kind, (list, tuple)):
        return kind([leaf[row] for leaf, pick in pairs for row in pick])
    return np.concatenate([leaf[[*pick]] for leaf, pick in pairs])


def _join_wholes(path: str, leaves: Sequence[Any]) -> Any:
    first, *others = leaves
    # Parts of one batch share the object. Only another object on a GPU makes the CPU wait.
    if not all(leaf is first or are_equal(first, leaf) for leaf in others):
        raise BatchError(
            f"rows of several batches are joined, but {name_of(path)} has no rows, and differs "
            "between them. Let the collate function return one row of it for each example, or none"
        )
    return first


def are_equal(leaf: Any, other: Any) -> bool:
    if isinstance(leaf, Tensor) and isinstance(other, Tensor):
        plain = leaf.layout is other.layout is torch.strided and not leaf.is_nested
        if not plain or leaf.shape != other.shape or leaf.dtype != other.dtype:
            return False
        return bool(((leaf == other) | (leaf != leaf) & (other != other)).all())
    if type(leaf) is not type(other) or isinstance(leaf, PackedSequence):
        return False
    if isinstance(leaf, (np.ndarray, np.generic)):
        return np.array_equal(leaf, other)
    return (leaf == other) is True


def _join_tensors(leaves: Sequence[Tensor], rows: Sequence[Tensor] | None) -> Tensor:
    first = leaves[0]
    if rows is None:
        return torch.cat([leaf.detach() for leaf in leaves])  # one kernel
    if (signed := SIGNED.get(first.dtype)) is not None:
        return _join_tensors([leaf.view(signed) for leaf in leaves], rows).view(first.dtype)
    form = CHANNELS_LAST.get(first.ndim)
    if form is None or first.is_contiguous() or not first.is_contiguous(memory_format=form):
        form = torch.contiguous_format
    counts = [each.shape[0] for each in rows]
    shape = sum(counts), *first.shape[1:]
    joined = torch.empty(shape, dtype=first.dtype, device=first.device, memory_format=form)
    for leaf, take, part in zip(leaves, rows, joined.split_with_sizes(counts), strict=True):
        # Rows are drawn on the CPU if without scores, and on a GPU if scores are there.
        if take.device != leaf.device:
            take = move_tensor(take, leaf.device)
        torch.index_select(leaf.detach(), 0, take, out=part)
    return joined


def _pad_to_equal(path: str, leaves: Sequence[Any], layout: Layout) -> Sequence[Any]:
    shapes = {tuple(leaf.shape[1:]) for leaf in leaves}
    # NumPy widens types when it joins, so strings of different lengths can be joined.
    kinds = {
        (leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else leaf.dtype.kind
        for leaf in leaves
    }
    if len(shapes) == 1 and len(kinds) == 1:
        return leaves
    if path not in layout.pad or len({len(shape) for shape in shapes}) > 1 or len(kinds) > 1:
        found = {
            f"{list(leaf.shape)} {leaf.dtype} on {getattr(leaf, 'device', 'cpu')}"
            for leaf in leaves
        }
        raise BatchError(
            f"rows of {name_of(path)} cannot be joined: {', '.join(sorted(found))}. They must have "
            "the same type, device and, after the first axis, shape; "
            f"pad={{{path!r}: value}} pads them on the right."
        )
    longest, padded = [max(sizes) for sizes in zip(*shapes, strict=True)], []
    for leaf in leaves:
        axes = [*zip(longest, leaf.shape[1:], strict=True)]
        margins = [side for wide, narrow in reversed(axes) for side in (0, wide - narrow)]
        wide = torch.nn.functional.pad(torch.as_tensor(leaf), margins, value=layout.pad[path])
        padded.append(wide if isinstance(leaf, Tensor) else wide.numpy())
    return padded


def _kind(leaf: Any) -> str:
    if isinstance(leaf, (Tensor, np.ndarray)):
        kind = "Tensor" if isinstance(leaf, Tensor) else "ndarray"  # of any subclass
        return f"a {kind} {'with rows' if leaf.ndim else 'of one number'}"
    return "a list of rows" if isinstance(leaf, (list, tuple)) else "a single value"


def row_count(path: str, leaf: Any) -> int | None:
    """Return a leaf's number of rows; None for a scalar. Refuse leaves that cannot be cut."""
    kind = f"a {type(leaf).__name__}"
    if isinstance(leaf, Tensor) and (leaf.is_nested or leaf.layout != torch.strided):
        kind = "a nested tensor" if leaf.is_nested else f"a {leaf.layout} tensor"
    elif type(leaf) not in (Tensor, np.ndarray) and (
        isinstance(leaf, np.ndarray) or (isinstance(leaf, Tensor) and vars(leaf))
    ):
        kind += " that holds more than numbers"
    elif isinstance(leaf, (Tensor, np.ndarray)):
        return leaf.shape[0] if leaf.ndim else None
    elif isinstance(leaf, (list, tuple)) and not isinstance(leaf, PackedSequence):
        return len(leaf) or None
    elif isinstance(leaf, (*PLAIN, np.generic)):
        return None
    whole = f" If it is the same in every batch, pass whole={{{path!r}}}." if path else ""
    raise BatchError(
        f"{name_of(path)} is {kind}, from which rows cannot be taken. Let the collate function "
        f"return plain tensors in tuples, lists or mappings.{whole} {BEFORE_LOADING}"
    )


def name_of(path: str) -> str:
    return f"batch item {path!r}" if path else "the batch"


def share_memory(part: Tensor, whole: Tensor) -> bool:
    if part.device != whole.device or not whole.numel():
        return False
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def rows_of(part: Tensor, whole: Tensor) -> slice | None:
    """Return the rows of `whole` that `part` is a view of, flattened or not; None if it is none."""
    if part is whole:
        return slice(0, len(whole)) if whole.ndim else None
    if not part.ndim or not whole.ndim or not share_memory(part, whole):
        return None
    stride = whole.stride(0) if len(whole) > 1 else whole.numel()
    offset, count = part.storage_offset() - whole.storage_offset(), len(part)
    if (len(part) > 1 and part.stride(0) != stride) or _span(part) > _span(whole):
        if not part.is_contiguous() or not whole.is_contiguous() or stride < 1:
            return None
        if part.numel() % stride or offset % stride:
            return None
        count = part.numel() // stride
    start = offset // max(stride, 1)
    return slice(start, start + count) if 0 <= start <= len(whole) - count else None


def _span(tensor: Tensor) -> int:
    """Return the distance in memory between the first and the last number of a row."""
    return sum((tensor.shape[axis] - 1) * tensor.stride(axis) for axis in range(1, tensor.ndim))
