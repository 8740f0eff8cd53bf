"""Count, cut and join the rows of any nested batch.

A batch is flattened into a list of its leaves (tensors, arrays, lists of rows, single values) and a
`Structure`. Functions work on the leaves, and the structure puts the containers back around them.
"""

import copy
import dataclasses
import operator
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from selective_backprop._core.errors import BatchError, warn
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
    """What the user said about a batch's structure.

    Attributes:
        whole: paths of leaves that belong to the batch as a whole, not row by row. A path is
            the keys, field names and positions on the way to a leaf, joined by dots.
        pad: value for padding on the right, by path, for leaves whose axes after the first may
            differ in length.
    """

    whole: frozenset[str] = frozenset()
    pad: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """The containers of a batch, without its leaves.

    Batches of one structure share the cached object, so `is` compares two structures, and the path
    to each leaf is built only once.
    """

    kind: type | None  # of the outermost container; None for a leaf
    keys: tuple[Any, ...]  # its keys, field names or positions
    parts: tuple["Structure", ...]
    paths: tuple[str, ...]

    def rebuild(self, batch: Any, leaves: Iterator[Any]) -> Any:
        """Return a batch like the one that was flattened, with other leaves."""
        kind = self.kind
        if kind is None:
            return next(leaves)
        nested = zip(self.parts, _values(batch, self.keys), strict=True)
        values = [
            next(leaves) if part is LEAF else part.rebuild(value, leaves) for part, value in nested
        ]
        if issubclass(kind, (list, tuple)):
            return kind(*values) if hasattr(kind, "_fields") else kind(values)
        named = dict(zip(self.keys, values, strict=True))
        if _container(kind) is not Mapping:
            return dataclasses.replace(batch, **named)
        if kind is dict or not issubclass(kind, MutableMapping):
            return named
        if issubclass(kind, dict) or hasattr(kind, "__copy__"):
            clone = copy.copy(batch)
        else:  # a shallow copy would share the items with the batch
            clone = copy.deepcopy(batch, {id(value): value for value in batch.values()})
        try:
            clone.update(named)
        except RuntimeError as error:  # a TensorDict, whose number of rows is fixed
            raise BatchError(
                f"a {kind.__name__} with other rows cannot be made from that of a batch ({error}). "
                f"Let the collate function return a dict. {BEFORE_LOADING}"
            ) from error
        if issubclass(kind, UserDict) and "_encodings" in vars(clone):
            clone._encodings = None  # of the rows that Transformers' BatchEncoding had before
        return clone

    def derived(self, batch: Any) -> list[Any]:
        """Return the fields of a batch's dataclasses that their `__init__` does not take."""
        kind = self.kind
        if kind is None:
            return []
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        found = [getattr(batch, field.name, None) for field in fields if not field.init]
        for part, value in zip(self.parts, _values(batch, self.keys), strict=True):
            found += part.derived(value)
        return found

    def flatten_alike(self, batch: Any, path: str = "") -> list[Any]:
        """Return the leaves of a batch whose containers differ at most in type and order."""
        if self.kind is None:
            return [batch]
        if _container(self.kind) is Mapping:
            found = set(batch.keys()) if isinstance(batch, Mapping) else type(batch)
            _agree(path, [set(self.keys), found])
        elif issubclass(self.kind, (list, tuple)):
            _agree(path, [len(self.keys), len(batch) if isinstance(batch, (list, tuple)) else -1])
        else:
            _agree(path, [self.kind.__name__, type(batch).__name__])
        leaves = []
        for key, part, value in zip(self.keys, self.parts, _values(batch, self.keys), strict=True):
            leaves += part.flatten_alike(value, _join_path(path, str(key)))
        return leaves


LEAF = Structure(None, (), (), paths=("",))


