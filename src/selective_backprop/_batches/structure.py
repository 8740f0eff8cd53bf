"""Rows of any nested batch: count them, take some, join them again."""

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from selective_backprop._core.errors import BatchError

PLAIN = (str, bytes, int, float, complex, bool, type(None))


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the user said about a batch's structure.

    Attributes:
        whole: paths of leaves that belong to the batch as a whole, not row by row. A path is
            the keys, field names and positions on the way to a leaf, joined by dots.
        pad: right-padding value by path, for leaves whose trailing axes may differ in length.
    """

    whole: frozenset[str] = frozenset()
    pad: Mapping[str, float] = dataclasses.field(default_factory=dict)


def count_rows(batch: Any, layout: Layout, expected: int | None = None) -> int:
    """Return how many rows a batch has, having checked that all of its leaves agree.

    Args:
        batch: tensors, arrays and lists, nested in mappings, tuples, lists and dataclasses.
        layout: which leaves are not row by row.
        expected: the number of indices the batch was loaded for, if known; else the length of
            the first tensor counts.

    Raises:
        BatchError: if there is no tensor, if leaves disagree, or if a leaf's rows cannot be
            told apart.
    """
    sizes: dict[str, int] = {}
    tensors: dict[str, int] = {}

    def visit(path: str, leaf: Any) -> Any:
        if path not in layout.whole and (size := _length(path, leaf)) is not None:
            sizes[path] = size
            if isinstance(leaf, Tensor):
                tensors[path] = size
        return leaf

    _rebuild(visit, [batch])
    if not tensors:
        raise BatchError(
            f"the batch ({type(batch).__name__}) holds no tensor with rows; a collate function "
            "that stacks examples into tensors is needed"
        )
    first, count = next((_name(path), size) for path, size in tensors.items())
    if expected is not None:
        first, count = "the list of indices it was loaded for", expected
    for path, size in sizes.items():
        if size != count:
            if (listed := _find_listed_rows(batch, count)) is not None:
                raise BatchError(
                    f"{_name(listed)} is a list of {count} tensors, or of mappings of tensors, "
                    "which is taken for structure and not for rows. Let the collate function "
                    "stack them into tensors of one row per example, padded where their sizes "
                    "differ."
                )
            raise BatchError(
                f"{_name(path)} has {size} rows, where {first} has {count}. If it belongs "
                f"to the batch as a whole, pass whole={{{path!r}}}."
            )
    return count


def check_layout(batch: Any, layout: Layout) -> None:
    """Refuse paths that lead to nothing in a batch.

    Raises:
        BatchError: if there is one; the paths that lead somewhere are listed.
    """
    if not layout.whole and not layout.pad:
        return
    found: list[str] = []

    def visit(path: str, leaf: Any) -> Any:
        found.append(path)
        return leaf

    _rebuild(visit, [batch])
    for option, paths in (("whole", layout.whole), ("pad", layout.pad)):
        if lost := sorted(set(paths) - set(found)):
            raise BatchError(
                f"{option}= names {', '.join(map(repr, lost))}, and the batch "
                f"({type(batch).__name__}) has {', '.join(map(repr, found)) or 'nothing'}"
            )


def cut_rows(batch: Any, layout: Layout, start: int, stop: int) -> Any:
    """Return rows `start` to `stop` of a batch; tensors are views, nothing is copied."""

    def cut(path: str, leaf: Any) -> Any:
        if not _has_rows(path, leaf, layout):
            return leaf
        part = leaf[start:stop]
        return type(leaf)(part) if isinstance(leaf, (list, tuple)) else part

    return _rebuild(cut, [batch])


def join_rows(
    batches: Sequence[Any], layout: Layout, rows: Sequence[Tensor | None] | None = None
) -> Any:
    """Return one batch made of some rows of several batches of the same structure.

    Only the rows asked for are copied, each once, into a tensor of the pieces' memory format.
    What belongs to a batch as a whole is taken from the first.

    Args:
        batches: the pieces, at least one.
        layout: which leaves are not row by row, and which may be padded.
        rows: for each piece the positions of its rows, or None for all of them; None for all
            rows of all pieces.

    Raises:
        BatchError: if structures differ, or trailing shapes differ where no padding is given.
    """
    wanted = [None] * len(batches) if rows is None else list(rows)

    def join(path: str, *leaves: Any) -> Any:
        if path in layout.whole:
            return leaves[0]
        _agree(path, [_kind(leaf) for leaf in leaves])
        # the first may be an empty list, of a batch that has no rows left
        if not any(_has_rows(path, leaf, layout) for leaf in leaves):
            return leaves[0]
        if isinstance(leaves[0], Tensor):
            return _join_tensors(path, leaves, wanted, layout)
        if isinstance(leaves[0], np.ndarray):
            arrays = zip(_pad_to_equal(path, leaves, layout), wanted, strict=True)
            return np.concatenate(
                [leaf if take is None else leaf[take.numpy(force=True)] for leaf, take in arrays]
            )
        joined: list[Any] = []
        for leaf, take in zip(leaves, wanted, strict=True):
            joined.extend(leaf if take is None else [leaf[row] for row in take.tolist()])
        return type(leaves[0])(joined)

    return _rebuild(join, batches)


def move_batch(batch: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on `device`; the batch itself if they already are."""
    moved = False

    def move(path: str, leaf: Any) -> Any:
        nonlocal moved
        if _lists_numbers(leaf):
            return type(leaf)([move(path, part) for part in leaf])
        tensor = leaf.data if isinstance(leaf, PackedSequence) else leaf
        if not isinstance(tensor, Tensor) or tensor.device == device:
            return leaf
        moved = True
        return leaf.to(device, non_blocking=tensor.is_pinned())

    result = _rebuild(move, [batch])
    return result if moved else batch


