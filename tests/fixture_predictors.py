"""Scores that fell in a known way, as a ledger would remember them."""

import numpy as np

import selective_backprop as sb

NEXT = 15


def decaying(examples=400, *, depth=3, noise=0.0, same_epochs=False, seed=0):
    """Observations of losses that fall exponentially, each at its own pace; and those at `NEXT`."""
    chance = np.random.default_rng(seed)
    heights, paces = chance.lognormal(size=examples), chance.uniform(0.0, 0.3, examples)
    gaps = chance.integers(1, 4, (depth, examples))
    if same_epochs:
        gaps[:] = 3
    epochs = NEXT - gaps.cumsum(0)
    told = heights * np.exp(-paces * epochs)
    if noise:
        told *= chance.lognormal(0, noise, told.shape)
    observed = sb.scorers.Observations(told.astype(np.float32), epochs.astype(np.int32))
    return observed, heights * np.exp(-paces * NEXT)


def keep_newest(observed, examples, count):
    """Forget all but the newest few scores of some examples."""
    scores, epochs = (column.copy() for column in observed)
    scores[count:, examples], epochs[count:, examples] = np.nan, -1
    return sb.scorers.Observations(scores, epochs)
