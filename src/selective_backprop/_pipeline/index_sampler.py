"""Stage one: decide which examples are loaded when their indices are drawn."""

import copy
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from selective_backprop._core.errors import LoaderError
from selective_backprop._core.isolation import RandomStreams, kept_random_streams
from selective_backprop._core.types import Scores
from selective_backprop._memory.history import History
from selective_backprop._pipeline.options import PhasePlanner, Setup
from selective_backprop._pipeline.rows import (
    NO_INDICES,
    Cursor,
    EpochStart,
    Known,
    Rows,
    generators_of,
    put_back,
)
from selective_backprop._pipeline.score_memory import EpochScores, ScoreMemory, rank_among
from selective_backprop._pipeline.selection_buffer import SelectionBuffer, mix_seeds
from selective_backprop._pipeline.source import count_items
from selective_backprop._sampling.draws import Draw
from selective_backprop._sampling.schedule import Phase

MOST_TOGETHER = 8  # candidate batches; drawing from more at once hardly saves time
LEAST_DRAWS = 16  # draws per epoch, so that progress is reported in fine enough steps
MOST_AT_ONCE = 2**17  # examples; a draw from very many would take much extra memory

# Which examples an epoch keeps, whenever they come up, and their weights; None if all weigh 1.
Kept: TypeAlias = tuple[np.ndarray, Tensor | None]
Keys: TypeAlias = Tensor | list[Any]  # of examples, as a tensor if they are integers


class CandidateBatch(NamedTuple):
    """A batch and what was decided about it when its indices were drawn; before loading, a plan."""

    phase: Phase
    rows: Rows  # in a plan: the keys, with weights if they were selected before loading
    cursor: Cursor  # the consumer's position once it has taken this batch
    scores: Callable[[], Scores] | None = None  # waits for scores, if scoring has begun
    copied: Callable[[], None] | None = None  # waits for the copy to the device, if one runs