def flatten(batch: Any, leaves: list[Any]) -> Structure:
    """Append the leaves of a batch to a list, and return its structure."""
    kind = type(batch)
    container = _container(kind)
    if container is Sequence:
        # If the first part is a tensor with axes, this is no list of rows, and no check is needed.
        tells = len(batch) > 0 and type(batch[0]) is Tensor and batch[0].ndim > 0
        container = range(len(batch)) if tells or _holds_structure(batch) else None
    if container is None:
        leaves.append(batch)
        return LEAF
    # Not `tuple(batch)`: a TensorDict iterates over its rows.
    keys = tuple(batch.keys()) if container is Mapping else container
    values = batch if isinstance(batch, (list, tuple)) else _values(batch, keys)
    parts = []
    for value in values:
        if type(value) is Tensor:  # nearly always
            leaves.append(value)
            parts.append(LEAF)
        else:
            parts.append(flatten(value, leaves))
    return _remembered(kind, tuple(parts), *keys)


def _values(batch: Any, keys: Iterable[Any]) -> Iterable[Any]:
    if isinstance(batch, (list, tuple)):
        return batch
    if _container(type(batch)) is Mapping:
        return [batch[key] for key in keys]
    return [getattr(batch, name) for name in keys]


# Typed, since otherwise the keys 1 and True would share a path.
@lru_cache(maxsize=256, typed=True)
def _remembered(kind: type, parts: tuple[Structure, ...], *keys: Any) -> Structure:
    paths = [_join_path(str(k), p) for k, part in zip(keys, parts, strict=True) for p in part.paths]
    return Structure(kind, keys, parts, tuple(paths))


@lru_cache(maxsize=256)
def _container(kind: type) -> Any:
    """Return `Mapping`, `Sequence` or the field names of a container type; None for a leaf."""
    if issubclass(kind, (Tensor, PackedSequence)):
        return None
    if issubclass(kind, Mapping):
        return Mapping
    if issubclass(kind, (list, tuple)):
        return getattr(kind, "_fields", Sequence)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return None


def list_leaves(batch: Any) -> list[Any]:
    """Return the leaves of a batch."""
    flatten(batch, leaves := [])
    return leaves


def map_leaves(function: Callable[[str, Any], Any], batch: Any) -> Any:
    """Return the batch with `function(path, leaf)` in place of each of its leaves."""
    structure = flatten(batch, leaves := [])
    return structure.rebuild(batch, map(function, structure.paths, leaves))


