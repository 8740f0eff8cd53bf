"""Strategies that remember, and a loop that says what became of each example."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from fixture_doors import NotedSampler, Numbered, losses_by_number
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb

NO_WARMUP = sb.Schedule()
STALE = sb.scorers.Stale(sb.scorers.Forward(), 3)
SPREAD = sb.scorers.Stale(sb.scorers.Forward(), 3, spread=True)
MIXED = sb.scorers.Stale(sb.scorers.Forward(), 2, spread=True, recorded=True)
PREDICTED = sb.scorers.Predicted(sb.scorers.Forward(), sb.scorers.Average(), 3)
RECORDED = sb.scorers.Recorded()
RESCORED = sb.scorers.Recorded(max_age=3, rescore=sb.scorers.Forward())
REMEMBERING = [STALE, SPREAD, MIXED, PREDICTED, RECORDED, RESCORED]


def strategy(
    scorer: sb.scorers.AbstractScorer,
    selector: sb.selectors.AbstractSelector | None = None,
    schedule: sb.Schedule = NO_WARMUP,
) -> sb.Strategy:
    return sb.Strategy("noted", scorer, selector or sb.selectors.Percentile(2.0), schedule)


@dataclass
class Loop:
    """A user's loop over numbered examples, which records all of its losses."""

    strategy: sb.Strategy
    examples: int = 60
    loads: int = 4
    workers: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    records: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        self.data = Numbered(self.examples)
        self.sampler = NotedSampler(self.examples)
        self.scored: list[list[int]] = []  # by epoch
        self.trained: list[list[int]] = []
        self.batches: list[int] = []
        self.calls = 0
        self.loader = DataLoader(
            self.data,
            self.loads,
            sampler=self.sampler,
            num_workers=self.workers,
            drop_last=self.drop_last,
        )
        self.door = sb.SelectiveLoader(
            self.loader,
            nn.Identity(),
            None,
            self.strategy,
            **(
                {
                    "losses": self.losses,
                    "generator": torch.Generator().manual_seed(0),
                    "with_selection": True,
                    "epochs": 100,
                }
                | self.options
            ),
        )

    def losses(self, model: nn.Module, batch: Any) -> Tensor:
        """Losses that are new at each call, as those of a model in training are."""
        self.calls += 1
        self.scored[-1] += batch[1].tolist()
        return torch.frac(losses_by_number(model, batch) + self.calls * 0.137)

    def epoch(self, stop: int | None = None, each: Callable[[], None] | None = None) -> "Loop":
        self.scored.append([])
        self.trained.append([])
        self.batches.append(0)
        for (inputs, targets), selection in self.door:
            assert selection.indices.tolist() == targets.tolist() == inputs[:, 0].tolist()
            self.trained[-1] += targets.tolist()
            self.batches[-1] += 1
            if self.records:
                self.door.record(selection, losses_by_number(None, (inputs, targets)))
            if each is not None:
                each()
            if self.batches[-1] == stop:
                break
        return self

    def epochs(self, number: int) -> "Loop":
        for _ in range(number):
            self.epoch()
        return self

    def waiting(self) -> Counter[int]:
        """The indices of all that waits, wherever it does."""
        state = self.door.state_dict()
        drawing = state["cursor"]
        found = Counter(drawing["unscored"].tolist())
        for stage in (drawing["index_buffer"], state["row_buffer"]):
            for kind in ("waiting", "chosen"):
                for batch, _, indices, *_ in stage[kind]:
                    found.update((batch if indices is None else indices).tolist())
        return found
