"""Draw from windows of candidates, and keep chosen rows until a training batch is full."""

import hashlib
import struct
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import attrgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import threshold

from selective_backprop._batches.structure import Layout, join_rows, move_tensor
from selective_backprop._core.types import NO_TARGET, Bool, Float, Scores
from selective_backprop._memory.history import History
from selective_backprop._pipeline.nonfinite import TargetWatch
from selective_backprop._pipeline.rows import COUNT, BufferState, Leftovers, Rows, Shape, is_keys
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Choice
from selective_backprop._sampling.schedule import Phase
from selective_backprop.selectors import RunningSelector

BATCH, INDICES = attrgetter("batch"), attrgetter("indices")
Queue: TypeAlias = tuple[Rows, ...]


class SelectionBuffer:
    """Two queues: candidates that wait to fill a window, and chosen rows that wait to fill a batch.

    Rows with `batch=None` are mere numbers: they show how many batches exact draws would make.
    Before each draw, `sift` removes waiting candidates that must not be drawn, and `filing`, by
    default the history, files the scores of the window.
    """

    def __init__(
        self,
        selector: RunningSelector,
        shape: Shape,
        *,
        history: History | None = None,
        filing: Any = None,
        ranks: bool = True,  # whether the selector ranks scores against other scores
        layout: Layout | None = None,
        sift: Callable[[list[Rows]], list[Rows]] | None = None,
        indexed: bool = True,  # else the CPU waits for no rows to look their indices up
        watch: TargetWatch | None = None,  # says whether rows may lack a target
        seed: tuple[int, ...] = (),
    ) -> None:
        self._sift, self._indexed, self._watch = sift, indexed, watch
        self._unsifted: list[Rows] = []
        self.selector, self.shape, self.ranks, self.seed = selector, shape, ranks, seed
        self._filing = history if filing is None else filing
        # not `history or History(1)`: an empty history is falsy
        self._history = History(1) if history is None else history
        self._layout = Layout() if layout is None else layout
        self._epoch = 0
        self.state = BufferState()

    def open(self, epoch: int, past: History | None = None) -> None:
        self._epoch = epoch
        if past is not None:
            self._history = past

    def adopt(self, rows: Rows) -> None:
        if rows.count:
            self.state = self.state._replace(chosen=(*self.state.chosen, rows))

    def route(self, phase: Phase, rows: Rows) -> Iterator[Rows]:
        state, shape = self.state, self.shape
        if phase is Phase.SELECT and not shape.keeps_everything:
            self.state = state = state._replace(waiting=(*state.waiting, rows))
            if shape.window is None:
                return self.release(pieces=state.waiting)
            if self._sift is not None:
                self._unsifted.append(rows)
            if sum(map(COUNT, state.waiting)) < shape.window:
                return iter(())
            self.sift()
            return self.release()
        if phase is Phase.PLAIN and state.waiting:
            self.sift()
            state = self.state
            # nothing is selected in this phase, so waiting candidates need no draw
            self.state = state._replace(waiting=(), chosen=state.chosen + state.waiting)
        if shape.unchanged and not self.state.chosen:
            return iter((rows,))
        return self.release(rows)

    def sift(self) -> None:
        pieces, self._unsifted = self._unsifted, []
        if pieces and self._sift is not None:
            sifted = dict(zip(map(id, pieces), self._sift(pieces), strict=True))
            waiting = tuple(sifted.get(id(each), each) for each in self.state.waiting)
            self.state = self.state._replace(waiting=waiting)

    def close(self, leftovers: Leftovers) -> Iterator[Rows]:
        self.sift()
        if leftovers is Leftovers.FLUSH:
            if self.state.waiting:
                yield from self.release(pieces=self.state.waiting)
            if self.state.chosen:
                yield self._take_chosen(self.state.rows)
        self.state = self.state.after_epoch(leftovers)

    def release(self, rows: Rows | None = None, pieces: Queue = ()) -> Iterator[Rows]:
        """Yield the full training batches, after adding chosen `rows` or a draw from `pieces`.

        `pieces` are all candidates that wait. If a draw fails, they still wait.
        """
        rest: Queue = ()
        while True:
            if pieces:
                rows = self._draw(pieces)
                windows = self.state.windows + 1
                self.state = self.state._replace(waiting=rest, windows=windows, filed=False)
            count = 0 if rows is None else rows.count
            full = self.shape.batch_size or count
            if rows is not None and 0 < count == full and not self.state.chosen:
                yield rows
            else:
                if rows is not None:
                    self.adopt(rows._replace(scores=None, features=None))
                while self.state.rows >= full > 0:
                    yield self._take_chosen(full)
            if self.state.candidates < (self.shape.window or 1):
                return
            size = self.shape.window or self.state.candidates
            pieces, rest = self._split(self.state.waiting, size)

    def _take_chosen(self, count: int) -> Rows:
        pieces, rest = self._split(self.state.chosen, count)
        joined = self._join(pieces)
        self.state = self.state._replace(chosen=rest)
        return joined

    def _split(self, pieces: Queue, count: int) -> tuple[Queue, Queue]:
        for position, piece in enumerate(pieces):
            if piece.count >= count:
                head, tail = pieces[:position], pieces[position + 1 :]
                if piece.count > count:
                    tail = (piece.cut(count, piece.count, self._layout), *tail)
                    piece = piece.cut(0, count, self._layout)
                return (*head, piece), tail
            count -= piece.count
        return pieces, ()

    def _draw(self, pieces: Queue) -> Rows:
        if pieces[0].batch is None:
            size, window = self.shape.batch_size or 1, self.shape.window
            return Rows(None, Context(size, window).quota(sum(map(COUNT, pieces))))
        columns = [torch.zeros(own.count) if own.scores is None else own.scores for own in pieces]
        scores = columns[0] if len(columns) == 1 else torch.cat(columns)
        seed = *self.seed, self._epoch, self.state.windows
        generator = torch.Generator(scores.device).manual_seed(mix_seeds(*seed))
        if self._watch is None or self._watch.lacking:
            lacking = scores == NO_TARGET
            if lacking.device.type != "cpu" or bool(lacking.any()):
                # An exact draw takes as many rows of a window, even if none has a target.
                recent = self._history.recent[: 0 if self.shape.window else None]
                scores = draw_scores(scores, lacking, recent, mix_seeds(*seed, 1))
        if self._filing is not None and not self.state.filed:
            self._filing.file(scores)
            self.state = self.state._replace(filed=True)
        features = [own.features for own in pieces if own.features is not None]
        more = [torch.cat(features)] if features else []
        return self._take(pieces, self.selector.select(scores, self._history, generator, *more))

    def _take(self, pieces: Queue, choice: Choice) -> Rows:
        rows, weights = choice
        keys = is_keys(pieces[0].batch)
        if len(pieces) > 1 and (rows.device.type != "cpu" or keys):
            # Only a GPU knows which piece a row is in, and the CPU would wait for the answer. And
            # joining a column of keys is cheaper than finding each key's piece.
            pieces = (self._join(pieces),)
        if keys and pieces[0].indices is None and rows.device == pieces[0].batch.device:
            return Rows(pieces[0].batch.index_select(0, rows), rows.shape[0], weights=weights)
        parts = [rows]
        if len(pieces) > 1:
            *starts, _ = accumulate(map(COUNT, pieces), initial=0)
            bounds = rows.numpy().searchsorted(starts[1:]).tolist()
            split = zip(rows.tensor_split(bounds), starts, strict=True)
            parts = [part - start for part, start in split]
        batch = join_rows([*map(BATCH, pieces)], self._layout, parts)
        indices = _join_column([*map(INDICES, pieces)], parts, waits=self._indexed)
        return Rows(batch, rows.shape[0], indices, weights=weights)

    def _join(self, pieces: Queue) -> Rows:
        if len(pieces) == 1:
            return pieces[0]
        if pieces[0].batch is None:
            return Rows(None, sum(map(COUNT, pieces)))
        weights, given = None, [piece.weights for piece in pieces if piece.weights is not None]
        if given:  # rows without weights weigh 1
            ones = given[0].new_ones
            found = [ones(each.count) if each.weights is None else each.weights for each in pieces]
            weights = torch.cat(found)
        batches = [*map(BATCH, pieces)]
        keys = all(map(is_keys, batches)) and batches[0].device.type == "cpu"
        alike = keys and len({(each.dtype, each.device) for each in batches}) == 1
        batch = torch.cat(batches) if alike else join_rows(batches, self._layout)
        indices = _join_column([*map(INDICES, pieces)])
        return Rows(batch, sum(map(COUNT, pieces)), indices, weights=weights)


