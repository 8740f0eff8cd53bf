"""Open an epoch on all ranks: compare how they were built, and share what they know."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

import torch

from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._distributed.group import Group
from selective_backprop._distributed.messages import compare
from selective_backprop._memory.history import History
from selective_backprop._pipeline.epoch_length import LengthPlanner
from selective_backprop._pipeline.lockstep import LockstepBatches
from selective_backprop._pipeline.resume_point import EpochStart
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import SelectionBuffer

UNKNOWN = -1


class RankState(NamedTuple):
    """The state of a rank when an epoch opens."""

    epoch: int
    filed: int  # scores that were ever filed in its history
    begun: int  # whether the epoch had begun before and is continued
    seed: int
    scored: int = 0  # pending updates of each kind
    recorded: int = 0
    classes: int = 0
    counted: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """What must be the same on all ranks."""
        return self.epoch, self.filed, self.begun

    def __str__(self) -> str:
        verb = "goes on with" if self.begun else "opens"
        return f"{verb} epoch {self.epoch} with {self.filed} scores filed"


class EpochForecast(NamedTuple):
    """What a rank expects of an epoch, once all ranks' updates are merged."""

    failed: bool = True  # about to raise
    batches: int = UNKNOWN  # how many it would yield by itself
    candidates: int = UNKNOWN
    waiting: int = 0  # examples of earlier epochs


@dataclass(eq=False)
class EpochHandshake:
    """Open epochs on all ranks together."""

    group: Group
    lockstep: LockstepBatches
    _: KW_ONLY
    built: Mapping[str, object]  # must be the same on all ranks
    buffers: tuple[SelectionBuffer, ...]  # whose draws get rank 0's seed
    history: History | None
    memory: ScoreMemory | None
    length_planner: LengthPlanner
    collective_forward: bool  # whether the ranks must see equally many candidates
    _met: bool = field(default=False, init=False)
    _own: EpochForecast = field(default=EpochForecast(), init=False)
    _least: EpochForecast = field(default=EpochForecast(), init=False)

    def open(self, start: EpochStart, *, begun: bool = False) -> None:
        """Agree on an epoch that begins, and merge the updates pending from earlier ones.

        If the epoch has begun before and is continued, everything is merged already.
        """
        self._own = self._least = EpochForecast()
        self.lockstep.open(start.epoch, met=self._met)
        openings = self._compare(start, begun)
        self._met = True
        for buffer in self.buffers:
            buffer.seed_with(openings[0].seed % 2**64)
        failure = None
        if self.memory is not None and not begun:
            sizes = [(each.scored, each.recorded, each.classes, each.counted) for each in openings]
            failure = self.memory.merge(self.group, sizes, start.epoch)
        if failure is None:
            try:
                self._own = self._foresee(start, begun)
            except Exception as error:  # raised once the others know
                failure = error
        own = torch.tensor(self._own, dtype=torch.int64)
        forecasts = self.group.gather(own, f"opens epoch {start.epoch}").tolist()
        if failure is not None:
            raise failure
        self._least = self._judge([EpochForecast(*each) for each in forecasts])

    @property
    def batches(self) -> int:
        """The number of batches of the running epoch, on every rank; TypeError if unknown."""
        if self._least.batches == UNKNOWN:
            raise TypeError("not every rank knows in advance how many batches it will have")
        return self._least.batches

    def foresee(self, start: EpochStart) -> int:
        """Return the number of batches of a coming epoch, on every rank; TypeError if unknown."""
        if self.memory is not None:
            raise TypeError("what the other ranks remember is known once the epoch runs")
        if start.held or not self.length_planner.source.is_shared_by(self.group.size):
            raise TypeError(
                f"the {self.group.size} ranks yield as many batches as the shortest shard gives, "
                "which is known once the epoch runs. It is known before if torch's "
                f"DistributedSampler deals out {self.group.size} equal shards"
            )
        return self.length_planner.batches(start)

    def beyond(self, candidates_seen: int) -> int:
        """Return how many candidates of this rank's shard were never seen."""
        return max(0, self._own.candidates - candidates_seen)

    def _compare(self, start: EpochStart, begun: bool) -> list[RankState]:
        """Return the ranks' states; refuse different epochs or histories."""
        seed = self.buffers[0].seed[0] % 2**64
        mine = RankState(
            start.epoch,
            0 if self.history is None else self.history.filed,
            begun,
            seed - 2**64 * (seed >= 2**63),  # as an int64 holds it
            *(() if self.memory is None else self.memory.noted),
        )
        states = [RankState(*each) for each in compare(self.group, self.built, list(mine))]
        for rank, other in enumerate(states):
            if other.place != states[0].place:
                raise LoaderError(
                    f"rank {rank} {other}, rank 0 {states[0]}: ranks continue from different "
                    "places. Give set_epoch() the same number on all ranks, and let each rank load "
                    "its own state of that moment."
                )
        return states

    def _foresee(self, start: EpochStart, begun: bool) -> EpochForecast:
        batches = UNKNOWN
        # In a continued epoch the scores known at its beginning are not restored yet.
        if self.memory is None or not begun:
            with suppress(TypeError):
                batches = self.length_planner.batches(start)
        sizes = self.length_planner.source.sizes()
        candidates = UNKNOWN if sizes is None else sum(sizes)
        return EpochForecast(False, batches, candidates, start.waiting)

    def _judge(self, ranks: list[EpochForecast]) -> EpochForecast:
        """Return the least of each number over all ranks."""
        failed = [rank for rank, each in enumerate(ranks) if each.failed]
        if failed:
            raise LoaderError(
                f"rank {', '.join(map(str, failed))} of {len(ranks)} failed when the epoch "
                "opened, so no rank can continue. The error of that rank says why"
            )
        least = EpochForecast(*map(min, zip(*ranks, strict=True)))
        self.lockstep.alike = {each.batches for each in ranks} == {max(0, least.batches)}
        seen = [(each.candidates, each.waiting) for each in ranks]
        if self.collective_forward and (least.candidates == UNKNOWN or len(set(seen)) > 1):
            found = ", ".join(
                "an unknown number" if new == UNKNOWN else f"{new} and {old} that wait"
                for new, old in seen
            )
            raise ConfigurationError(
                "the forward pass that scores is a collective of all ranks (FSDP, or SyncBatchNorm "
                "in training mode), so all must score equally many candidates, but in this epoch "
                f"they have {found}. Shard the data with torch's DistributedSampler, or use a "
                "strategy that does not score with the model."
            )
        return least
