"""Score with a compiled model, and leave the one in training as it is."""

from dataclasses import dataclass, replace
from typing import Any, final

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import unwrapped
from selective_backprop._core.options import check_flag, settle
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    start_scorer,
)
from selective_backprop.scorers.cheap._approximate import Pair, check_wrapper, start_checked
from selective_backprop.scorers.cheap._check import Check


@final
@dataclass(frozen=True)
class Compiled(AbstractScorer):
    """Score as the scorer inside does, with `torch.compile` of the model.

    The compiled model shares its parameters with the one in training, which is not compiled by
    it. It is compiled at the first batch that is scored, which takes long, and once more where
    batches come in another size: let the loader drop a short last one. Calls of the model are
    compiled, the loss and other methods that `losses=` may call are not.

    Args:
        scorer: scores with the compiled model.
        mode: as `torch.compile` takes it, such as `"max-autotune"`; None for its default. Of the
            default backend alone.
        dynamic: whether sizes may vary without compiling anew; None finds out.
        backend: what compiles, by its name in `torch.compiler.list_backends()`.
        check: when to compare the scores with those of the model as it is; None for never.

    Raises:
        ConfigurationError: if the scorer cannot be wrapped, or a mode is given to another
            backend than the default one.
    """

    scorer: AbstractScorer
    mode: str | None = None
    dynamic: bool | None = None
    backend: str = "inductor"
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self, other_model=True)
        settle(self, check_flag, "dynamic", optional=True)
        if self.mode is not None and self.backend != "inductor":
            raise ConfigurationError(
                f"mode={self.mode!r} would be ignored by backend={self.backend!r}; modes are of "
                "the backend 'inductor'"
            )

    @property
    def needs(self) -> Needs:
        """What the scorer inside needs, of a compiled form of the model."""
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer.

        Raises:
            ConfigurationError: if there is no model, or torch does not know the mode or backend
                or cannot compile here.
        """
        if context.model is None:
            raise ConfigurationError("Compiled() scores with the model, and there is none")
        model = unwrapped(context.model)
        try:
            compiled = torch.compile(
                getattr(model, "_orig_mod", model),  # what is compiled already, compiled anew
                mode=self.mode,
                dynamic=self.dynamic,
                backend=self.backend,
            )
        except RuntimeError as error:
            raise ConfigurationError(f"the model cannot be compiled: {error}") from error

        def begin(context: Context) -> Pair:
            cheap = start_scorer(self.scorer, replace(context, model=compiled))
            exact = start_scorer(self.scorer, replace(context, checks=False))
            return Pair(_WithCompiled(cheap), exact, shared=False)

        advice = "Score with the model as it is, since compiling must not change what it computes"
        return start_checked(self, self.check, context, begin, advice=advice)


class _WithCompiled(Delegating):
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        scores = self.inner.score(batch, indices)
        # The next replay of a CUDA graph would overwrite what a model returns as its losses.
        return scores.clone() if scores.is_cuda else scores
