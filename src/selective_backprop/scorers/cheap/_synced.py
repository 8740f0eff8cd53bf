"""Copy a model, bring the copy up to date in the memory that it has, and score with it."""

import copy
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from selective_backprop._core.errors import ConfigurationError, LoaderError
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
)
from selective_backprop.scorers.cheap._approximate import (
    Check,
    check_wrapper,
    model_of,
    start_with_other_model,
)


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
        model, every = model_of(self, context), int(self.every)
        twin = copy_model(model)
        return start_with_other_model(
            self,
            context,
            twin,
            lambda inner: _WithCopy(inner, model, twin, every),
            advice="Take a smaller every=",
            interval=every,
        )


def refuse_synced(wrapper: Any) -> None:
    """Refuse `Synced` inside a scorer that copies the model itself."""
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
        return {
            "scored": self._scored,
            "copy": cloned(tensors_of(self._twin)) if stays else None,
            "scorer": self.inner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        scored, weights, scorer = Saved(state).fields("scored", "copy", "scorer")
        count, twin = scored.whole(), tensors_of(self._twin)
        theirs = saved_copy(weights, twin, due=count % self._every == 0)
        with loaded([(self.inner, scorer)]):
            self._scored = count
            if theirs is not None:
                overwrite(twin, theirs)


def copy_model(model: nn.Module) -> nn.Module:
    """Return a copy of a model, which is not to be trained; refuse one that cannot be copied."""
    try:
        return copy.deepcopy(model).requires_grad_(False)
    except (RuntimeError, TypeError) as error:
        raise ConfigurationError(
            f"the model ({type(model).__name__}) cannot be copied with copy.deepcopy: {error}"
        ) from error


def update(twin: nn.Module, model: nn.Module) -> None:
    """Give a copy of a model its parameters, buffers and modes, without allocating anything."""
    overwrite(tensors_of(twin), tensors_of(model))
    for mine, theirs in zip(twin.modules(), model.modules(), strict=True):
        if mine.training != theirs.training:  # setting an attribute of a module is slow
            mine.training = theirs.training


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers by name, those that are shared once."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


@torch.no_grad()
def overwrite(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Copy tensors into others, and refuse it unless both have the same names and shapes."""
    shapes = [{name: tuple(t.shape) for name, t in tensors.items()} for tensors in (mine, theirs)]
    if shapes[0] != shapes[1]:
        changed = sorted(dict(shapes[0].items() ^ shapes[1].items()))
        raise LoaderError(
            f"{', '.join(changed[:5])} of the model changed since it was copied, {len(changed)} in "
            "all; a model that is copied must keep its parameters and buffers: make the loader anew"
        )
    if mine:
        torch._foreach_copy_(list(mine.values()), [theirs[name] for name in mine])


def cloned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors, for a saved state."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def saved_copy(saved: Saved, like: dict[str, Tensor], *, due: bool) -> dict[str, Tensor] | None:
    """Return a saved copy's tensors; it may be None if the copy is `due` to be renewed."""
    return None if due and saved.value is None else saved.tensors(like)
