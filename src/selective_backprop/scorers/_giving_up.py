"""Which examples are given up: those of losses so high that hardly any like them recover."""

from collections.abc import Iterator

import numpy as np

from selective_backprop._core.types import Float32, Int32, Int64

EVEN = np.float32(np.log(2.0))  # the cross-entropy of a target that has probability 1/2
CHUNK = 2**18  # examples looked at together, so that what is made of them fits a cache
_BIN = 12  # low bits of a float32 that losses of one bin differ in: bins are 0.05 % wide
MOST_SORTED = 2**16  # losses that are sorted without a look at bins
TOGETHER = 64  # bins whose losses are sorted together
Losses = Float32[np.ndarray, "lag example"]


def chunks(examples: int) -> Iterator[slice]:
    """Yield slices of all examples."""
    return (slice(start, start + CHUNK) for start in range(0, examples, CHUNK))


def given_up(
    losses: Losses, classes: Float32[np.ndarray, " example"] | None, share: float
) -> Int64[np.ndarray, " row"]:
    """Return the examples whose losses are so high that fewer than a share like them recover.

    Losses are newest first, at least two of each example; NaN where it has fewer. A class of which
    less than half is learned loses none; classes are NaN where they are not known, and examples
    without one make one class.
    """
    recoveries = _Recoveries(losses)
    limit = recoveries.limit(share) if recoveries.begun else np.inf
    if limit == np.inf:
        return np.empty(0, np.int64)
    found = []
    for part in chunks(losses.shape[1]):
        lost = np.minimum.reduce(losses[:, part]) >= limit  # NaN is not
        lost &= np.isfinite(np.maximum.reduce(losses[:, part]))
        found.append(np.flatnonzero(lost) + part.start)
    lost = np.concatenate(found)
    if classes is not None and len(lost):
        lost = lost[_half_learned(losses[0], classes, lost)]
    return lost


class _Recoveries:
    """How many examples of high losses had their next loss at most at ln 2, by the higher loss."""

    def __init__(self, losses: Losses) -> None:
        self._high: list[tuple[np.ndarray, np.ndarray]] = []  # losses, whether the next was low
        known = learned = 0
        for part in chunks(losses.shape[1]):
            has_all = np.isfinite(np.maximum.reduce(losses[:, part]))
            low, before = losses[0, part][has_all] <= EVEN, losses[1, part][has_all]
            was_high = before > EVEN
            self._high.append((before[was_high], low[was_high]))
            known, learned = known + len(low), learned + int(np.count_nonzero(low))
        self.begun = 2 * learned >= known  # whether at least half of these examples are learned

    def limit(self, share: float) -> float:
        """Return the lowest loss from which on too few recover; infinity if there is none."""
        if sum(len(losses) for losses, _ in self._high) <= MOST_SORTED:
            return _limit(*_joined(self._high), share)
        counts = np.zeros((2, _bins(np.array([np.inf], np.float32))[0] + 2), np.int64)
        for losses, back in self._high:
            bins = _bins(losses)
            for row, each in enumerate((bins, bins[back])):
                counted = np.bincount(each)
                counts[row, : len(counted)] += counted
        # Of examples in a bin or higher ones; the last bin is empty.
        all_from, back_from = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
        fewest = (back_from[1:] + 1) / (all_from[:-1] + 1)  # share of a bin's that may recover
        held = np.flatnonzero((counts[0, :-1] > 0) & (fewest < share))
        while len(held):  # bins in which the limit may be, those of lowest losses first
            low = int(held[0])
            high = min(low + TOGETHER, counts.shape[1] - 1)
            beyond = int(all_from[high]), int(back_from[high])
            found = _limit(*self._between(low, high), share, *beyond)
            if found < np.inf:
                return found
            held = held[held >= high]
        return np.inf

    def _between(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """Return losses in bins from `low` to below `high`, and whether the next was low."""
        parts = []
        for losses, back in self._high:
            bins = _bins(losses)
            inside = (bins >= low) & (bins < high)
            parts.append((losses[inside], back[inside]))
        return _joined(parts)


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    losses, back = zip(*parts, strict=True)
    return np.concatenate(losses), np.concatenate(back)


def _limit(
    losses: np.ndarray, back: np.ndarray, share: float, beyond: int = 0, beyond_back: int = 0
) -> float:
    """Return the lowest of some losses from which on fewer than a share recover, or infinity.

    `beyond` are higher than these, and of them `beyond_back` recovered.
    """
    ascending = np.sort(losses)
    # Of losses as high or higher; fewer where some tie.
    number = np.arange(len(ascending), 0, -1) + beyond
    recovered = np.count_nonzero(back) - np.searchsorted(np.sort(losses[back]), ascending)
    # Both counts start at one, since a share of few examples says little.
    hopeless = (recovered + beyond_back + 1) / (number + 1) < share
    return float(ascending[np.argmax(hopeless)]) if hopeless.any() else np.inf


def _bins(losses: Float32[np.ndarray, " example"]) -> Int32[np.ndarray, " example"]:
    """Return the bin of each loss above ln 2; the bits of positive floats ascend as they do."""
    return (losses.view(np.int32) - EVEN.view(np.int32)) >> _BIN


def _half_learned(
    newest: Float32[np.ndarray, " example"],
    classes: Float32[np.ndarray, " example"],
    lost: Int64[np.ndarray, " row"],
) -> np.ndarray:
    """Return which of the lost examples are of a class of which half is learned."""
    ends = np.fmin.reduce(classes), np.fmax.reduce(classes)
    low, high = (0.0 if np.isnan(end) else float(end) for end in ends)
    unknown = np.float32(low - 1)
    count = int(high - unknown) + 1
    numbered = None
    if count > len(classes):  # so far apart that a count of each takes too much
        numbered = np.unique(np.where(np.isnan(classes), unknown, classes), return_inverse=True)[1]
        count = int(numbered.max()) + 1

    def places(rows: slice | np.ndarray) -> np.ndarray:
        if numbered is not None:
            return numbered[rows]
        some = classes[rows]
        return (np.where(np.isnan(some), unknown, some) - unknown).astype(np.int64)

    known, learned = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for part in chunks(len(newest)):
        some = places(part)
        known += np.bincount(some[np.isfinite(newest[part])], minlength=count)
        learned += np.bincount(some[newest[part] <= EVEN], minlength=count)
    return (2 * learned >= known)[places(lost)]
