"""How many examples went where: one frozen snapshot, read by the lab, the adapters and logs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Counts since training began, as the consumer of the batches has seen them.

    Attributes:
        epoch: number of the epoch that runs or ran last, from 0; -1 before the first.
        candidates: examples that came up for training, loaded or not.
        loaded: examples that were loaded.
        scored: examples that were scored by a forward pass.
        checked: of those, how many were scored a second time, exactly, to check a cheap scorer.
        expired: candidates that had to be scored though the strategy remembers scores: theirs
            was too old, or there was none.
        kept: examples handed out in training batches.
        batches: training batches handed out.
        waiting: candidates that wait for a full window, and rows that wait for a full batch.
        dropped: examples let go by `leftovers="drop"`.
        nonfinite: examples skipped because their loss was not finite.
        ties: share of the recent scores that equal another one, as of the last epoch's end.
    """

    epoch: int = -1
    candidates: int = 0
    loaded: int = 0
    scored: int = 0
    checked: int = 0
    expired: int = 0
    kept: int = 0
    batches: int = 0
    waiting: int = 0
    dropped: int = 0
    nonfinite: int = 0
    ties: float = 0.0
