"""Check once whether the rows of a batch are its examples, in the order of their keys."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from selective_backprop._batches import structure
from selective_backprop._batches.structure import BEFORE_LOADING, Layout, name_of, named_leaves
from selective_backprop._core.errors import BatchError, warn
from selective_backprop._pipeline.rows import kept_streams

INTEGERS = (torch.int32, torch.int64)
MANY = 8  # fewer labels are often in ascending order by chance
MOST_COMPARED = 4096  # numbers of a row


def check_examples(
    batch: Any,
    keys: Sequence[Any],
    loader: DataLoader[Any],
    layout: Layout,
    device: torch.device | None,
    *,
    takes: bool,
    ordered: bool,
) -> None:
    """Refuse a batch whose rows are not its examples, as examples collated by themselves show.

    Other values prove nothing, as random examples have. But an example alone must have one row,
    hold no position in the batch, and not be another row of the batch. If `takes`, rows are taken
    from batches; if `ordered`, they are paired with `keys`.
    """
    if loader.collate_fn is default_collate:
        return  # it stacks examples on the first axis
    leaves = named_leaves(batch)
    # A batch of one looks like an example alone, so it is compared with a batch of two.
    places, wanted = [1], [[keys[0], keys[0]]]
    if len(keys) > 1:
        places, wanted = [len(keys) - 1, 0], [[keys[-1]], [keys[0]]]
    sure: set[str] = set()
    for place, other in zip(places, _load(loader, wanted, device), strict=False):
        alone = named_leaves(other)
        if [path for path, _ in alone] != [path for path, _ in leaves]:
            break
        pair = (leaves, alone) if len(keys) > 1 else (alone, leaves)
        columns = [
            (path, whole, single)
            for (path, whole), (_, single) in zip(*pair, strict=True)
            if path not in layout.whole
        ]
        if takes:
            sure.update(each[0] for each in columns if _has_row(*each, place, max(2, len(keys))))
        if ordered:
            _check_order(columns, place, keys)
    if takes:
        warn_of_axes(batch, layout, len(keys), sure)


def check_order(batch: Any, keys: Sequence[Any], loader: DataLoader[Any]) -> None:
    check_examples(batch, keys, loader, Layout(), None, takes=False, ordered=True)


def _load(
    loader: DataLoader[Any], batches: list[list[Any]], device: torch.device | None
) -> Iterable[Any]:
    # Workers load them if there are any: all workers would share files opened in this process.
    own: dict[str, Any] = {"batch_sampler": batches}
    if loader.batch_sampler is None:
        own = {"batch_size": None, "sampler": batches}
    for option in ("collate_fn", "multiprocessing_context", "worker_init_fn", "timeout"):
        own[option] = getattr(loader, option)
    try:
        with kept_streams(loader, device):
            return list(DataLoader(loader.dataset, num_workers=min(1, loader.num_workers), **own))
    except Exception:  # such as a collate function that needs several examples
        return ()


def _has_row(path: str, whole: Any, alone: Any, place: int, examples: int) -> bool:
    """Return whether a leaf surely has one row per example; refuse it if it surely has not.

    `alone` is the leaf in a batch of one of the examples only, which is row `place` of `whole`.
    """
    found, rows = structure.row_count(path, whole), structure.row_count(path, alone)
    if found is None or rows is None or getattr(whole, "ndim", 1) != getattr(alone, "ndim", 1):
        return False  # such as after `squeeze()`, which leaves an example alone without rows
    if (found, rows) != (examples, 1):
        _refuse(path, whole, alone, examples)
    whole, alone = _as_tensor(whole), _as_tensor(alone)
    if whole is None or alone is None:
        return True
    counts = whole.ndim == 1 and whole.dtype in INTEGERS and bool(whole[place]) and not alone[0]
    if counts and bool((whole[1:] >= whole[:-1]).all()):
        raise BatchError(
            f"{name_of(path)} holds positions in the batch: 0 for an example alone, but "
            f"{int(whole[place])} for the same example in row {place}. They are wrong once rows "
            "are taken: compute them in your loop, or let the collate function return one row for "
            f"each example of the item that they point into. {BEFORE_LOADING}"
        )
    # One entry may be one row, or one step of an example that has no more.
    unclear = whole.ndim > 1 and whole.shape[1] == examples and alone.shape[1] == 1
    return not unclear or bool(_find(alone[0], whole)[place])


def _refuse(path: str, whole: Any, alone: Any, examples: int) -> NoReturn:
    shapes = [each.shape for each in (alone, whole) if not isinstance(each, (list, tuple))]
    axes = [axis for axis, size in enumerate(zip(*shapes, strict=True)) if size == (1, examples)]
    if axes:
        advice = structure.rows_elsewhere(axes[0])
    elif structure.are_equal(whole, alone):
        advice = f"If it is the same in every batch, pass whole={{{path!r}}}."
    else:
        advice = (
            "Let the collate function return one row for each example, padded if their sizes "
            f"differ. {BEFORE_LOADING}"
        )
    raise BatchError(
        f"{name_of(path)} has {len(whole)} rows for {examples} examples and {len(alone)} for one "
        f"alone, so its first axis does not hold the examples. {advice}"
    )


def _check_order(
    columns: Collection[tuple[str, Any, Any]], place: int, keys: Sequence[Any]
) -> None:
    found = []
    for _, *leaves in columns:
        whole, alone = map(_as_tensor, leaves)
        if whole is None or alone is None or (len(whole), len(alone)) != (len(keys), 1):
            continue
        # Rows with less than three different numbers, such as labels and masks, are often equal.
        if len(set(alone[0].flatten()[:MOST_COMPARED].tolist())) > 2:
            found.append(_find(alone[0], whole))
    if any(bool(rows.any()) for rows in found) and not any(bool(rows[place]) for rows in found):
        other = next(int(rows.nonzero()[0]) for rows in found if bool(rows.any()))
        raise BatchError(
            f"example {keys[place]!r} of the data set was drawn for row {place}, but is row "
            f"{other} of the batch: the collate function changes the order of examples, so losses "
            "would be recorded for others. Sort in the model (pack_padded_sequence does so with "
            "enforce_sorted=False)"
        )


def _find(row: Tensor, rows: Tensor) -> Tensor:
    """Return in which rows a row is found, followed at most by one repeated value, the padding."""
    inside = tuple(map(slice, row.shape))
    if row.ndim + 1 != rows.ndim or rows[0][inside].shape != row.shape:
        return torch.zeros(len(rows), dtype=torch.bool)
    outside = torch.ones(rows.shape[1:], dtype=torch.bool)
    outside[inside] = False
    rest = rows[:, outside]
    same = (rows[:, *inside] == row).flatten(1).all(1)
    return same & (rest == rest[:, :1]).all(1)


def _as_tensor(leaf: Any) -> Tensor | None:
    """Return a plain tensor on the CPU; None for other leaves, and without rows."""
    plain = isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
    if not plain or not leaf.ndim or leaf.dtype in structure.SIGNED:
        return None
    return leaf.detach().as_subclass(Tensor).cpu()


def warn_of_axes(
    batch: Any, layout: Layout, count: int, sure: Collection[str] = frozenset()
) -> None:
    """Warn of leaves that may have no rows on their first axis, except of `sure` ones."""
    for path, leaf in named_leaves(batch):
        if path in sure or path in layout.whole or not isinstance(leaf, Tensor):
            continue
        if count > 1 and leaf.shape[:2] == (count, count):
            warn(
                f"{name_of(path)} has {count} entries on each of its first two axes, and rows "
                f"are taken from axis 0. {structure.rows_elsewhere(1)} If it holds pairs of rows, "
                "compute it in your loop"
            )
        elif leaf.ndim == 1 and leaf.dtype in INTEGERS and _may_be_places(leaf.tolist()):
            warn(
                f"{name_of(path)} ascends, as if it said which row of the batch each entry of "
                "another item belongs to. If so, rows cannot be taken from the batch: let the "
                "collate function return one row of that item for each example"
            )


def _may_be_places(values: list[int]) -> bool:
    """Return whether numbers ascend as labels hardly do: some twice, and nearly to the end."""
    count = len(values)
    within = count >= MANY and values[0] >= 0 and count <= 2 * values[-1] < 2 * count
    return within and len(set(values)) < count and values == sorted(values)
