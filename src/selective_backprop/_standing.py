"""Where a loader stands: what was counted, which epoch comes, and what a saved state holds."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from selective_backprop._assembly import Assembly
from selective_backprop._checks import check_state
from selective_backprop._funnel import FunnelState
from selective_backprop._midway import Midway
from selective_backprop._outlook import Start
from selective_backprop._packing import on_device
from selective_backprop._pipeline import Position
from selective_backprop._stats import Stats

STATE_VERSION = 4


class Standing:
    """Where the consumer of a loader's batches stands.

    Args:
        parts: the stages, some of which have a state of their own.
        built: what the loader was built with, by name; a state is of a loader built alike.
        device: where scores live, or None for anywhere.

    Attributes:
        position: how far the consumer has come.
        next_epoch: the number of the epoch that the next iteration begins, or goes on with.
        start: where the epoch that runs started from; None while none does.
        began: what was counted when that epoch began.
        midway: how an epoch began that is to go on; None where there is none.
        fresh: whether no state was loaded.
    """

    def __init__(self, parts: Assembly, built: dict[str, Any], device: torch.device | None) -> None:
        self._parts, self._built, self._device = parts, built, device
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

    def check(self, state: Any) -> None:
        """Refuse a state that is not of a loader like this one.

        Raises:
            ConfigurationError: if it is not; the difference is named.
        """
        check_state(state, STATE_VERSION, self._built)

    def unpack(self, state: dict[str, Any]) -> None:
        """Go on from what `pack()` returned and `check` let pass."""
        parts, device = self._parts, self._device
        for name, part in self._stateful():
            moves = device if name in ("history", "ledger") else None  # which live with the scores
            part.load_state_dict(on_device(state["parts"][name], moves))
        for funnel in (parts.early, parts.pipeline.funnel):
            funnel.seed = (state["seed"], *funnel.seed[1:])
        self.fresh = False
        self.next_epoch = state["next_epoch"]
        self.midway = None if state["midway"] is None else Midway.unpack(state["midway"])
        self._tally = asdict(Stats(**state["stats"]))
        self.position = Position.unpack(state["position"], self._tally)
        parts.clock.interludes.state = self.position.draw.interludes
        parts.pipeline.funnel.state = FunnelState.unpack(state["late"], device)
        parts.pipeline.finite.skipped = state["skipped"]
        if parts.accord is not None:
            parts.accord.turns.held = next(
                iter(FunnelState.unpack(state["held"], device).chosen), None
            )

    def _stateful(self) -> Iterator[tuple[str, Any]]:
        """Yield what has a state of its own, by name."""
        for name in ("selector", "scorer", "gate", "history", "ledger", "journal"):
            part = getattr(self._parts, name)
            if part is not None:
                yield name, part
