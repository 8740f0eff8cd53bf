"""RHO-Loss: how far a candidate's loss is above that of a reference model."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    check_inner,
    start_scorer,
)


@final
class ReferenceLosses:
    """One loss per example of a data set, from a model that was trained beforehand.

    Args:
        losses: `[example]`, in the data set's order; finite. Copied.

    Raises:
        ConfigurationError: if they are not one finite number per example.
    """

    def __init__(self, losses: Tensor) -> None:
        if not isinstance(losses, Tensor) or losses.ndim != 1 or not losses.numel():
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise ConfigurationError(
                f"reference losses are {found}; a tensor of one loss per example is needed, in "
                "the data set's order"
            )
        self._losses = losses.detach().to("cpu", torch.float32, copy=True)
        if not bool(self._losses.isfinite().all()):
            bad = (~self._losses.isfinite()).nonzero().flatten()
            raise ConfigurationError(
                f"{len(bad)} of {len(losses)} reference losses are not finite, of examples "
                f"{bad[:10].tolist()}; every example needs one"
            )
        data = self._losses.numpy().tobytes()
        self._digest = hashlib.blake2b(data, digest_size=6).hexdigest()

    def __len__(self) -> int:
        return self._losses.shape[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReferenceLosses) and torch.equal(self._losses, other._losses)

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"ReferenceLosses({len(self)} examples, digest {self._digest})"

    @property
    def losses(self) -> Tensor:
        """A copy of the losses, `[example]`, float32."""
        return self._losses.clone()


@final
@dataclass(frozen=True)
class Excess(AbstractScorer):
    """Score each candidate by how far its score is above a reference loss of the same example.

    Examples that a well-trained reference finds hard too, such as noisy or ambiguous ones, score
    low. Examples that the reference has learned and the model has not score high.

    Args:
        reference: one loss per example, from a reference model. Best train that model on other
            examples, so that it has not learned these by heart.
        scorer: scores the candidates.

    Raises:
        ConfigurationError: if there are no reference losses, or the scorer cannot be wrapped.

    Source:
        Mindermann et al. 2022, arXiv:2206.07137 (reducible holdout loss).
    """

    reference: ReferenceLosses
    scorer: AbstractScorer

    def __post_init__(self) -> None:
        check_instance("reference", self.reference, ReferenceLosses, "ReferenceLosses(losses)")
        check_inner(self.scorer)

    @property
    def needs(self) -> Needs:
        """Indices, besides what the wrapped scorer needs."""
        return replace(self.scorer.needs, indices=True)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer.

        Raises:
            ConfigurationError: if the data set has another number of examples.
        """
        if context.examples != len(self.reference):
            raise ConfigurationError(
                f"there are reference losses of {len(self.reference)} examples, and the data set "
                f"has {context.examples}"
            )
        return _RunningExcess(self.reference.losses, start_scorer(self.scorer, context))


class _RunningExcess(Delegating):
    def __init__(self, reference: Tensor, inner: RunningScorer) -> None:
        super().__init__(inner)
        self._reference = reference

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self._above_reference(self.inner.score(batch, indices), indices)

    def score_exactly(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self._above_reference(self.inner.score_exactly(batch, indices), indices)

    def _above_reference(self, scores: Scores, indices: RowIndices | None) -> Scores:
        self._reference = self._reference.to(scores.device)
        assert indices is not None  # the loader refuses streams
        return scores - self._reference[indices.to(scores.device)]
