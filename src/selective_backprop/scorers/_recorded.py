"""Select by the losses that training computed anyway, without selection passes."""

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._memory.ledger import Ledger
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    check_inner,
    start_scorer,
)
from selective_backprop.scorers._stale import merged

EVEN = math.log(2.0)  # the cross-entropy of a target that has probability 1/2
GIVEN_UP = -np.inf  # a score below any loss


@final
@dataclass(frozen=True)
class Recorded(AbstractScorer):
    """Score each example by the last loss that training recorded of it.

    The loop hands its losses to `SelectiveLoader.record`. Examples are selected before anything
    is loaded; an example without a known loss scores infinity, so that it is trained on. The
    losses come from the model in training mode, from when the example was last trained on: an
    example that is left out for long is judged by an old loss.

    Args:
        max_age: for how many epochs a loss counts, from the epoch after the one in which it was
            recorded; an example whose loss is older is trained on again. None: for ever.
        rescore: at each epoch's end, scores the examples that the epoch left out, by passes that
            are charged as scoring; None leaves them with their old loss.
        highest_of: score an example by the highest of so many of its last recorded losses; one
            with fewer is trained on. More than 1 guards against lucky guesses.
        give_up: the share of examples, in (0, 1), that must recover for the others not to be
            given up. An example recovers if its next loss is at most ln 2 (its target has
            probability 1/2); the higher its loss, the rarer this is. The limit is the lowest loss
            from which on fewer than this share recover. Examples whose last `highest_of` losses
            all reach it score minus infinity, which ranks lowest. If `max_age` is set, each epoch
            takes another `max_age`-th of them back, to see whether they recover. Giving up begins
            once half of the examples have a loss of at most ln 2. Mislabelled examples do not
            recover, hard ones do. Losses must be plain cross-entropies. None: no example is
            given up.

    Raises:
        ConfigurationError: if `max_age` or `highest_of` is no whole number from 1, `rescore`
            cannot be wrapped, or `give_up` is out of its range or `highest_of` below 2 with it.
    """

    max_age: int | None = None
    rescore: AbstractScorer | None = None
    highest_of: int = 1
    give_up: float | None = None

    def __post_init__(self) -> None:
        settle(self, check_whole, "max_age", optional=True)
        settle(self, check_whole, "highest_of")
        hint = "0.05 is one in twenty, None gives up none"
        settle(self, check_number, "give_up", above=0, below=1, optional=True, hint=hint)
        if self.rescore is not None:
            check_inner(self.rescore, may_defer=True)
        if self.give_up is not None and self.highest_of < 2:
            raise ConfigurationError(
                f"give_up={self.give_up} with highest_of={self.highest_of}: whether examples "
                "recover is seen by at least two losses of each; write highest_of=2"
            )

    @property
    def needs(self) -> Needs:
        """Indices and recorded losses; with `rescore`, also what that scorer needs."""
        inner = Needs() if self.rescore is None else self.rescore.needs
        return replace(
            inner,
            passes=False,
            indices=True,
            remembers=True,
            recordings=True,
            depth=self.highest_of,
            rescores=self.rescore is not None,
            defers=False,
        )

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer."""
        inner = _TakesNone() if self.rescore is None else start_scorer(self.rescore, context)
        return _RunningRecorded(self, inner)


class _TakesNone(RunningScorer):
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        raise ConfigurationError("Recorded() takes no scores; it remembers recorded ones")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        Saved(state).fields()


class _RunningRecorded(Delegating):
    def __init__(self, spec: Recorded, inner: RunningScorer) -> None:
        super().__init__(inner)
        self._spec = spec

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self.inner.score(batch, indices)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"]:
        scored, recorded = ledger.scored.observe(), ledger.recorded.observe()
        scores, epochs = merged(scored, recorded)
        unknown = (epochs < 0) | np.isnan(scores)
        if self._spec.max_age is not None:
            unknown |= epoch - epochs > self._spec.max_age
        if self._spec.highest_of > 1:
            unknown |= np.isnan(recorded.scores).any(axis=0)
            scores = np.fmax(scores, np.fmax.reduce(recorded.scores))
        if self._spec.give_up is not None:
            scores[self._given_up(recorded.scores, epoch)] = GIVEN_UP
        return torch.from_numpy(np.where(unknown, np.float32(np.inf), scores))

    def _given_up(self, losses: np.ndarray, epoch: int) -> np.ndarray:
        """Return which examples an epoch gives up; with `max_age`, some are taken back in turn."""
        assert self._spec.give_up is not None
        lost = hopeless(losses, self._spec.give_up)
        if self._spec.max_age is not None:
            lost &= (np.arange(len(lost)) + epoch) % self._spec.max_age != 0
        return lost


def hopeless(losses: Float32[np.ndarray, "lag example"], give_up: float) -> np.ndarray:
    """Return which examples have such high losses that too few like them recover.

    Args:
        losses: the last losses of each example, at least two, newest first; NaN where an example
            has fewer.
        give_up: the share of examples with such losses that must recover.

    Returns:
        A mask, `[example]`.
    """
    known = np.logical_and.reduce(np.isfinite(losses))
    newest, before = losses[0, known], losses[1, known]
    learned = newest <= EVEN
    if 2 * np.count_nonzero(learned) >= len(learned):
        limit = _limit(before[before > EVEN], learned[before > EVEN], give_up)
        return np.logical_and(known, np.minimum.reduce(losses) >= limit)
    return np.zeros_like(known)


def _limit(losses: np.ndarray, recovered: np.ndarray, give_up: float) -> float:
    """Return the lowest loss from which on too few examples recover; infinity if there is none."""
    order = np.argsort(-losses, kind="stable")
    losses, number = losses[order], np.arange(1, len(order) + 1)
    # Both counts start at one, since a share of few examples says little.
    hopeless = (np.cumsum(recovered[order]) + 1) / (number + 1) < give_up
    hopeless[:-1] &= losses[:-1] != losses[1:]  # equal losses are given up together or not at all
    (ends,) = np.nonzero(hopeless)
    return float(losses[ends[-1]]) if len(ends) else np.inf
