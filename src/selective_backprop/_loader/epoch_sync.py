"""Begin an epoch on all ranks: compare how they were built, and share what they know."""

from contextlib import suppress
from functools import partial
from typing import NamedTuple

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._distributed.group import Group, Status, compare
from selective_backprop._pipeline.epoch_length import LengthPlanner
from selective_backprop._pipeline.rows import EpochStart
from selective_backprop._pipeline.stages import Pipeline

UNKNOWN = -1


class EpochForecast(NamedTuple):
    """What a rank expects of an epoch, once all ranks' updates are merged."""

    batches: int = UNKNOWN  # how many the rank would yield if it were alone
    candidates: int = UNKNOWN
    waiting: int = 0  # number of examples that wait from earlier epochs


class EpochHandshake:
    def __init__(self, group: Group, pipeline: Pipeline, length_planner: LengthPlanner) -> None:
        self.group, self._length_planner = group, length_planner
        assert pipeline.lockstep is not None  # the ranks' own
        self._pipeline, self._lockstep, self._memory = pipeline, pipeline.lockstep, pipeline.memory
        setup = self._setup = pipeline.setup
        self.built: dict[str, object] = {  # must be the same on all ranks
            "strategy": setup.strategy,
            "batch_size": setup.shape.batch_size,
            "window": setup.shape.window,
            "leftovers": setup.leftovers,
            "nonfinite": setup.nonfinite,
            "epochs": setup.progress.epochs,
            "overlap": setup.overlap,
            # ranks share scores by index, so an index must mean the same example on all ranks
            "examples": setup.source.examples if setup.remembers else None,
        }
        self.own = self._least = EpochForecast()

    def open(self, start: EpochStart, *, begun: bool = False) -> None:
        """Agree on the next epoch, and merge earlier updates unless it was `begun` before."""
        self._least = EpochForecast()
        self._lockstep.open(start.epoch)
        pipeline, memory = self._pipeline, self._memory
        filed = 0 if pipeline.history is None else pipeline.history.filed
        stands = {"set_epoch()": start.epoch, "continued": begun, "scores in history": filed}
        mine = [pipeline.keys.seed[0] % 2**64, 0 if memory is None else memory.noted]
        seeds, noted = zip(*compare(self.group, self.built | stands, mine), strict=True)
        self._lockstep.met = True
        pipeline.seed_with(seeds[0])
        if memory is not None and not begun:
            memory.merge(self.group, noted, start.epoch)
        self.own = self._lockstep.attempt(partial(self._foresee, start, begun))
        self._lockstep.swap(Status.READY)
        forecasts = self.group.gather(torch.tensor(self.own), f"opens epoch {start.epoch}")
        self._least = self._judge([EpochForecast(*each) for each in forecasts.tolist()])

    def close(self) -> None:
        if self._memory is not None:
            noted = self.group.gather(torch.tensor(self._memory.noted), "ends an epoch")
            self._memory.merge(self.group, noted.tolist())

    @property
    def batches(self) -> int:
        if self._least.batches == UNKNOWN:
            raise TypeError("not every rank knows in advance how many batches it will have")
        return self._least.batches

    def foresee(self, start: EpochStart) -> int:
        if self._memory is not None:
            raise TypeError("the scores that other ranks remember are known once the epoch runs")
        if start.held or not self._setup.source.is_shared_by(self.group.size):
            raise TypeError(
                f"each of the {self.group.size} ranks yields as many batches as the shortest "
                "rank's data give, which is known once the epoch runs. It is known earlier if "
                f"torch's DistributedSampler deals out {self.group.size} equal shards"
            )
        return self._length_planner.batches(start)

    def _foresee(self, start: EpochStart, begun: bool) -> EpochForecast:
        batches = UNKNOWN
        # In a continued epoch the scores known at its beginning are not restored yet.
        if self._memory is None or not begun:
            with suppress(TypeError):
                batches = self._length_planner.batches(start)
        sizes = self._setup.source.sizes()
        candidates = UNKNOWN if sizes is None else sum(sizes)
        return EpochForecast(batches, candidates, start.waiting)

    def _judge(self, ranks: list[EpochForecast]) -> EpochForecast:
        least = EpochForecast(*map(min, zip(*ranks, strict=True)))
        self._lockstep.alike = {each.batches for each in ranks} == {max(0, least.batches)}
        seen = [(each.candidates, each.waiting) for each in ranks]
        if self._pipeline.together and (least.candidates == UNKNOWN or len(set(seen)) > 1):
            found = ", ".join(
                "an unknown number" if new == UNKNOWN else f"{new} new and {old} waiting"
                for new, old in seen
            )
            raise ConfigurationError(
                "the forward pass that scores needs all ranks at once (FSDP, or SyncBatchNorm in "
                f"training mode), but by rank, they have {found} candidates. Shard the data with "
                "torch's DistributedSampler, or use a strategy that does not score with the model"
            )
        return least
