"""Two rules for which examples to give up, because their labels are probably wrong.

Both rules are this project's own. An example *recovers* if its loss was above ln 2 and its next
loss is not. The higher a loss, the fewer examples recover from it, and mislabelled examples hardly
ever do. `given_up` finds the lowest loss at or above which less than a given share of examples
recovers. It gives up an example if all of its last losses reach this limit, which takes some epochs
to see. `highest` acts from the second epoch on: it gives up the examples with the highest last
losses, as many as labels were found wrong in the first epoch (`LabelNoise`).
"""

from collections.abc import Iterator

import numpy as np

from selective_backprop._core.types import Float32, Int32, Int64

# The cross-entropy of a target of probability 1/2. Up to this loss, no other class is likelier.
EVEN = np.float32(np.log(2.0))
CHUNK = 2**18  # examples taken at once: 1 MiB of float32, so that intermediate results fit a cache
# Losses of one bin differ only in their 12 low bits. A float32 has 23 bits of fraction, so a bin
# is 2**(12 - 23) = 0.05 % wide, and losses from ln 2 to infinity fall into some 260,000 bins.
_BIN = 12
SAMPLED = 2**20  # this many examples give a quantile to within 0.0005
MOST_SORTED = 2**16  # up to this many losses are simply sorted, which takes milliseconds
TOGETHER = 64  # bins that are sorted together: they span 3 % of a loss, and seldom hold many losses
Losses = Float32[np.ndarray, "lag example"]


def chunks(examples: int) -> Iterator[slice]:
    """Yield slices of all examples."""
    return (slice(start, start + CHUNK) for start in range(0, examples, CHUNK))


def given_up(
    losses: Losses, classes: Float32[np.ndarray, " example"] | None, share: float
) -> Int64[np.ndarray, " row"]:
    """Return the examples with losses so high that less than `share` of such examples recovers.

    Losses are newest first, at least two rows; missing losses are NaN. A class loses no example
    before half of it is learned. Unknown classes are NaN, and count as one class.
    """
    recoveries = _Recoveries(losses)
    # Before half of the examples are learned, a high loss may only mean that the model is new.
    limit = recoveries.limit(share) if recoveries.begun else np.inf
    if limit == np.inf:
        return np.empty(0, np.int64)
    found = []
    for part in chunks(losses.shape[1]):
        # All losses of an example must reach the limit. A missing loss makes the minimum NaN, which
        # does not reach it. An infinite loss does not count: it means that the model overflowed.
        lost = np.minimum.reduce(losses[:, part]) >= limit
        lost &= np.isfinite(np.maximum.reduce(losses[:, part]))
        found.append(np.flatnonzero(lost) + part.start)
    lost = np.concatenate(found)
    if classes is not None and len(lost):
        lost = lost[_half_learned(losses[0], classes, lost)]
    return lost


def highest(
    newest: Float32[np.ndarray, " example"],
    classes: Float32[np.ndarray, " example"],
    share: float,
) -> Int64[np.ndarray, " row"]:
    """Return the examples with the highest last losses: `share` of the examples that have one.

    Only losses above ln 2 count. A class loses no example before half of its right labels are
    learned; the share of wrong labels is assumed to be the same in each class. Missing losses and
    unknown classes are NaN.
    """
    some = newest
    if len(newest) > SAMPLED:  # at random places, since data may be sorted
        some = newest[np.random.default_rng(0).integers(len(newest), size=SAMPLED)]
    some = some[~np.isnan(some)]
    if not len(some):
        return np.empty(0, np.int64)
    limit = max(EVEN, np.quantile(some, 1.0 - share))
    lost = np.flatnonzero(newest > limit)
    if len(lost):
        lost = lost[_half_learned(newest, classes, lost, right=1.0 - share)]
    return lost


