"""Where a loader stands: what was counted, which epoch comes, and what a saved state holds."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from selective_backprop._batches.serialization import on_device
from selective_backprop._batches.structure import Layout
from selective_backprop._core.saved_state import LAST_EPOCH, SEEDS, Saved, check_state, loaded
from selective_backprop._core.stats import STATS_RANGES, Stats
from selective_backprop._loader.assembly import Assembly
from selective_backprop._pipeline.epoch_length import Start
from selective_backprop._pipeline.resume_point import Midway
from selective_backprop._pipeline.rows import FunnelState
from selective_backprop._pipeline.stages import Position

STATE_VERSION = 5


class Standing:
    """Where the consumer of a loader's batches stands.

    Args:
        parts: the stages, some of which have a state of their own.
        built: what the loader was built with, by name; a state is of a loader built alike.
        device: where scores live, or None for anywhere.
        layout: how rows that wait are counted.

    Attributes:
        position: how far the consumer has come.
        next_epoch: the number of the epoch that the next iteration begins, or goes on with.
        start: where the epoch that runs started from; None while none does.
        began: what was counted when that epoch began.
        midway: how an epoch began that is to go on; None where there is none.
        fresh: whether no state was loaded.
    """

    def __init__(
        self, parts: Assembly, built: dict[str, Any], device: torch.device | None, layout: Layout
    ) -> None:
        self._parts, self._built, self._device, self._layout = parts, built, device, layout
        self._tally: dict[str, Any] = asdict(Stats())
        self.position = Position()
        self.next_epoch = 0
        self.start: Start | None = None
        self.began: dict[str, Any] = {}
        self.midway: Midway | None = None
        self.fresh = True

    @property
    def stats(self) -> Stats:
        """How many examples went where so far."""
        stands = self.starts_at(self.next_epoch)
        now = {
            "waiting": stands.waiting,
            "dropped": stands.dropped,
            "nonfinite": self._parts.pipeline.finite.skipped,
        }
        return Stats(**self._tally | now)

    @property
    def came(self) -> int:
        """How many candidates came up in the epoch that runs."""
        return self._tally["candidates"] - self.began["candidates"]

    def count(self, **increments: int) -> None:
        """Add to what was counted, by the names of `Stats`."""
        for name, more in increments.items():
            self._tally[name] += more

    def note_ties(self) -> None:
        """Note which share of the recent scores are ties."""
        history = self._parts.history
        if history is not None and len(history):
            self._tally["ties"] = history.tie_share()

    def starts_at(self, epoch: int) -> Start:
        """Return where an epoch would start from now."""
        draw, late = self.position.draw, self._parts.pipeline.funnel.state
        held = self._parts.held
        count = 0 if held is None else held.count
        return Start(epoch, draw.interludes, draw.funnel, late, draw.gathered, count)

    @property
    def runs(self) -> Start | None:
        """Where the epoch that runs, or is to go on, started from; None where there is none."""
        return self.start if self.midway is None else self.midway.start

    @property
    def begins(self) -> Start:
        """Where the epoch that runs or is to go on started from, or else where the next will."""
        return self.runs or self.starts_at(self.next_epoch)

    def begin(self) -> tuple[int, Midway | None]:
        """Begin the next epoch; return its number, and how it began where it goes on."""
        number, self.next_epoch = self.next_epoch, self.next_epoch + 1
        midway, self.midway = self.midway, None
        self.start = self.starts_at(number) if midway is None else midway.start
        self._tally["epoch"] = number
        self.began = dict(self._tally) if midway is None else midway.counted
        return number, midway

    def pack(self) -> dict[str, Any]:
        """Return all of it, and what the parts must remember, in plain containers.

        Raises:
            BatchError: if rows wait that cannot be saved.
        """
        parts, midway = self._parts, self.midway
        if self.start is not None and parts.pipeline.arrivals.can_go_on:
            midway = parts.pipeline.midway(self.start, self.began, self.position)
        return {
            "version": STATE_VERSION,
            "built": self._built,
            "seed": parts.early.seed[0],
            "next_epoch": self.next_epoch if midway is None else midway.start.epoch,
            "midway": None if midway is None else midway.pack(),
            "position": self.position.pack(),
            "late": parts.pipeline.funnel.state.pack(),
            "held": FunnelState(chosen=() if parts.held is None else (parts.held,)).pack(),
            "skipped": parts.pipeline.finite.skipped,
            "stats": dict(self._tally),
            "parts": {name: part.state_dict() for name, part in self._stateful()},
        }

    def unpack(self, state: Any, close: Callable[[], object]) -> None:
        """Go on from what `pack()` returned.

        Everything is read before anything is changed.

        Args:
            state: what it returned.
            close: ends the pass that runs, once nothing can be refused any more.

        Raises:
            ConfigurationError: if the state is not of a loader like this one, or damaged; then
                nothing has changed.
        """
        check_state("loader", state, STATE_VERSION, self._built)
        parts, arrivals = self._parts, self._parts.pipeline.arrivals
        _, _, seed, epoch, midway, position, late, held, skipped, stats, own = Saved(state).fields(
            *("version", "built", "seed", "next_epoch", "midway", "position"),
            *("late", "held", "skipped", "stats", "parts"),
        )
        memory = parts.pipeline.memory
        examples = None if memory is None else memory.examples
        tally = stats.record(Stats, **STATS_RANGES)
        reached = Position.unpack(position, tally, examples)
        number = epoch.whole(0, LAST_EPOCH)
        goes_on = midway.maybe(
            lambda saved: Midway.unpack(saved, tally, reached.drawn, arrivals.sampler, memory)
        )
        if goes_on is not None and goes_on.start.epoch != number:
            raise epoch.refuse(f"{goes_on.start.epoch}, the epoch that is to go on,")
        waits, first = (
            FunnelState.unpack(
                rows,
                examples=examples,
                layout=self._layout if arrivals.counts else None,
                device=self._device,
            )
            for rows in (late, held)
        )
        if first.waiting or len(first.chosen) > (parts.accord is not None):
            raise held.refuse("no more than the one batch that ranks hold back")
        drawn_from, counted = seed.whole(0, SEEDS - 1), skipped.whole()
        names, stateful = zip(*self._stateful(), strict=True)
        moved = map(self._moved, own.fields(*names))
        with loaded(zip(stateful, moved, strict=True)):
            close()
        for funnel in (parts.early, parts.pipeline.funnel):
            funnel.seed = (drawn_from, *funnel.seed[1:])
        self.fresh = False
        self.next_epoch, self.midway, self.position = number, goes_on, reached
        self._tally = asdict(tally)
        parts.clock.interludes.state = reached.draw.interludes
        parts.pipeline.funnel.state = waits
        parts.pipeline.finite.skipped = counted
        if parts.accord is not None:
            parts.accord.turns.held = next(iter(first.chosen), None)

    def _moved(self, part: Saved) -> Saved:
        """Return a part's state, on the scores' device where it lives with the scores."""
        if not part.path.endswith(('["history"]', '["ledger"]')):
            return part
        with part.inside():
            return Saved(on_device(part.value, self._device), part.path)

    def _stateful(self) -> Iterator[tuple[str, Any]]:
        """Yield what has a state of its own, by name; what may be expensive to put back is last."""
        for name in ("selector", "gate", "history", "ledger", "journal", "scorer"):
            part = getattr(self._parts, name)
            if part is not None:
                yield name, part
