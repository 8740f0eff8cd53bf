"""Stale-SB as its authors' program does it, which is not what their paper says of it.

Both score all examples in every n-th epoch. In the epochs between, the program

- gathers candidates until they are more than four batches, then draws from all of them by their
  last losses, those of training included, and trains on one batch of what was drawn. What is left
  waits for the next epochs; one that scores trains on all of it, besides what it draws itself;
- so trains on a fifth of the examples, whatever the selectivity, if enough are drawn.

The first epoch is scored, and trained on whole. A last batch that is not full is trained on.

Here what waits is taken when its examples come up again, augmented anew, where the program keeps
them in the order in which they were drawn.
"""

from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.shapes import Float, Int64

GATHERED = 5  # batches, of candidates that are not scored, that make one training batch


@dataclass(eq=False)
class _Queue:
    """How often each example waits to be trained on, for a scorer and a selector of one run."""

    waiting: Int64[Tensor, " example"] | None = None  # None before anything has waited
    scored: Int64[Tensor, " candidate"] | None = None  # of the batch that was scored last

    def meet(self, indices: Int64[Tensor, " candidate"]) -> None:
        """Take the examples of a batch that is scored out of the queue."""
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
    inner: sb.scorers.AbstractScorer = field(default_factory=sb.scorers.Forward)

    @property
    def needs(self) -> sb.scorers.Needs:
        """Indices and the losses of training, besides what a forward pass needs."""
        more: dict[str, Any] = {"indices": True, "remembers": True, "recordings": True}
        return replace(self.inner.needs, fresh=1 / self.epochs, **more)

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        return _RunningScorer(self.inner.start(context), self)


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
        """Keep about the rate of what is scored, what waits besides, and a fifth of the rest."""
        draw = sb.selectors.Draw.BERNOULLI
        return sb.selectors.Terms(self.rate, draw, self.history, promises=False, paced=True)

    def start(self, context: sb.selectors.Context) -> sb.selectors.RunningSelector:
        return _RunningSelector(self, context)


class _RunningSelector(sb.selectors.RunningSelector, sb.selectors.Paced):
    def __init__(self, spec: _Selector, context: sb.selectors.Context) -> None:
        self._spec, self._queue, self._context = spec, spec.queue, context
        self._first = True
        # What waited before the epoch's draw, and the draw's seed: resumed, an epoch draws again.
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
        """Return what an epoch trains on that does not score; what it drew besides waits."""
        if generator.initial_seed() != self._seed:
            self._before, self._seed = self._queue.waiting, generator.initial_seed()
        waited = torch.zeros(len(drawn), dtype=torch.int64)
        if self._before is not None:
            waited += self._before
        # Of what waits the oldest first; of equals at random.
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
    """Return numbers between 0 and 1, on the host, from a generator of any device."""
    return torch.rand(count, generator=generator, dtype=dtype, device=generator.device).cpu()


def stale_sb_as_released(rate: float, *, epochs: int, history: int) -> sb.Strategy:
    """Return Stale-SB as its authors' program trains, for one training.

    Args:
        rate: share of what is scored that is drawn, in (0, 1].
        epochs: in every how many epochs all examples are scored, n, at least 2.
        history: how many recent losses fresh ones are ranked among.

    Source:
        github.com/angelajiang/SelectiveBackprop, 7c41937: `MemoizedTrainer` and `StaleSelector`.
    """
    queue = _Queue()
    scorer, selector = _Scorer(epochs, queue), _Selector(rate, history, queue)
    return sb.Strategy("stale-sb-released", scorer, selector)
