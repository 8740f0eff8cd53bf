"""Stage one: which examples are loaded at all, decided when their indices are drawn."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from selective_backprop._errors import LoaderError
from selective_backprop._funnel import Funnel, FunnelState, Leftovers, Rows
from selective_backprop._schedule import Interludes, Phase, Schedule

Keys: TypeAlias = Tensor | list[Any]


class DrawState(NamedTuple):
    """Where the drawing of indices stands.

    Attributes:
        interludes: the count by which unselective batches are dealt out.
        funnel: the indices that wait, where examples are selected before they are loaded.
    """

    interludes: tuple[int, int] = (0, 0)
    funnel: FunnelState = FunnelState()


class Ticket(NamedTuple):
    """What was decided about a batch when its indices were drawn; it travels with the batch.

    Attributes:
        phase: what happens to it.
        rows: its keys, with weights if it was selected before loading.
        candidates: examples of this epoch that had come up when it was drawn.
        drawn: the loader's own batches of this epoch that had been drawn.
        state: what to go back to if this is the last batch that is consumed.
    """

    phase: Phase
    rows: Rows
    candidates: int
    drawn: int
    state: DrawState


class PhaseClock:
    """Say which phase each candidate batch falls into.

    Args:
        schedule: when selection acts.
        interludes: deals out unselective batches while it does.
        progress: returns the fraction of training done at `(epoch, candidate batches drawn)`,
            or None if that is unknown.
    """

    def __init__(
        self,
        schedule: Schedule,
        interludes: Interludes,
        progress: Callable[[int, int], float | None],
    ) -> None:
        self._schedule = schedule
        self._progress = progress
        self.interludes = interludes

    def phase(self, epoch: int, drawn: int, candidates: int) -> Phase:
        """Return the phase of the next candidate batch, of `candidates` rows."""
        if not self._schedule.selects(epoch, self._progress(epoch, drawn)):
            return Phase.PLAIN
        return Phase.INTERLUDE if self.interludes.next_is_plain(candidates) else Phase.SELECT


class IndexDraw:
    """The user's batch sampler with stage one in it; a data loader iterates it in its place.

    It runs ahead of the batches' consumer as far as workers prefetch, so everything it decides
    goes into a ticket, and tickets meet their batches first in, first out.

    Args:
        source: yields the indices of each candidate batch.
        clock: says which phase a batch falls into.
        funnel: draws before loading; None where batches are loaded as they come.
        leftovers: what becomes of indices that are left at the end of an epoch.
    """

    def __init__(
        self,
        source: Iterable[Any],
        clock: PhaseClock,
        funnel: Funnel | None,
        leftovers: Leftovers,
    ) -> None:
        self._source = source
        self._clock = clock
        self.funnel = funnel
        self._leftovers = leftovers
        self.epoch = 0
        self.position = (0, 0)
        self.tickets: deque[Ticket] = deque()
        self.unlisted = False

    def __len__(self) -> int:
        return len(self._source)  # ty: ignore[invalid-argument-type]

    @property
    def state(self) -> DrawState:
        """The sampler's own position, ahead of the consumer's."""
        waits = FunnelState() if self.funnel is None else self.funnel.state
        return DrawState(self._clock.interludes.state, waits)

    @state.setter
    def state(self, state: DrawState) -> None:
        self._clock.interludes.state = state.interludes
        if self.funnel is not None:
            self.funnel.state = state.funnel

    def open(self, epoch: int, state: DrawState) -> None:
        """Begin an epoch where the consumer stands; what was prefetched beyond it is forgotten."""
        self.epoch, self.state, self.position = epoch, state, (0, 0)
        self.tickets.clear()
        if self.funnel is not None:
            self.funnel.open(epoch)

    def __iter__(self) -> Iterator[Any]:
        drawn = candidates = 0
        if self.funnel is not None:
            for out in self.funnel.resume():
                self.tickets.append(Ticket(Phase.CHOSEN, out, candidates, drawn, self.state))
                yield plain_list(out.batch)
        for indices in self._source:
            keys = list_keys(indices)
            if keys is None:  # a sampler of single indices: each is loaded as a batch of its own
                if self.funnel is not None and not self.funnel.keeps_everything:
                    raise LoaderError(
                        "the sampler yields single indices (batch_size=None), so nothing can be "
                        "selected before it is loaded. Let the sampler yield lists of indices, "
                        "or give the strategy a scorer."
                    )
                self.unlisted = True
                yield indices
                continue
            phase = self._clock.phase(self.epoch, drawn, len(keys))
            drawn, candidates = drawn + 1, candidates + len(keys)
            self.position = (candidates, drawn)
            rows = Rows(keys, len(keys))
            for out in [rows] if self.funnel is None else self.funnel.route(phase, rows):
                self.tickets.append(Ticket(phase, out, candidates, drawn, self.state))
                yield indices if out is rows else plain_list(out.batch)
        if self.funnel is not None:
            for out in self.funnel.close(self._leftovers):
                self.tickets.append(Ticket(Phase.CHOSEN, out, candidates, drawn, self.state))
                yield plain_list(out.batch)


def list_keys(indices: Any) -> Keys | None:
    """Return the keys of a batch, or None if `indices` is a single one.

    Returns:
        Integers as an int64 tensor `[row]`, which is taken from and joined at once; any other
        keys as a list.
    """
    if isinstance(indices, (Tensor, np.ndarray)):
        if not indices.ndim:
            return None
    elif not isinstance(indices, (list, tuple)):
        return None
    try:
        array = np.asarray(indices)
    except ValueError:  # keys of several parts
        return list(indices)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        return list(indices)
    return torch.from_numpy(array.astype(np.int64))


def plain_list(keys: Keys) -> list[Any]:
    """Return keys as a data loader takes them."""
    return keys.tolist() if isinstance(keys, Tensor) else keys