class IndexSampler:
    """The user's batch sampler with stage one added; the data loader iterates it instead.

    It runs ahead of the training loop as far as workers prefetch. Its plans are paired with batches
    first in, first out. If scores are remembered, it draws from candidates with a known score
    before they are loaded; the others go into separate batches, to be scored. If all scores are
    known, it draws from several candidate batches at once, or from all examples.
    """

    def __init__(
        self, setup: Setup, clock: PhasePlanner, buffer: SelectionBuffer, memory: ScoreMemory | None
    ) -> None:
        self.sampler = setup.source.indices()  # its generators are found by this name
        self.buffer, self._clock = buffer, clock
        # Whether it selects before loading. If not, batches are loaded as they come.
        self.selects = setup.strategy.scorer is None or memory is not None
        # Whether it draws from all examples if all scores are known: no odds depend on other rows.
        self.ahead = memory is not None and setup.terms.draw is Draw.BERNOULLI
        self._latest: tuple[tuple[int, int], Known, Kept] | None = None
        self._kept: Kept | None = None  # what the epoch keeps, if all examples were drawn from
        self._leftovers = setup.leftovers
        # Rows of a batch to be scored, if scores are remembered.
        self._batch_size = setup.source.batch_size or setup.shape.batch_size or 1
        self._epoch_scores: EpochScores | None = None
        self._unscored = NO_INDICES
        self._gathered: list[Tensor] = []
        self._together = 1  # candidate batches that are drawn from at once
        self._epoch = self._drawn = self._candidates = self._digest = 0
        self._phase = Phase.PRESELECTED  # phase of the rows that the buffer is handing out
        self._passed: Cursor | None = None  # where the epoch was interrupted
        self._reach = 0, 0  # how far its order had been drawn by then
        self.plans: deque[CandidateBatch] = deque()  # of batches not loaded yet
        self.stops = False  # whether the epoch ends early: only what it has left out still comes
        self.unlisted = False  # whether the sampler yields single indices, treated as a stream
        self.streams: tuple[RandomStreams, list[Tensor]] | None = None

    def __len__(self) -> int:
        return len(self.sampler)

    @property
    def cursor(self) -> Cursor:
        exempt = 0 if self._epoch_scores is None else len(self._epoch_scores.exempt)
        place = self._epoch, self._candidates, self._drawn, self.buffer.state, self._unscored
        return Cursor(*place, self._phase is Phase.PLAIN, self._digest, exempt)

    @property
    def reach(self) -> tuple[int, int]:
        return max((self._drawn, self._digest), self._reach)

    def open(
        self, cursor: Cursor, epoch_scores: EpochScores | None, mid_epoch: EpochStart | None
    ) -> None:
        self._epoch, self._unscored = cursor.epoch, cursor.unscored
        self._drawn = self._candidates = self._digest = 0
        self._epoch_scores = epoch_scores
        self._passed, self._reach, self.streams = None, (0, 0), None
        if mid_epoch is not None:
            # Waiting rows go out before a new order is drawn; states saved then keep the streams.
            self._passed, self._reach, self.streams = cursor, mid_epoch.reach, mid_epoch.streams
        self._phase = Phase.PLAIN if cursor.plain else Phase.PRESELECTED
        self.plans.clear()
        self.stops, self._gathered, self._together, self._kept = False, [], 1, None
        self.buffer.state = cursor.buffer
        past = epoch_scores.past if epoch_scores is not None and self.buffer.ranks else None
        self.buffer.open(cursor.epoch, past)
        if epoch_scores is not None and epoch_scores.complete:
            batches = count_items(self.sampler) or 0  # if unknown, draw from one batch at a time
            self._together = min(max(batches // LEAST_DRAWS, 1), MOST_TOGETHER)
            if self.ahead and epoch_scores.known is not None:
                self._kept = self.draw_all(cursor.epoch, epoch_scores.known, past)

    def draw_all(self, epoch: int, known: Known, past: History | None = None) -> Kept:
        """Return what an epoch keeps if all scores are `known`; by default, rank against these."""
        buffer, seed = self.buffer, mix_seeds(*self.buffer.seed, epoch)
        if self._latest is not None:
            asked, scores, kept = self._latest
            if asked == (epoch, seed) and scores is known:
                return kept
        if past is None:
            past = rank_among(known) if buffer.ranks else History(1)
        generator = torch.Generator().manual_seed(seed)
        mask, weights = np.zeros(len(known), dtype=bool), None
        for start in range(0, len(known), MOST_AT_ONCE):
            part = known[start : start + MOST_AT_ONCE]
            rows, weighing = buffer.selector.select(part, past, generator)
            mask[start : start + len(part)][rows.numpy()] = True
            if weighing is not None:
                weights = torch.ones(len(known)) if weights is None else weights
                weights[start : start + len(part)][rows] = weighing
        kept = mask, weights
        self._latest = (epoch, seed), known, kept
        return kept

    def __iter__(self) -> Iterator[Any]:
        self._drawn = self._candidates = self._digest = 0
        passed, self._passed = self._passed, None
        buffer, batches = self.buffer, self.sampler
        if passed is not None and self.streams is not None:
            batches = self._pass_over(passed, *self.streams)
        if self.selects:
            yield from self._issue(self._phase, buffer.release())
            if passed is not None:
                yield from self._issue(Phase.SELECT, self._take_batches(self._batch_size))
        if batches is self.sampler:
            own = [generator.get_state() for generator in generators_of(batches)]
            self.streams = RandomStreams.now(), own
        # Unless the schedule uses fractions of training, an epoch has a single phase.
        whole = None if self._clock.by_fraction else self._clock.phase(self._epoch, 0)
        for indices in batches:
            if self.stops:
                break
            keys = list_keys(indices)
            if keys is None:  # a sampler of single indices: each is loaded as its own batch
                yield self._pass_single(indices)
                continue
            count = keys.shape[0] if isinstance(keys, Tensor) else len(keys)
            phase = self._clock.phase(self._epoch, self._drawn) if whole is None else whole
            if self._gathered and phase is not Phase.SELECT:
                yield from self._draw_gathered()
            self._note(keys, count)
            rows = Rows(keys, count)
            if not self.selects:
                self._plan(phase, rows)
                yield indices
            elif phase is Phase.SELECT and self._together > 1 and isinstance(keys, Tensor):
                self._gathered.append(keys)
                if len(self._gathered) == self._together:
                    yield from self._draw_gathered()
            elif phase is Phase.SELECT and self._epoch_scores is not None:
                yield from self._split_by_known_score(self._epoch_scores, rows, indices)
            else:
                if phase is Phase.PLAIN and len(self._unscored):
                    unscored, self._unscored = self._unscored, NO_INDICES
                    buffer.adopt(Rows(unscored, len(unscored)))
                sent = Phase.PRESELECTED if phase is Phase.SELECT else phase
                for out in buffer.route(phase, rows):
                    self._plan(sent, out)
                    yield indices if out is rows else plain_list(out.batch)
        if self.selects and not self.stops:
            yield from self._draw_gathered()
            yield from self._issue(Phase.SELECT, self._take_batches(1))
            yield from self._issue(Phase.PRESELECTED, buffer.close(self._leftovers))
        if self.selects:
            yield from self._rescore()

    def _pass_over(
        self, passed: Cursor, streams: RandomStreams, own: list[Tensor]
    ) -> Iterator[Any]:
        """Draw again what was drawn before the interruption; return the remaining batches."""
        put_back(own, self.sampler)
        with kept_random_streams(None):
            streams.put_back()
            batches = iter(self.sampler)  # some samplers draw the whole order here
            for indices in islice(batches, passed.drawn):
                keys = list_keys(indices)
                if keys is not None:
                    phase = self._clock.phase(self._epoch, self._drawn)
                    self._note(keys, len(keys))
                    if self._epoch_scores is not None and phase is Phase.SELECT:
                        self._epoch_scores.look_up(keys)
            # Drawn ahead, one batch at least, so that the order comes from the saved random state.
            ahead = max(self._reach[0] - passed.drawn, not passed.drawn)
            begun = [*map(copy.deepcopy, islice(batches, ahead))]  # a sampler may reuse its arrays
        found = self._candidates, self._drawn, self._digest
        digest = reduce(_digest, map(list_keys, begun), self._digest)
        drifted = self._reach[0] and digest != self._reach[1]
        if drifted or found != (passed.candidates, passed.drawn, passed.digest):
            raise LoaderError(
                f"the state was saved after {passed.drawn} batches of epoch {self._epoch}, but the "
                "sampler does not draw these again, so some examples would be trained on twice. "
                "Restore the sampler's seed and epoch (the loader restores global random numbers "
                "and any torch.Generator in an attribute of the sampler), or call "
                f"set_epoch({self._epoch + 1}) to skip the rest of the epoch"
            )
        return chain(begun, batches)

    def _note(self, keys: Keys, count: int) -> None:
        # as `_digest` does, which would be a call for each batch
        content = keys.numpy() if isinstance(keys, Tensor) else repr(keys).encode()
        digest, drawn = zlib.crc32(content, self._digest), self._drawn + 1
        self._candidates += count
        self._digest, self._drawn = digest, drawn  # Ctrl-C must not come between the two

    def _draw_gathered(self) -> Iterator[Any]:
        if self._gathered and self._epoch_scores is not None:
            keys, self._gathered = torch.cat(self._gathered), []
            yield from self._draw_known(*self._epoch_scores.look_up(keys))

    def _split_by_known_score(
        self, epoch_scores: EpochScores, rows: Rows, indices: Any
    ) -> Iterator[Any]:
        """Draw from the candidates whose scores are known; gather the others to be scored."""
        keys, scores = epoch_scores.look_up(rows.batch)
        if scores is None:
            if not len(self._unscored):
                self._plan(Phase.SELECT, rows)
                yield indices
                return
            self._unscored = torch.cat([self._unscored, keys])
        else:
            unknown = scores.isnan()
            if bool(unknown.any()):
                self._unscored = torch.cat([self._unscored, keys[unknown]])
                keys, scores = keys[~unknown], scores[~unknown]
            yield from self._draw_known(keys, scores)
        yield from self._issue(Phase.SELECT, self._take_batches(self._batch_size))

    def _draw_known(self, keys: Tensor, scores: Scores | None) -> Iterator[Any]:
        if self._kept is not None:
            mask, weights = self._kept
            keys = keys[torch.from_numpy(mask[keys.numpy()])]
            own = None if weights is None else weights[keys]
            batches = self.buffer.release(Rows(keys, len(keys), weights=own))
        else:
            batches = self.buffer.route(Phase.SELECT, Rows(keys, len(keys), scores=scores))
        yield from self._issue(Phase.PRESELECTED, batches)

    def _issue(self, phase: Phase, batches: Iterable[Rows]) -> Iterator[Any]:
        for out in batches:
            self._plan(phase, out)
            yield plain_list(out.batch)

    def _plan(self, phase: Phase, rows: Rows) -> None:
        self._phase = phase
        if self._epoch_scores is not None:
            self._epoch_scores.keep(rows.batch)
        self.plans.append(CandidateBatch(phase, rows, self.cursor))

    def _take_batches(self, least: int) -> Iterator[Rows]:
        while len(self._unscored) >= least:
            keys, size = self._unscored, self._batch_size
            head, self._unscored = keys[:size], keys[size:]
            yield Rows(head, len(head))

    def _rescore(self) -> Iterator[Any]:
        if self._epoch_scores is None:
            return
        for rows in (*self.buffer.state.waiting, *self.buffer.state.chosen):
            self._epoch_scores.keep(rows.batch)
        parts = self._epoch_scores.left_out().split(self._batch_size)
        batches = (Rows(part, len(part)) for part in parts if len(part))
        yield from self._issue(Phase.RESCORE, batches)

    def _pass_single(self, index: Any) -> Any:
        if self.selects and not self.buffer.shape.keeps_everything:
            raise LoaderError(
                "the sampler yields single indices (batch_size=None), so examples cannot be "
                "selected before they are loaded. Let the sampler yield lists of indices, "
                "or give the strategy a scorer."
            )
        self.unlisted = True
        return index


def _digest(digest: int, keys: Keys | None) -> int:
    return zlib.crc32(keys.numpy() if isinstance(keys, Tensor) else repr(keys).encode(), digest)


def list_keys(indices: Any) -> Keys | None:
    """Return the keys of a batch, integers as an int64 tensor `[row]`; None of a single key."""
    listed = isinstance(indices, (list, tuple, range))
    if not listed and not (isinstance(indices, (Tensor, np.ndarray)) and indices.ndim):
        return None
    try:
        array = np.asarray(indices)
    except ValueError:  # keys such as tuples of different lengths
        return list(indices)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        return list(indices)
    # A list was copied already. An array belongs to the sampler, which may change it.
    return torch.from_numpy(array.astype(np.int64, copy=not listed))


def plain_list(keys: Keys) -> list[Any]:
    return keys.tolist() if isinstance(keys, Tensor) else keys
