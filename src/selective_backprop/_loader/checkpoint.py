"""The state of a loader: its counts, its position, and the contents of a saved state."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from selective_backprop._batches.serialization import on_device, seal, unseal
from selective_backprop._core.saved_state import Saved, check_state, loaded
from selective_backprop._core.stats import Stats
from selective_backprop._pipeline.rows import Cursor, EpochStart, generators_of, put_back
from selective_backprop._pipeline.stages import Pipeline

STATE_VERSION = 19
HOST = torch.device("cpu")  # where indices are drawn


class LoaderState:
    def __init__(self, pipeline: Pipeline) -> None:
        setup = pipeline.setup
        self._loader = loader = setup.source.loader
        self._pipeline, self._tally = pipeline, pipeline.tally
        self._built = {
            "strategy": repr(setup.strategy),
            "batch_size": setup.shape.batch_size,
            "drop_last": bool(getattr(loader.batch_sampler, "drop_last", loader.drop_last)),
            "examples": setup.source.examples,
            "rank": setup.ranks.rank,
            "ranks": setup.ranks.size,
            "leftovers": str(setup.leftovers),
            "generators": len(generators_of(loader)),
        }
        self.next_epoch = 0  # which the next iteration begins or continues
        self.start: EpochStart | None = None  # of the running epoch
        self.mid_epoch: EpochStart | None = None  # how the epoch to be continued began
        self.left: EpochStart | None = None  # how the epoch began that was left in the middle
        # The position when the running epoch began, and how it began if it was continued.
        self._begun: tuple[Cursor, EpochStart | None] = pipeline.cursor, None

    @property
    def stats(self) -> Stats:
        pipeline, waiting = self._pipeline, self.starts_at(self.next_epoch).waiting
        dropped = pipeline.cursor.buffer.dropped + pipeline.buffer.state.dropped
        now = {"waiting": waiting, "dropped": dropped, "nonfinite": pipeline.finite.skipped}
        return Stats(**self._tally | now)

    @property
    def counted(self) -> dict[str, Any]:
        assert self.start is not None  # an epoch runs
        return self.start.counted

    @property
    def candidates_seen(self) -> int:
        return self._tally["candidates"] - self.counted["candidates"]

    def starts_at(self, epoch: int) -> EpochStart:
        cursor, lockstep = self._pipeline.cursor, self._pipeline.lockstep
        held = None if lockstep is None else lockstep.held
        buffers = cursor.buffer.counted, self._pipeline.buffer.state.counted
        waiting = len(cursor.unscored), 0 if held is None else held.count
        return EpochStart(epoch, dict(self._tally), *buffers, *waiting)

    @property
    def runs(self) -> EpochStart | None:  # also if it was interrupted
        return self.mid_epoch or self.start

    @property
    def begins(self) -> EpochStart:
        return self.runs or self.starts_at(self.next_epoch)

    def begin(self) -> tuple[EpochStart, EpochStart | None]:
        mid_epoch = self.mid_epoch
        self._tally["epoch"] = self.next_epoch
        self.start = mid_epoch or self.starts_at(self.next_epoch)
        self._begun = self._pipeline.cursor, mid_epoch
        self.next_epoch, self.mid_epoch, self.left = self.start.epoch + 1, None, None
        return self.start, mid_epoch

    def leave(self) -> None:
        """End the running epoch early; states that are saved before another begins continue it."""
        assert self.start is not None  # an epoch runs
        cursor, mid_epoch = self._begun
        if self._pipeline.cursor is cursor and mid_epoch is None:  # it could not begin
            self.next_epoch = self.start.epoch
        self.left, self.start = self._running(self.start), None

    def _running(self, start: EpochStart) -> EpochStart | None:
        pipeline, (cursor, mid_epoch) = self._pipeline, self._begun
        if pipeline.cursor is cursor:  # nothing new has come
            return mid_epoch
        if not pipeline.candidate_loader.can_go_on:
            return None
        return pipeline.mid_epoch(start)

    def set_epoch(self, epoch: int) -> None:
        self.left = None
        if epoch != self.next_epoch:
            self.mid_epoch = None
            if self.start is None and self._pipeline.memory is not None:
                self._pipeline.memory.close()
        self.next_epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        pipeline, mid_epoch = self._pipeline, self.mid_epoch or self.left
        if pipeline.lockstep is not None:
            pipeline.lockstep.settle()
        if self.start is not None:
            mid_epoch = self._running(self.start)
        generators = [each.get_state() for each in generators_of(self._loader)]
        epoch = self.next_epoch if mid_epoch is None else mid_epoch.epoch
        return {
            "version": STATE_VERSION,
            "built": self._built,
            "mid_epoch": None if mid_epoch is None else seal(mid_epoch._replace(stream=None)),
            "stream": None if mid_epoch is None else mid_epoch.stream,
            "position": seal((epoch, pipeline.state, generators)),
            "parts": {name: part.state_dict() for name, part in self._stateful().items()},
        }

    def load_state_dict(self, state: Any, close: Callable[[], object]) -> None:
        """Continue from a state; call `close` before anything is changed, once all was read."""
        check_state("loader", state, STATE_VERSION, self._built)
        pipeline, mid_epoch = self._pipeline, None
        names = "version", "built", "mid_epoch", "stream", "position", "parts"
        _, _, begun, stream, position, own = Saved(state).fields(*names)
        epoch, stands, generators = on_device(unseal(position, tuple), HOST)
        if begun.value is not None:
            mid_epoch = on_device(unseal(begun, EpochStart), HOST)._replace(stream=stream.value)
        if mid_epoch is None or not pipeline.candidate_loader.reports:
            stream.nothing()
        elif not isinstance(stream.value, Mapping):
            raise stream.refuse("a mapping")
        stateful = self._stateful()
        states = dict(zip(stateful, own.fields(*stateful), strict=True))
        for name in ("history", "ledger", "label_noise"):  # they are on the device of the scores
            if saved := states.get(name):
                with saved.inside():
                    moved = on_device(saved.value, pipeline.setup.device)
                states[name] = Saved(moved, saved.path)
        with loaded(zip(stateful.values(), states.values(), strict=True)):
            with position.inside():  # a generator may be on another device now
                put_back(generators, self._loader)
            close()
        pipeline.go_on(stands)
        if pipeline.memory is not None:
            pipeline.memory.close()
            pipeline.memory.resume()
            if mid_epoch is not None:
                # Losses recorded in this epoch are used from the next one on.
                pipeline.memory.reopen(mid_epoch.known, mid_epoch.exempt, epoch)
        self.next_epoch, self.mid_epoch, self.left = epoch, mid_epoch, None

    def _stateful(self) -> dict[str, Any]:
        """Return the parts that have a state, by name; the most expensive to load comes last."""
        pipeline, memory = self._pipeline, self._pipeline.memory
        parts = {
            "selector": pipeline.selector,
            "gate": pipeline.clock.gate,
            "history": pipeline.history,
            "ledger": None if memory is None else memory.ledger,
            "label_noise": None if memory is None else memory.label_noise,
            "pending": None if memory is None else memory.pending,
            "scorer": pipeline.scorer,
        }
        return {name: part for name, part in parts.items() if part is not None}