def draw_scores(
    scores: Scores, lacking: Bool[Tensor, " candidate"], recent: Float[Tensor, " recent"], seed: int
) -> Scores:
    """Give rows that lack a target scores of others, to keep them at the same rate.

    Each is drawn at random from the window, or else from recent scores; it is 0 without either.
    """
    size, device = len(scores), scores.device
    generator = torch.Generator(device).manual_seed(seed)
    tosses = torch.rand(size, generator=generator, dtype=torch.float64, device=device)
    known = size - lacking.sum()
    # Sorted, so that rows without a target come last. A branch would make the host wait.
    others = scores.sort(descending=True).values.take((tosses * known).long())
    if len(recent):
        older = recent[(tosses * len(recent)).long()].to(scores)
        others = torch.where(known > 0, others, older)
    else:
        others = threshold(others, NO_TARGET, 0.0)  # turns `NO_TARGET` into 0
    return others.where(lacking, scores)


def _join_column(
    values: list[Tensor | None], rows: list[Tensor] | None = None, *, waits: bool = True
) -> Tensor | None:
    """Join the pieces of a column; None if one of them is unknown or must be waited for."""
    parts: list[Tensor] = []
    for place, value in enumerate(values):
        if value is None:
            return None
        if rows is not None:
            take = rows[place]
            if take.device != value.device:
                if value.device.type == "cpu" and not waits:
                    return None
                take = move_tensor(take, value.device)
            value = value[take]
        if parts and value.device != parts[0].device:  # the first came from a saved state
            value = move_tensor(value, parts[0].device)
        parts.append(value)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def mix_seeds(*numbers: int) -> int:
    """Return a 63-bit seed for a tuple of numbers; similar tuples give unrelated seeds."""
    data = struct.pack(f"<{len(numbers)}Q", *[number & (2**64 - 1) for number in numbers])
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1
