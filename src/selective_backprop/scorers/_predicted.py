"""Predict scores from earlier ones, instead of reusing the last ones."""

from dataclasses import dataclass, replace
from typing import final

from jaxtyping import Float32
from torch import Tensor

from selective_backprop._core.options import check_instance, check_whole, settle
from selective_backprop._memory.ledger import Ledger
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Needs,
    PassThrough,
    RunningScorer,
    check_inner,
    start_scorer,
)
from selective_backprop.scorers._stale import expired, forget
from selective_backprop.scorers.predictors._predictor import AbstractPredictor, Average


@final
@dataclass(frozen=True)
class Predicted(AbstractScorer):
    """Score each example only every few epochs, and select by a predicted score in between.

    Like `Stale`, except that scores are predicted from the last ones. Predictions are made once,
    at an epoch's start, for all examples. An example whose last score is too old is loaded and
    scored.

    Args:
        scorer: scores the examples.
        predictor: predicts a score from the last ones.
        epochs: for how many epochs a score is used, counting the one in which it was taken; at
            least 2, since with 1 nothing would ever be predicted.

    Raises:
        ConfigurationError: if a value is out of its range, `scorer` is no scorer or remembers
            scores itself, or `predictor` is no predictor.
    """

    scorer: AbstractScorer
    predictor: AbstractPredictor = Average()
    epochs: int = 3

    def __post_init__(self) -> None:
        check_inner(self.scorer, may_defer=True)
        check_instance("predictor", self.predictor, AbstractPredictor, "Average()")
        settle(self, check_whole, "epochs", least=2, hint="with 1 nothing is predicted")

    @property
    def needs(self) -> Needs:
        """Indices, and as many remembered scores as the predictor reads."""
        depth, fresh = self.predictor.depth, 1.0 / self.epochs
        return replace(self.scorer.needs, indices=True, remembers=True, depth=depth, fresh=fresh)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer."""
        return _RunningPredicted(self, start_scorer(self.scorer, context))


class _RunningPredicted(PassThrough):
    def __init__(self, spec: Predicted, inner: RunningScorer) -> None:
        super().__init__(inner)
        self._spec = spec

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        if ledger.scored.empty:
            return None
        observed = ledger.scored.observe()
        lost = expired(observed.epochs[0], epoch, self._spec.epochs, spread=False)
        if lost.all():
            return None
        return forget(self._spec.predictor.predict(observed, epoch), lost)
