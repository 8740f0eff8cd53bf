"""The state of a loader: its counts, its next epoch, and the contents of a saved state."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from selective_backprop._batches.serialization import on_device, seal, unseal
from selective_backprop._core.saved_state import LAST_EPOCH, SEEDS, Saved, check_state, loaded
from selective_backprop._core.stats import STATS_RANGES, Stats
from selective_backprop._loader.assembly import LoaderParts
from selective_backprop._pipeline.resume_point import (
    Cursor,
    EpochStart,
    MidEpochState,
    generators_of,
)
from selective_backprop._pipeline.rows import Waits
from selective_backprop._pipeline.stages import PipelineState

STATE_VERSION = 17
HOST = torch.device("cpu")  # where indices are drawn


class LoaderState:
    """The training loop's position in a loader's batches, and the counts so far.

    Only a loader with the same `built` can load a saved state.
    """

    def __init__(self, parts: LoaderParts, built: dict[str, Any]) -> None:
        self._parts, self._built = parts, built
        self._tally = parts.pipeline.tally
        self.next_epoch = 0  # which the next iteration begins or continues
        self.start: EpochStart | None = None  # of the running epoch
        self.counts_at_epoch_start: dict[str, Any] = {}
        self.mid_epoch: MidEpochState | None = None  # how the epoch to be continued began
        self.left: MidEpochState | None = None  # how the epoch began that was left in the middle
        # The position when the running epoch began, and how it began if it was continued.
        self._begun: tuple[Cursor, MidEpochState | None] = parts.pipeline.cursor, None

    @property
    def stats(self) -> Stats:
        """The counts of examples so far."""
        pipeline = self._parts.pipeline
        now = {
            "waiting": self.starts_at(self.next_epoch).waiting,
            "dropped": pipeline.cursor.buffer.dropped + pipeline.buffer.state.dropped,
            "nonfinite": pipeline.finite.skipped,
        }
        return Stats(**self._tally | now)

    @property
    def candidates_seen(self) -> int:
        """How many candidates the running epoch has seen."""
        return self._tally["candidates"] - self.counts_at_epoch_start["candidates"]

    def starts_at(self, epoch: int) -> EpochStart:
        """Return what an epoch would start with if it began now."""
        cursor, held = self._parts.pipeline.cursor, self._parts.held
        index_buffer, row_buffer = map(Waits.of, (cursor.buffer, self._parts.pipeline.buffer.state))
        count = 0 if held is None else held.count
        return EpochStart(epoch, index_buffer, row_buffer, len(cursor.unscored), count)

    @property
    def runs(self) -> EpochStart | None:
        """What the running or interrupted epoch started with; None if there is none."""
        return self.start if self.mid_epoch is None else self.mid_epoch.start

    @property
    def begins(self) -> EpochStart:
        """`runs`, or else what the next epoch will start with."""
        return self.runs or self.starts_at(self.next_epoch)

    def begin(self) -> tuple[int, MidEpochState | None]:
        """Begin or continue the next epoch; return its number and, if continued, how it began."""
        number, mid_epoch = self.next_epoch, self.mid_epoch
        start = self.starts_at(number) if mid_epoch is None else mid_epoch.start
        self._tally["epoch"] = number
        self.counts_at_epoch_start = dict(self._tally) if mid_epoch is None else mid_epoch.counted
        self._begun = self._parts.pipeline.cursor, mid_epoch
        self.start, self.next_epoch, self.mid_epoch, self.left = start, number + 1, None, None
        return number, mid_epoch

    def leave(self) -> None:
        """End the running epoch early; states that are saved before another begins continue it."""
        assert self.start is not None  # an epoch runs
        cursor, mid_epoch = self._begun
        if self._parts.pipeline.cursor is cursor and mid_epoch is None:  # it could not begin
            self.next_epoch = self.start.epoch
        self.left, self.start = self._running(self.start), None

    def _running(self, start: EpochStart) -> MidEpochState | None:
        """Return what continuing the running epoch needs; None if that is not possible."""
        pipeline, (cursor, mid_epoch) = self._parts.pipeline, self._begun
        if pipeline.cursor is cursor:  # nothing new has come
            return mid_epoch
        if not pipeline.candidate_loader.can_go_on:
            return None
        return pipeline.mid_epoch(start, self.counts_at_epoch_start)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch's number; give up an interrupted epoch with another number."""
        self.left = None
        if epoch != self.next_epoch:
            self.mid_epoch = None
            if self.start is None and self._parts.pipeline.memory is not None:
                self._parts.pipeline.memory.close()
        self.next_epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return this state and the states of all parts, in plain containers."""
        parts, mid_epoch = self._parts, self.mid_epoch or self.left
        if parts.pipeline.lockstep is not None:
            parts.pipeline.lockstep.settle()
        if self.start is not None:
            mid_epoch = self._running(self.start)
        return {
            "version": STATE_VERSION,
            "built": self._built,
            "seed": parts.index_buffer.seed[0],
            "next_epoch": self.next_epoch if mid_epoch is None else mid_epoch.start.epoch,
            "mid_epoch": None if mid_epoch is None else seal(mid_epoch._replace(stream=None)),
            "stream": None if mid_epoch is None else mid_epoch.stream,
            "position": seal(parts.pipeline.state),
            "generators": [each.get_state() for each in self._generators],
            "stats": dict(self._tally),
            "parts": {name: part.state_dict() for name, part in self._stateful().items()},
        }

    def load_state_dict(self, state: Any, close: Callable[[], object]) -> None:
        """Continue from what `state_dict()` returned; read everything before changing anything.

        `close` ends the running epoch. It is called once the whole state has been read.
        """
        check_state("loader", state, STATE_VERSION, self._built)
        pipeline = self._parts.pipeline
        _, _, seed, epoch, begun, stream, position, generators, stats, own = Saved(state).fields(
            *("version", "built", "seed", "next_epoch", "mid_epoch", "stream", "position"),
            *("generators", "stats", "parts"),
        )
        counted = stats.record(Stats, **STATS_RANGES)
        number, drawn_from = epoch.whole(0, LAST_EPOCH), seed.whole(0, SEEDS - 1)
        stands, mid_epoch = unseal(position, PipelineState), None
        stands = stands._replace(cursor=on_device(stands.cursor, HOST))
        if begun.value is not None:
            mid_epoch = on_device(unseal(begun, MidEpochState), HOST)._replace(stream=stream.value)
            if mid_epoch.start.epoch != number:
                raise epoch.refuse(f"{mid_epoch.start.epoch}, the epoch to be continued,")
        if mid_epoch is None or not pipeline.candidate_loader.reports:
            stream.nothing()
        elif not isinstance(stream.value, Mapping):
            raise stream.refuse("a mapping")
        held, drawn = self._generators, generators.items()
        if len(held) != len(drawn):  # a sampler that makes its generator late also seeds it
            held = drawn = []
        streams = [each.random_state(one.device) for each, one in zip(drawn, held, strict=True)]
        stateful = self._stateful()
        states = dict(zip(stateful, own.fields(*stateful), strict=True))
        for name in ("history", "ledger", "label_noise"):  # they are on the device of the scores
            if saved := states.get(name):
                with saved.inside():
                    moved = on_device(saved.value, pipeline.options.device)
                states[name] = Saved(moved, saved.path)
        with loaded(zip(stateful.values(), states.values(), strict=True)):
            close()
        for buffer in (self._parts.index_buffer, pipeline.buffer):
            buffer.seed_with(drawn_from)
        for generator, own_stream in zip(held, streams, strict=True):
            generator.set_state(own_stream)
        pipeline.go_on(stands, counted)
        if pipeline.memory is not None:
            pipeline.memory.close()
            if mid_epoch is not None:
                # Losses recorded in this epoch are used from the next one on.
                pipeline.memory.reopen(mid_epoch.known, mid_epoch.exempt, number)
        self.next_epoch, self.mid_epoch, self.left = number, mid_epoch, None

    @property
    def _generators(self) -> list[torch.Generator]:
        """The generators that the user's data loader draws from."""
        return generators_of(self._parts.length_planner.source.loader)

    def _stateful(self) -> dict[str, Any]:
        """Return the parts that have a state, by name; the most expensive to load comes last."""
        pipeline, memory = self._parts.pipeline, self._parts.pipeline.memory
        parts = {
            "selector": pipeline.selector,
            "gate": pipeline.clock.gate,
            "history": self._parts.history,
            "ledger": self._parts.ledger,
            "label_noise": None if memory is None else memory.label_noise,
            "pending": None if memory is None else memory.pending,
            "scorer": pipeline.scorer,
        }
        return {name: part for name, part in parts.items() if part is not None}
