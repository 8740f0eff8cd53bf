"""Stale-SB as in its authors' program, which differs from their paper.

Both score all examples in every n-th epoch. In the other epochs, the program gathers more than four
batches of candidates, draws from them by their last losses (also those of training), and trains on
one batch of the drawn examples, a fifth whatever the selectivity. The others wait: the next epoch
that scores trains on them, and on those it draws itself. The first epoch trains on everything.

In this version, a waiting example is taken when it comes up again, with a new augmentation. The
program keeps waiting examples in the order in which they were drawn.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.shapes import Float, Int64

GATHERED = 5  # batches of candidates that make one training batch, in an epoch without scoring


@dataclass(eq=False)
class _Queue:
    """How many times each example waits to be trained on; scorer and selector of a run share it."""

    waiting: Int64[Tensor, " example"] | None = None  # None until an example waits
    scored: Int64[Tensor, " candidate"] | None = None  # how often those of the last batch waited

    def meet(self, indices: Int64[Tensor, " candidate"]) -> None:
        self.scored = torch.zeros(len(indices), dtype=torch.int64)
        if self.waiting is not None:
            places = indices.cpu()
            self.scored = self.waiting[places]
            self.waiting[places] = 0


@final
@dataclass(frozen=True)
class _Scorer(sb.scorers.AbstractScorer):
    epochs: int
    queue: _Queue

    @property
    def needs(self) -> sb.scorers.Needs:
        more: dict[str, Any] = {"indices": True, "remembers": True, "recordings": True}
        return replace(sb.scorers.Forward().needs, **more)

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        return _RunningScorer(sb.scorers.Forward().start(context), self)


class _RunningScorer(sb.scorers.Delegating):
    def __init__(self, inner: sb.scorers.RunningScorer, spec: _Scorer) -> None:
        super().__init__(inner)
        self._spec = spec

    def score(self, batch: Any, indices: Tensor | None) -> Tensor:
        assert indices is not None
        self._spec.queue.meet(indices)
        return self.inner.score(batch, indices)

    def recall(self, ledger: sb.scorers.Ledger, epoch: int) -> Float[Tensor, " example"] | None:
        if epoch % self._spec.epochs == 0:
            return None
        scored, trained = ledger.scored.observe(), ledger.recorded.observe()
        newer = trained.epochs[0] >= scored.epochs[0]
        losses = np.where(newer, trained.scores[0], scored.scores[0])
        return torch.from_numpy(np.nan_to_num(losses, nan=np.inf))


@final
@dataclass(frozen=True)
class _Selector(sb.selectors.AbstractSelector):
    rate: float
    history: int
    queue: _Queue

    @property
    def terms(self) -> sb.selectors.Terms:
        """With scores, keep about `rate` of the examples and all that wait; else keep a fifth."""
        draw = sb.selectors.Draw.BERNOULLI
        return sb.selectors.Terms(self.rate, draw, self.history, promises=False, paced=True)

    def start(self, context: sb.selectors.Context) -> sb.selectors.RunningSelector:
        return _RunningSelector(self, context)


class _RunningSelector(sb.selectors.RunningSelector, sb.selectors.Paced):
    def __init__(self, spec: _Selector, context: sb.selectors.Context) -> None:
        self._spec, self._queue, self._context = spec, spec.queue, context
        self._first = True
        # What waited before the epoch's draw, and its seed, because a resumed epoch draws again.
        self._before: Tensor | None = None
        self._seed = -1

    def begin(self, progress: float) -> None:
        self._first = progress == 0.0

    def select(
        self, scores: Tensor, history: sb.selectors.History, generator: torch.Generator
    ) -> sb.selectors.Choice:
        odds = history.percentiles(scores).cpu() ** (1 / self._spec.rate - 1)
        drawn = _uniform(len(odds), generator, odds.dtype) < odds
        counts, self._queue.scored = self._queue.scored, None
        if counts is None:
            return sb.selectors.Choice(self._fifth(drawn, generator))
        times = torch.ones_like(counts) if self._first else counts + drawn
        return sb.selectors.Choice(torch.arange(len(times)).repeat_interleave(times))

    def _fifth(self, drawn: Tensor, generator: torch.Generator) -> Int64[Tensor, " row"]:
        if generator.initial_seed() != self._seed:
            self._before, self._seed = self._queue.waiting, generator.initial_seed()
        waited = torch.zeros(len(drawn), dtype=torch.int64)
        if self._before is not None:
            waited += self._before
        # The examples that waited longest come first; ties are broken at random.
        turn = 2 * (waited > 0) + drawn + _uniform(len(drawn), generator, torch.float32)
        batch = self._context.batch_size
        room = batch * -(-len(drawn) // (GATHERED * batch))
        waiting = waited + drawn
        rows = turn.topk(min(room, int((waiting > 0).sum()))).indices.sort().values
        waiting[rows] -= 1
        self._queue.waiting = waiting
        return rows

    def state_dict(self) -> dict[str, Any]:
        waits = {"waiting": self._queue.waiting, "before": self._before}
        return {**waits, "seed": self._seed, "first": self._first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._queue.waiting, self._before = state["waiting"], state["before"]
        self._seed, self._first = state["seed"], state["first"]


def _uniform(count: int, generator: torch.Generator, dtype: torch.dtype) -> Float[Tensor, " row"]:
    return torch.rand(count, generator=generator, dtype=dtype, device=generator.device).cpu()


def stale_sb_as_released(rate: float, *, epochs: int, history: int) -> sb.Strategy:
    """Return Stale-SB as in its authors' program; use the strategy for a single training.

    Source:
        github.com/angelajiang/SelectiveBackprop, 7c41937: `MemoizedTrainer` and `StaleSelector`.
    """
    queue = _Queue()
    scorer, selector = _Scorer(epochs, queue), _Selector(rate, history, queue)
    return sb.Strategy("stale-sb-released", scorer, selector)
