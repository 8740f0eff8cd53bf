"""Ranks in turns, in plain Python."""

from collections.abc import Iterator, Sequence

from reference import LossHistory


class PlainRank:
    """How many batches a rank's shard gives, by exact draws from windows of its own.

    Args:
        examples: of its shard.
        loads: rows of a candidate batch.
        trains: rows of a training batch.
        window: candidates that a training batch is drawn from.
        leftovers: `"carry"`, `"flush"` or `"drop"`.
    """

    def __init__(
        self, examples: int, *, loads: int, trains: int, window: int, leftovers: str
    ) -> None:
        self.examples, self.loads, self.trains = examples, loads, trains
        self.window, self.leftovers = window, leftovers
        self.came = self.waiting = self.held = self.dropped = self.beyond = 0

    def epoch(self) -> Iterator[int]:
        """The rows of each training batch that it could give."""
        self.came = 0
        if self.held:
            held, self.held = self.held, 0
            yield held
        yield from self._windows()
        while self.came < self.examples:
            more = min(self.loads, self.examples - self.came)
            self.came += more
            self.waiting += more
            yield from self._windows()
        left, self.waiting = self.waiting, 0
        if self.leftovers == "carry":
            self.waiting = left
        elif self.leftovers == "drop":
            self.dropped += left
        elif left:
            yield min(left, max(1, round(left * self.trains / self.window)))

    def _windows(self) -> Iterator[int]:
        while self.waiting >= self.window:
            self.waiting -= self.window
            yield self.trains

    def stop(self, batch: int | None) -> None:
        """Another rank has ended the epoch, or this one has, with or without a batch in hand."""
        self.beyond += self.examples - self.came
        if self.leftovers == "carry":
            self.held = batch or 0
        elif batch is not None:
            self.dropped += batch + self.waiting
            self.waiting = 0


def train_in_turns(ranks: Sequence[PlainRank]) -> list[list[int]]:
    """The rows of each rank's batches in one epoch, turn by turn: all train, or all end."""
    epochs = [rank.epoch() for rank in ranks]
    turns = []
    while True:
        batches = [next(epoch, None) for epoch in epochs]
        if None in batches:
            for rank, batch in zip(ranks, batches, strict=True):
                rank.stop(batch)
            return turns
        turns.append(batches)


def share(history: LossHistory, filed: Sequence[Sequence[float]], most: int) -> None:
    """After an exchange, the newest scores of all ranks are remembered, in the ranks' order."""
    for scores in filed:
        history.add(scores[-most:])