def map_tensors(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """Return the batch with `function(tensor)` in place of each of its tensors."""

    def apply(path: str, leaf: Any) -> Any:
        if _lists_numbers(leaf):
            return type(leaf)([function(part) for part in leaf])
        return function(leaf) if isinstance(leaf, Tensor) else leaf

    return map_leaves(apply, batch)


def move_batch(batch: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on `device`; the batch itself if they already are."""
    if type(batch) in (list, tuple):
        for leaf in batch:
            if type(leaf) is not Tensor or leaf.device != device:
                break
        else:
            return batch  # nearly always on a CPU
    structure = flatten(batch, leaves := [])
    # Most leaves are plain tensors that are on the device already: this saves a call for each.
    moved = [
        leaf if type(leaf) is Tensor and leaf.device == device else _move(leaf, device)
        for leaf in leaves
    ]
    unmoved = all(map(operator.is_, moved, leaves))
    return batch if unmoved else structure.rebuild(batch, iter(moved))


def _move(leaf: Any, device: torch.device) -> Any:
    if _lists_numbers(leaf):
        away = any(part.device != device for part in leaf)
        return type(leaf)([_move(part, device) for part in leaf]) if away else leaf
    tensor = leaf.data if isinstance(leaf, PackedSequence) else leaf
    if not isinstance(tensor, Tensor) or tensor.device == device:
        return leaf
    return leaf.to(device, non_blocking=tensor.is_pinned())


def move_tensor(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; wait for the copy only if it goes to the CPU."""
    return tensor.to(device, non_blocking=device.type != "cpu")


def count_rows(
    batch: Any, layout: Layout, expected: int | None = None, *, every: bool = True
) -> int:
    """Return how many rows a batch has, and check that all of its leaves agree.

    Each leaf must have as many rows as the first tensor or, if given, `expected` rows: the number
    of indices that were loaded. If not `every` leaf must, one is enough, and a batch may have none
    whose rows can be counted.
    """
    if expected is not None and not layout.whole and type(batch) in (list, tuple) and batch:
        for leaf in batch:
            if type(leaf) is not Tensor or leaf.layout is not torch.strided or leaf.is_nested:
                break
            if not leaf.ndim or leaf.shape[0] != expected:
                break
        else:
            return expected  # nearly all batches are lists of plain tensors
    structure = flatten(batch, leaves := [])
    if expected is not None and not every:
        return _check_any(structure, leaves, layout, expected)
    sizes = _count_each(structure, leaves, layout)
    advice = "" if expected is None else f" {BEFORE_LOADING}"
    tensors = [
        (path, size)
        for path, leaf, size in zip(structure.paths, leaves, sizes, strict=True)
        if size is not None and isinstance(leaf, Tensor)
    ]
    if not tensors:
        raise BatchError(
            f"the batch ({type(batch).__name__}) holds no tensor with rows. Let the collate "
            f"function stack the examples into tensors.{advice}"
        )
    first, count = tensors[0]
    count = count if expected is None else expected
    for path, leaf, size in zip(structure.paths, leaves, sizes, strict=True):
        if size is not None and size != count:
            if (listed := _find_listed_rows(batch, count)) is not None:
                raise BatchError(
                    f"{name_of(listed)} is a list of {count} tensors, or of mappings of tensors, "
                    "whose items are not taken for rows. Let the collate function stack them into "
                    "tensors with one row per example, padded if their sizes differ."
                )
            where = name_of(first) if expected is None else "the list of indices that was loaded"
            found = f"{name_of(path)} has {size} rows, but {where} has {count}. "
            shape = () if isinstance(leaf, (list, tuple)) else tuple(leaf.shape)
            if count in shape:
                raise BatchError(found + rows_elsewhere(shape.index(count)))
            raise BatchError(
                f"{found}The collate function must return one row for each example, on the first "
                "axis, and leave out no example. If the item is the same in every batch, as a "
                f"vocabulary is, pass whole={{{path!r}}}.{advice}"
            )
    return count


def rows_elsewhere(axis: int) -> str:
    """Return what to do if the rows of a leaf are on another axis than the first."""
    return (
        f"If its rows are on axis {axis}, put .transpose(0, {axis}) of it into the batch, and "
        "transpose it back in the model."
    )


def _check_any(structure: Structure, leaves: Sequence[Any], layout: Layout, expected: int) -> int:
    """Return `expected`; refuse leaves whose rows can be counted if none has so many."""
    sizes: set[Any] = set()
    for path, leaf in zip(structure.paths, leaves, strict=True):
        if path not in layout.whole:
            with suppress(BatchError):
                sizes.add(row_count(path, leaf))
    sizes.discard(None)
    if sizes and expected not in sizes:
        found = " or ".join(map(str, sorted(sizes)))
        raise BatchError(
            f"the items of the batch have {found} rows, but the list of indices that was loaded "
            f"has {expected}. The collate function must leave out no example"
        )
    return expected


def check_layout(batch: Any, layout: Layout, *, takes: bool = True) -> None:
    """Refuse a batch that cannot be put together again, and paths that it does not have.

    If `takes`, rows will be taken from batches. Then also warn of what joined rows lose.
    """
    structure = flatten(batch, leaves := [])
    found = structure.paths
    padded = layout.pad.given if isinstance(layout.pad, Padding) else layout.pad
    for option, paths in (("whole", layout.whole), ("pad", padded)):
        if lost := sorted(set(paths) - set(found)):
            raise BatchError(
                f"{option}= names {', '.join(map(repr, lost))}, but the paths in the batch "
                f"({type(batch).__name__}) are {', '.join(map(repr, found)) or 'none'}"
            )
    try:
        rebuilt = structure.rebuild(batch, iter(leaves))
    except (TypeError, ValueError) as error:  # such as a dataclass with an `InitVar`
        raise BatchError(
            f"a batch of {type(batch).__name__} cannot be put together from its parts: {error}"
        ) from error
    for path, leaf, new in zip(found, leaves, list_leaves(rebuilt), strict=True):
        if not _is_same(leaf, new):
            raise BatchError(
                f"{name_of(path)} changes when its dataclass is made again from its own fields, as "
                "happens whenever rows are taken from a batch. Change it in the collate function "
                "instead of in __post_init__"
            )
    for value, new in zip(structure.derived(batch), structure.derived(rebuilt), strict=True):
        if isinstance(value, Tensor) and not (isinstance(new, Tensor) and _is_same(value, new)):
            raise BatchError(
                "a dataclass of the batch has a field with init=False whose tensor its __init__ "
                "does not make, so it would be lost when rows are taken. Remove init=False"
            )
    if not takes:
        return
    cut_rows(batch, layout, 0, 1)  # raises if the containers do not take other rows
    for path, leaf in zip(found, leaves, strict=True):
        if path not in layout.whole and _holds_more(leaf):
            warn(
                f"{name_of(path)} is a {type(leaf).__name__}, but chosen rows come as plain "
                f"{'tensors' if isinstance(leaf, Tensor) else 'arrays'}, without what else it "
                "holds. Let the collate function return plain ones"
            )


def _holds_more(leaf: Any) -> bool:
    """Return whether a leaf is of a subclass of tensors or arrays that holds more than values."""
    if isinstance(leaf, np.ndarray):
        return type(leaf) is not np.ndarray
    return isinstance(leaf, Tensor) and type(leaf) is not Tensor and bool(vars(leaf))


def _is_same(leaf: Any, new: Any) -> bool:
    if leaf is new or not isinstance(leaf, Tensor) or not isinstance(new, Tensor):
        return True
    if leaf.shape != new.shape or leaf.dtype != new.dtype:
        return False
    return bool(((leaf == new) | (leaf != leaf) & (new != new)).all())


def cut_rows(batch: Any, layout: Layout, start: int, stop: int) -> Any:
    """Return rows `start` to `stop` of a batch; tensors are views, not copies."""
    structure = flatten(batch, leaves := [])
    for place, size in enumerate(_count_each(structure, leaves, layout)):
        if size is not None:
            leaf = leaves[place]
            part = leaf[start:stop]
            leaves[place] = type(leaf)(part) if isinstance(leaf, (list, tuple)) else part
    return structure.rebuild(batch, iter(leaves))


def join_rows(
    batches: Sequence[Any], layout: Layout, rows: Sequence[Tensor | None] | None = None
) -> Any:
    """Return one batch made of some rows of several batches of the same structure.

    `rows` holds the positions of the wanted rows of each batch; None takes all rows, of one batch
    or of all. Only the wanted rows are copied, each once, into a tensor of the same memory format.
    Leaves that belong to a batch as a whole must be equal in all batches.
    """
    wanted = [None] * len(batches) if rows is None else list(rows)
    structure = flatten(batches[0], first := [])
    columns = [first]
    for batch in batches[1:]:
        if flatten(batch, leaves := []) is not structure:
            leaves = structure.flatten_alike(batch)
        columns.append(leaves)
    joined = []
    for path, *pieces in zip(structure.paths, *columns, strict=True):
        whole = path in layout.whole
        joined.append(
            _join_wholes(path, pieces) if whole else _join_leaves(path, pieces, wanted, layout)
        )
    return structure.rebuild(batches[0], iter(joined))


def _join_leaves(
    path: str, leaves: Sequence[Any], rows: Sequence[Tensor | None], layout: Layout
) -> Any:
    subclass = None
    if not _stack_at_once(leaves):
        _agree(path, [_kind(leaf) for leaf in leaves])
        # not only the first leaf: it may be the empty list of a batch without rows
        if all(row_count(path, leaf) is None for leaf in leaves):
            return _join_wholes(path, leaves)
        if isinstance(leaves[0], (list, tuple)):
            joined: list[Any] = []
            for leaf, take in zip(leaves, rows, strict=True):
                joined.extend(leaf if take is None else [leaf[row] for row in take.tolist()])
            return type(leaves[0])(joined)
        # Waiting rows of a saved state are plain tensors.
        kinds = (type(leaf) for leaf in leaves if not _holds_more(leaf))
        subclass = next((kind for kind in kinds if kind is not Tensor), None)
        leaves = _pad_to_equal(path, leaves, layout)
    if isinstance(leaves[0], Tensor):
        joined = _join_tensors(leaves, rows)
        return joined if subclass is None else joined.as_subclass(subclass)
    arrays = zip(leaves, rows, strict=True)
    return np.concatenate(
        [leaf if take is None else leaf[take.numpy(force=True)] for leaf, take in arrays]
    )


def _join_wholes(path: str, leaves: Sequence[Any]) -> Any:
    """Return what belongs to each batch as a whole, if it is equal in all batches."""
    first, *others = leaves
    # Parts of one batch share the object. Only another object on a GPU makes the CPU wait.
    if not all(leaf is first or are_equal(first, leaf) for leaf in others):
        raise BatchError(
            f"rows of several batches are joined, but {name_of(path)} has no rows, and differs "
            "between the batches. Let the collate function return one row of it for each example, "
            "or leave it out and compute it in your loop"
        )
    return first


def are_equal(leaf: Any, other: Any) -> bool:
    if isinstance(leaf, Tensor) and isinstance(other, Tensor):
        plain = leaf.layout is other.layout is torch.strided and not leaf.is_nested
        return plain and _is_same(leaf, other)
    if type(leaf) is not type(other) or isinstance(leaf, PackedSequence):
        return False
    if isinstance(leaf, (np.ndarray, np.generic)):
        return np.array_equal(leaf, other)
    return (leaf == other) is True


def _stack_at_once(leaves: Sequence[Any]) -> bool:
    """Return whether all are plain tensors whose rows have one type and shape, the usual case."""
    first = leaves[0]
    for leaf in leaves:
        if type(leaf) is not Tensor or leaf.is_nested or leaf.layout is not torch.strided:
            return False
        alike = leaf.dtype == first.dtype and leaf.device == first.device
        if not leaf.ndim or not alike or leaf.shape[1:] != first.shape[1:]:
            return False
    return True


def _join_tensors(leaves: Sequence[Tensor], rows: Sequence[Tensor | None]) -> Tensor:
    counts = [
        leaf.shape[0] if take is None else take.shape[0]
        for leaf, take in zip(leaves, rows, strict=True)
    ]
    first = leaves[0]
    if (signed := SIGNED.get(first.dtype)) is not None:
        return _join_tensors([leaf.view(signed) for leaf in leaves], rows).view(first.dtype)
    form = CHANNELS_LAST.get(first.ndim)
    if form is None or first.is_contiguous() or not first.is_contiguous(memory_format=form):
        form = torch.contiguous_format
    whole = all(take is None for take in rows)
    if whole and first.device.type != "cpu" and form is torch.contiguous_format:
        return torch.cat([leaf.detach() for leaf in leaves])  # one kernel
    joined = torch.empty(
        (sum(counts), *first.shape[1:]), dtype=first.dtype, device=first.device, memory_format=form
    )
    parts = joined.split_with_sizes(counts)
    for leaf, take, part in zip(leaves, rows, parts, strict=True):
        if take is None:
            part.copy_(leaf.detach())
        else:
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
        described = {
            f"{list(leaf.shape)} {leaf.dtype}"
            + (f" on {leaf.device}" if isinstance(leaf, Tensor) else "")
            for leaf in leaves
        }
        found = ", ".join(sorted(described))
        raise BatchError(
            f"rows of {name_of(path)} cannot be joined: {found}. They must have the same type, "
            "device and, after the first axis, shape; "
            f"pad={{{path!r}: value}} pads them on the right."
        )
    longest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    padded = []
    for leaf in leaves:
        margins = [wide - narrow for wide, narrow in zip(longest, leaf.shape[1:], strict=True)]
        if isinstance(leaf, Tensor):
            pairs = [side for margin in reversed(margins) for side in (0, margin)]
            padded.append(torch.nn.functional.pad(leaf, pairs, value=layout.pad[path]))
        else:
            sides = [(0, 0), *((0, margin) for margin in margins)]
            padded.append(np.pad(leaf, sides, constant_values=layout.pad[path]))
    return padded


def _kind(leaf: Any) -> str:
    """Return a leaf's kind in words; only leaves of one kind can be joined."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        kind = "Tensor" if isinstance(leaf, Tensor) else "ndarray"  # of any subclass
        return f"a {kind} {'with rows' if leaf.ndim else 'of one number'}"
    return "a list of rows" if isinstance(leaf, (list, tuple)) else "a single value"


def _count_each(structure: Structure, leaves: Sequence[Any], layout: Layout) -> list[int | None]:
    """Return each leaf's number of rows; None for scalars and for leaves in `whole`."""
    sizes: list[int | None] = []
    for path, leaf in zip(structure.paths, leaves, strict=True):
        if path in layout.whole:
            sizes.append(None)
        elif type(leaf) is Tensor and leaf.layout is torch.strided and not leaf.is_nested:
            sizes.append(leaf.shape[0] if leaf.ndim else None)  # most leaves; this saves a call
        else:
            sizes.append(row_count(path, leaf))
    return sizes


def row_count(path: str, leaf: Any) -> int | None:
    """Return a leaf's number of rows; None for a scalar. Refuse leaves that cannot be cut."""
    if isinstance(leaf, Tensor) and (leaf.is_nested or leaf.layout != torch.strided):
        kind = "nested" if leaf.is_nested else str(leaf.layout).removeprefix("torch.")
        raise BatchError(f"{name_of(path)} is a {kind} tensor, from which rows cannot be taken")
    if isinstance(leaf, (Tensor, np.ndarray)):
        return leaf.shape[0] if leaf.ndim else None
    if isinstance(leaf, PackedSequence):
        raise BatchError(
            f"{name_of(path)} is a PackedSequence, from which rows cannot be taken. Let the model "
            "pack its inputs."
        )
    if isinstance(leaf, (list, tuple)):
        return len(leaf) or None
    if isinstance(leaf, (*PLAIN, np.generic)):
        return None
    whole = f" If it is the same in every batch, pass whole={{{path!r}}}." if path else ""
    raise BatchError(
        f"{name_of(path)} is a {type(leaf).__name__}, from which rows cannot be taken. Let the "
        f"collate function return tensors in tuples, lists or mappings.{whole} {BEFORE_LOADING}"
    )


def _lists_numbers(value: Any) -> bool:
    """Return whether `value` is a list or tuple of zero-dimensional tensors, one per row."""
    listed = isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and len(value) > 0
    return listed and all(isinstance(part, Tensor) and not part.ndim for part in value)


def _find_listed_rows(value: Any, count: int, path: str = "") -> str | None:
    """Return the path of a list that seems to hold one tensor, or mapping of tensors, per row."""
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        listed = all(isinstance(part, Mapping) for part in value) or all(
            isinstance(part, Tensor) for part in value
        )
        # The batch itself may be a pair of tensors with two rows each, which is no list of rows.
        if path and listed and len(value) == count:
            return path
        items = enumerate(value)
    found = (_find_listed_rows(part, count, _join_path(path, str(key))) for key, part in items)
    return next((place for place in found if place is not None), None)


def _holds_structure(value: Sequence[Any]) -> bool:
    """Return whether a list or tuple holds tensors at any depth: then it is no list of rows."""
    if PLAIN.issuperset(map(type, value)) or _lists_numbers(value):
        return False
    for part in value:
        if isinstance(part, (Tensor, np.ndarray)):
            return True
        if isinstance(part, Mapping):
            part = list(part.values())
        elif dataclasses.is_dataclass(part):
            part = [getattr(part, field.name) for field in dataclasses.fields(part)]
        if isinstance(part, (list, tuple)) and _holds_structure(part):
            return True
    return False


def _agree(path: str, found: Sequence[Any]) -> None:
    if any(other != found[0] for other in found[1:]):
        raise BatchError(
            f"batches of different structure cannot be joined: {name_of(path)} consists of "
            f"{found[0]} in one batch and of {next(o for o in found if o != found[0])} in another"
        )


def _join_path(path: str, rest: str) -> str:
    return f"{path}.{rest}" if path and rest else path or rest


def name_of(path: str) -> str:
    return f"batch item {path!r}" if path else "the batch"


def share_memory(part: Tensor, whole: Tensor) -> bool:
    """Return whether `part` shares its storage with `whole`, and `whole` is not empty."""
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
