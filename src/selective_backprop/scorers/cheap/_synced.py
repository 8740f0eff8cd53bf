"""Score with a copy of the model that is brought up to date only now and then."""

from dataclasses import dataclass, replace
from typing import Any, final

from torch import nn

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import unwrapped
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.saved_state import Saved, loaded
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    scorer_parts,
    start_scorer,
)
from selective_backprop.scorers.cheap._approximate import Pair, check_wrapper, start_checked
from selective_backprop.scorers.cheap._check import Check
from selective_backprop.scorers.cheap._model_copy import copy_model, overwrite, tensors_of, update


@final
@dataclass(frozen=True)
class Synced(AbstractScorer):
    """Score with a copy of the model, brought up to date before every so many scored batches.

    Scores lag behind training by fewer than `every` scored batches. Nobody trains the copy, so it
    can be scored with while the model is trained; by itself it saves no time, and tells what
    such a lag costs in agreement. It takes as much memory as the model's parameters and buffers,
    on the same device, and saved states hold it too. A model given to `losses=` or `outputs=` is
    the copy: what they take from elsewhere does not lag.

    Args:
        scorer: scores with the copy.
        every: scored batches from one update of the copy to the next, at least 1, which scores
            with the model as it is.
        check: when to compare the scores with those of the model as it is; None for never. The
            batches of a check are spread over the whole interval.

    Raises:
        ConfigurationError: if `every` is out of its range or the scorer cannot be wrapped.
    """

    scorer: AbstractScorer
    every: int
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self, other_model=True)
        settle(self, check_whole, "every")

    @property
    def needs(self) -> Needs:
        """What the scorer inside needs, of a copy."""
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer, with a copy of the model as it is now.

        Raises:
            ConfigurationError: if there is no model, or it cannot be copied.
        """
        if context.model is None:
            raise ConfigurationError("Synced() scores with a copy of the model, and there is none")
        model = unwrapped(context.model)
        twin = copy_model(model)

        def begin(context: Context) -> Pair:
            inner = start_scorer(self.scorer, replace(context, model=twin))
            exact = start_scorer(self.scorer, replace(context, checks=False))
            return Pair(_WithCopy(inner, model, twin, int(self.every)), exact, shared=False)

        every = int(self.every)
        return start_checked(
            self, self.check, context, begin, advice="Take a smaller every=", interval=every
        )


def refuse_synced(wrapper: Any) -> None:
    """Refuse `Synced` inside a scorer that copies the model itself.

    Raises:
        ConfigurationError: if it is there.
    """
    for part in scorer_parts(wrapper.scorer):
        if isinstance(part, Synced):
            raise ConfigurationError(
                f"{part!r} would score with a copy of the copy; {type(wrapper).__name__}(..., "
                "every=...) says how often the weights are copied"
            )


class _WithCopy(Delegating):
    def __init__(self, inner: RunningScorer, model: nn.Module, twin: nn.Module, every: int) -> None:
        super().__init__(inner)
        self._model = model
        self._twin = twin
        self._every = every
        self._scored = 0

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        if self._scored % self._every == 0:
            update(self._twin, self._model)
        scores = self.inner.score(batch, indices)
        self._scored += 1
        return scores

    def state_dict(self) -> dict[str, Any]:
        # A copy that is about to be brought up to date need not be kept.
        stays = self._scored % self._every != 0
        weights = {name: value.clone() for name, value in tensors_of(self._twin).items()}
        return {
            "scored": self._scored,
            "copy": weights if stays else None,
            "scorer": self.inner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        scored, weights, scorer = Saved(state).fields("scored", "copy", "scorer")
        count, twin = scored.whole(), tensors_of(self._twin)
        stays = count % self._every != 0
        theirs = weights.tensors(twin) if stays else weights.maybe(lambda each: each.tensors(twin))
        with loaded([(self.inner, scorer)]):
            self._scored = count
            if theirs is not None:
                overwrite(twin, theirs)