def map_tensors(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    """Return the batch with `function(tensor)` in place of each of its tensors."""

    def apply(path: str, leaf: Any) -> Any:
        if _lists_numbers(leaf):
            return type(leaf)([function(part) for part in leaf])
        return function(leaf) if isinstance(leaf, Tensor) else leaf

    return _rebuild(apply, [batch])


def map_leaves(function: Callable[[str, Any], Any], batch: Any) -> Any:
    """Return the batch with `function(path, leaf)` in place of each of its leaves."""
    return _rebuild(function, [batch])


def _join_tensors(
    path: str, leaves: Sequence[Tensor], rows: Sequence[Tensor | None], layout: Layout
) -> Tensor:
    leaves = _pad_to_equal(path, leaves, layout)
    counts = [
        leaf.shape[0] if take is None else take.shape[0]
        for leaf, take in zip(leaves, rows, strict=True)
    ]
    first = leaves[0]
    joined = torch.empty(
        (sum(counts), *first.shape[1:]),
        dtype=first.dtype,
        device=first.device,
        memory_format=_memory_format(first),
    )
    with torch.no_grad():
        for leaf, take, part in zip(leaves, rows, joined.split(counts), strict=True):
            if take is None:
                part.copy_(leaf)
            else:
                take = take.to(leaf.device, non_blocking=True)  # drawn on the host without scores
                torch.index_select(leaf.detach(), 0, take, out=part)
    return joined


def _pad_to_equal(path: str, leaves: Sequence[Any], layout: Layout) -> Sequence[Any]:
    shapes = {tuple(leaf.shape[1:]) for leaf in leaves}
    # NumPy widens types where it joins, so that strings of any length go together
    kinds = {
        (leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else leaf.dtype.kind
        for leaf in leaves
    }
    if len(shapes) == 1 and len(kinds) == 1:
        return leaves
    if path not in layout.pad or len({len(shape) for shape in shapes}) > 1 or len(kinds) > 1:
        found = ", ".join(sorted({f"{list(leaf.shape)} {leaf.dtype}" for leaf in leaves}))
        raise BatchError(
            f"rows of {_name(path)} cannot be joined: {found}. Batches that are joined must agree "
            f"in type and trailing shape; pad={{{path!r}: value}} right-pads them."
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


def _memory_format(tensor: Tensor) -> torch.memory_format:
    if tensor.is_contiguous():
        return torch.contiguous_format
    if tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    if tensor.ndim == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.channels_last_3d
    return torch.contiguous_format


def _has_rows(path: str, leaf: Any, layout: Layout) -> bool:
    return path not in layout.whole and _length(path, leaf) is not None


def _kind(leaf: Any) -> str:
    """Return in words what a leaf can be joined with."""
    if isinstance(leaf, (Tensor, np.ndarray)):
        return f"a {type(leaf).__name__} {'with rows' if leaf.ndim else 'of one number'}"
    return "a list of rows" if isinstance(leaf, (list, tuple)) else "a single value"


def _length(path: str, leaf: Any) -> int | None:
    """Return a leaf's number of rows, None for a scalar; refuse what cannot be told apart."""
    if isinstance(leaf, Tensor):
        if leaf.is_nested or leaf.layout != torch.strided:
            kind = "nested" if leaf.is_nested else str(leaf.layout).removeprefix("torch.")
            raise BatchError(f"{_name(path)} is a {kind} tensor, whose rows cannot be taken")
        return leaf.shape[0] if leaf.ndim else None
    if isinstance(leaf, np.ndarray):
        return leaf.shape[0] if leaf.ndim else None
    if isinstance(leaf, PackedSequence):
        raise BatchError(
            f"{_name(path)} is a PackedSequence, whose rows cannot be taken. Let the model pack "
            f"its inputs, or pass whole={{{path!r}}}."
        )
    if isinstance(leaf, (list, tuple)):
        return len(leaf) or None
    if isinstance(leaf, (*PLAIN, np.generic)):
        return None
    raise BatchError(
        f"{_name(path)} is a {type(leaf).__name__}, whose rows cannot be taken. Let the collate "
        f"function return tensors in tuples, lists or mappings, or pass whole={{{path!r}}}."
    )


def _lists_numbers(value: Any) -> bool:
    """Whether it is a list or tuple of tensors of no axes, of which each is a row's."""
    listed = isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and len(value) > 0
    return listed and all(isinstance(part, Tensor) and not part.ndim for part in value)


def _find_listed_rows(value: Any, count: int, path: str = "") -> str | None:
    """Return the path of a list that seems to hold a tensor, or a mapping of them, per row."""
    items: Any = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        listed = all(isinstance(part, Mapping) for part in value) or all(
            isinstance(part, Tensor) for part in value
        )
        # A batch that is a pair of tensors is none, even where it has two rows.
        if path and listed and len(value) == count:
            return path
        items = enumerate(value)
    found = (_find_listed_rows(part, count, _join_path(path, key)) for key, part in items)
    return next((place for place in found if place is not None), None)


def _holds_structure(value: Sequence[Any]) -> bool:
    """Whether a list or tuple has tensors somewhere within, and so is no list of rows."""
    if _lists_numbers(value):
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


def _rebuild(visit: Callable[..., Any], batches: Sequence[Any], path: str = "") -> Any:
    """Return the first batch's structure with `visit(path, *leaves)` at its leaves."""
    first = batches[0]
    if isinstance(first, (Tensor, PackedSequence)):
        return visit(path, *batches)
    if isinstance(first, Mapping):
        keys: Collection[Any] = list(first)
        _agree(path, [set(b) if isinstance(b, Mapping) else type(b) for b in batches])
        parts = {
            key: _rebuild(visit, [batch[key] for batch in batches], _join_path(path, key))
            for key in keys
        }
        if type(first) is not dict and isinstance(first, MutableMapping):
            clone = copy.copy(first)
            clone.update(parts)
            return clone
        return parts
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        _agree(path, [type(batch).__name__ for batch in batches])
        names = [field.name for field in dataclasses.fields(first) if field.init]
        return dataclasses.replace(
            first,
            **{
                name: _rebuild(
                    visit, [getattr(batch, name) for batch in batches], _join_path(path, name)
                )
                for name in names
            },
        )
    fields = getattr(first, "_fields", None)
    if isinstance(first, (list, tuple)) and (fields is not None or _holds_structure(first)):
        _agree(path, [len(batch) if isinstance(batch, (list, tuple)) else -1 for batch in batches])
        items = [
            _rebuild(visit, [batch[i] for batch in batches], _join_path(path, name))
            for i, name in enumerate(fields or range(len(first)))
        ]
        return type(first)(*items) if fields is not None else type(first)(items)
    return visit(path, *batches)


def _agree(path: str, found: Sequence[Any]) -> None:
    if any(other != found[0] for other in found[1:]):
        raise BatchError(
            f"batches of different structure cannot be joined: {_name(path)} is made of "
            f"{found[0]} in one and of {next(o for o in found if o != found[0])} in another"
        )


def _join_path(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _name(path: str) -> str:
    return f"batch item {path!r}" if path else "the batch"


def rows_of(part: Tensor, whole: Tensor) -> slice | None:
    """Return which rows of a tensor a view of it holds; None if it is none."""
    if part is whole:
        return slice(0, len(whole)) if whole.ndim else None
    if not part.ndim or not whole.ndim or not whole.numel() or part.device != whole.device:
        return None
    if part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr():
        return None
    stride = whole.stride(0) if len(whole) > 1 else whole.numel()
    if len(part) > 1 and part.stride(0) != stride:
        return None
    start = (part.storage_offset() - whole.storage_offset()) // max(stride, 1)
    return slice(start, start + len(part)) if 0 <= start <= len(whole) - len(part) else None