class _Recoveries:
    """All losses above ln 2 that have a next loss, and whether this next loss is at most ln 2."""

    def __init__(self, losses: Losses) -> None:
        self._high: list[tuple[np.ndarray, np.ndarray]] = []  # losses, whether the next was low
        known = learned = 0
        for part in chunks(losses.shape[1]):
            has_all = np.isfinite(np.maximum.reduce(losses[:, part]))
            # Lag 0 is the newest loss, lag 1 the one before: did a high one become low?
            low, before = losses[0, part][has_all] <= EVEN, losses[1, part][has_all]
            was_high = before > EVEN
            self._high.append((before[was_high], low[was_high]))
            known, learned = known + len(low), learned + int(np.count_nonzero(low))
        self.begun = 2 * learned >= known  # whether at least half of these examples are learned

    def limit(self, share: float) -> float:
        """Return the lowest loss at or above which too few recover; infinity if there is none."""
        if sum(len(losses) for losses, _ in self._high) <= MOST_SORTED:
            return _limit(*_joined(self._high), share)
        counts = np.zeros((2, _bins(np.array([np.inf], np.float32))[0] + 2), np.int64)
        for losses, back in self._high:
            bins = _bins(losses)
            for row, each in enumerate((bins, bins[back])):
                counted = np.bincount(each)
                counts[row, : len(counted)] += counted
        # Sums from the highest bin down: how many examples lie in a bin or above it, and how many
        # of those recovered. One bin more than can be filled makes sure that the last is empty.
        all_from, back_from = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
        # The limit may lie anywhere within a bin. The share that recovers is smallest if all of the
        # bin's examples count, but none of its recoveries. If even this share is too large, the
        # limit is not in the bin.
        fewest = (back_from[1:] + 1) / (all_from[:-1] + 1)
        held = np.flatnonzero((counts[0, :-1] > 0) & (fewest < share))
        while len(held):  # search bins that may hold the limit exactly, the lowest losses first
            low = int(held[0])
            high = min(low + TOGETHER, counts.shape[1] - 1)
            beyond = int(all_from[high]), int(back_from[high])
            found = _limit(*self._between(low, high), share, *beyond)
            if found < np.inf:
                return found
            held = held[held >= high]
        return np.inf

    def _between(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """Return losses in bins from `low` to below `high`, and whether the next loss was low."""
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
    """Return the lowest of some losses at or above which less than `share` recovers, or infinity.

    `beyond` other losses are higher than these, and `beyond_back` of them recovered.
    """
    ascending = np.sort(losses)
    # For each loss, how many are as high or higher. The first of equal losses counts them all, and
    # `argmax` finds the first.
    number = np.arange(len(ascending), 0, -1) + beyond
    recovered = np.count_nonzero(back) - np.searchsorted(np.sort(losses[back]), ascending)
    # One more recovery is assumed, since a share of few examples says little. With 0.05, no example
    # is given up before twenty have been seen without a recovery.
    hopeless = (recovered + beyond_back + 1) / (number + 1) < share
    return float(ascending[np.argmax(hopeless)]) if hopeless.any() else np.inf


def _bins(losses: Float32[np.ndarray, " example"]) -> Int32[np.ndarray, " example"]:
    """Return the bin of each loss above ln 2.

    The bits of a positive float, read as an integer, grow with the float. So a shift makes bins of
    about equal relative width without a logarithm.
    """
    return (losses.view(np.int32) - EVEN.view(np.int32)) >> _BIN


def _half_learned(
    newest: Float32[np.ndarray, " example"],
    classes: Float32[np.ndarray, " example"],
    lost: Int64[np.ndarray, " row"],
    *,
    right: float = 1.0,
) -> np.ndarray:
    """Return which `lost` examples are of a class with at least half of its right labels learned.

    `right` is the share of right labels, assumed to be the same in each class.
    """
    ends = np.fmin.reduce(classes), np.fmax.reduce(classes)
    low, high = (0.0 if np.isnan(end) else float(end) for end in ends)
    unknown = np.float32(low - 1)  # a class of its own for examples whose class is not known
    count = int(high - unknown) + 1
    numbered = None
    if count > len(classes):  # so far apart that counts would take too much memory
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
    return (2 * learned >= right * known)[places(lost)]
