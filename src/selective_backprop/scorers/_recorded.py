"""Select by the losses that training computed anyway: no selection pass at all."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from selective_backprop._context import Context
from selective_backprop._errors import ConfigurationError
from selective_backprop._ledger import Ledger
from selective_backprop._types import RowIndices, Scores
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Needs,
    Remembering,
    RunningScorer,
)
from selective_backprop.scorers._predictor import check_depth
from selective_backprop.scorers._stale import check_epochs, check_inner, newest
from selective_backprop.scorers._wrapping import RunningWrapper


@final
@dataclass(frozen=True)
class Recorded(AbstractScorer):
    """Score each example by the last loss that training recorded of it.

    The loop hands its losses to `SelectiveLoader.record`. Examples are selected before anything
    is loaded; one of which nothing is known counts as infinitely hard, so that it is trained on.
    The losses are those of the model in training mode, at the time when the example was last
    trained on: what is left out for long is judged by an old loss.

    Args:
        max_age: for how many epochs a loss is believed, the one after it was recorded being
            the first; an example that was trained on no later is trained on again. None: for
            ever.
        rescore: scores the examples that an epoch left out at its end, by passes that are
            charged as scoring; None leaves them with their old loss.
        highest_of: how many of its last recorded losses an example is judged by the highest of;
            one with fewer is trained on. More than 1 does not believe in a lucky guess.

    Raises:
        ConfigurationError: if `max_age` or `highest_of` is no whole number from 1, or `rescore`
            no scorer that can be wrapped.
    """

    max_age: int | None = None
    rescore: AbstractScorer | None = None
    highest_of: int = 1

    def __post_init__(self) -> None:
        if self.max_age is not None:
            check_epochs("max_age", self.max_age)
        check_depth(self.highest_of, least=1, name="highest_of")
        if self.rescore is not None:
            check_inner(self.rescore, may_defer=True)

    @property
    def needs(self) -> Needs:
        """Indices and recorded losses, and passes only where something is rescored."""
        inner = self.rescore
        return Needs(
            passes=False,
            indices=True,
            remembers=True,
            outputs=inner is not None and inner.needs.outputs,
            recordings=True,
            depth=self.highest_of,
            rescores=inner is not None,
        )

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer."""
        inner = _TakesNone() if self.rescore is None else self.rescore.start(context)
        return _RunningRecorded(self, inner)


class _TakesNone(RunningScorer):
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        raise ConfigurationError("Recorded() takes no scores; it remembers recorded ones")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class _RunningRecorded(RunningWrapper, Remembering):
    def __init__(self, spec: Recorded, inner: RunningScorer) -> None:
        super().__init__(inner)
        self._spec = spec

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self._inner.score(batch, indices)

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"]:
        scores, epochs = newest(ledger, recorded=True)
        unknown = (epochs < 0) | np.isnan(scores)
        if self._spec.max_age is not None:
            unknown |= epoch - epochs > self._spec.max_age
        if self._spec.highest_of > 1:
            recorded = ledger.recorded.observe().scores
            unknown |= np.isnan(recorded).any(axis=0)
            scores = np.fmax(scores, np.fmax.reduce(recorded))
        return torch.from_numpy(np.where(unknown, np.float32(np.inf), scores))
