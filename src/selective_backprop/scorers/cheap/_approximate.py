"""A cheap scorer at work instead of an exact one, and now and then beside it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance
from selective_backprop._core.saved_state import Saved, Stateful, loaded
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    PassThrough,
    RunningScorer,
    check_inner,
)
from selective_backprop.scorers._agreement import Agreement
from selective_backprop.scorers.cheap._check import Check, Comparison


@dataclass(frozen=True)
class Pair:
    """Two ways to score the same candidates.

    Attributes:
        cheap: what is selected by.
        exact: what it approximates, unless that is an approximation itself.
        shared: whether the cheap one calls the exact one, so that they share what they learn and
            remember.
        ready: returns whether the cheap one can be compared with the exact one yet.
    """

    cheap: RunningScorer
    exact: RunningScorer
    shared: bool
    ready: Callable[[], bool] = lambda: True


def start_checked(
    scorer: AbstractScorer,
    check: Check | None,
    context: Context,
    begin: Callable[[Context], Pair],
    *,
    advice: str,
    interval: int = 1,
) -> RunningScorer:
    """Return a cheap scorer at work, which is compared with the exact one where a check says so.

    Args:
        scorer: the cheap scorer's specification.
        check: when to check it, or None for never.
        context: of the training. Scorers inside a checked one are not checked, since the whole is
            compared with exact scores.
        begin: returns both ways to score in a context.
        advice: what to do where agreement is low.
        interval: over how many scored batches the batches of a check are spread.
    """
    if check is None or not context.checks:
        return ApproximateScorer(begin(context), None)
    name, stride = type(scorer).__name__, -(-interval // int(check.batches))
    compared = Comparison(check, context.rate, name=name, advice=advice, stride=stride)
    return ApproximateScorer(begin(replace(context, checks=False)), compared)


@final
class ApproximateScorer(PassThrough):
    """A running scorer that scores cheaply, and at times exactly too.

    Args:
        pair: both ways to score.
        comparison: says when both are used; None for never.
    """

    def __init__(self, pair: Pair, comparison: Comparison | None) -> None:
        super().__init__(pair.cheap, None if pair.shared else pair.exact)
        self._pair = pair
        self._comparison = comparison

    @property
    def agreement(self) -> Agreement | None:
        """What the last check found; of a scorer inside, where this one is not checked."""
        return (self._comparison or self.inner).agreement

    @property
    def so_far(self) -> Agreement | None:
        """What the check that runs has found so far, here or inside."""
        return (self._comparison or self.inner).so_far

    @property
    def checked(self) -> int:
        """Candidates scored a second time so far, here or inside."""
        return self.inner.checked + (0 if self._comparison is None else self._comparison.checked)

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score cheaply, and exactly too where a check is due."""
        return self._followed(self.inner.score(batch, indices), batch, indices)

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        """Begin to score cheaply; a check that is due is made when the scores are asked for."""
        wait = self.inner.begin(batch, indices)
        return lambda: self._followed(wait(), batch, indices)

    def _followed(self, scores: Scores, batch: Any, indices: RowIndices | None) -> Scores:
        if self._comparison is not None and self._pair.ready():
            self._comparison.follow(scores, lambda: self.score_exactly(batch, indices))
        return scores

    def score_exactly(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score as the scorer does that this one approximates."""
        return self._pair.exact.score_exactly(batch, indices)

    def state_dict(self) -> dict[str, Any]:
        """Return what both must remember, and where the check stands."""
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._named()}
        if self._comparison is not None:
            state["check"] = self._comparison.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        parts: dict[str, Stateful] = dict(self._named())
        if self._comparison is not None:
            parts["check"] = self._comparison
        states = Saved(state).fields(*parts)
        # backwards, since the cheap one may be expensive to put back
        with loaded(reversed([*zip(parts.values(), states, strict=True)])):
            pass

    def _named(self) -> Iterator[tuple[str, RunningScorer]]:
        return zip(("cheap", "exact"), self.parts, strict=False)


def check_check(check: Any) -> None:
    """Refuse what is no check.

    Raises:
        ConfigurationError: if it is neither a `Check` nor None.
    """
    check_instance("check", check, Check, "Check(batches=8)", optional=True)


def check_wrapper(wrapper: Any, *, other_model: bool = False) -> None:
    """Refuse what a cheap scorer cannot wrap, and a check that is none.

    Args:
        wrapper: the cheap scorer's specification, with its fields `scorer` and `check`.
        other_model: whether it scores with another form of the model in training.

    Raises:
        ConfigurationError: if its scorer cannot be wrapped, or, under another form of the model,
            brings a model of its own or learns from the one in training.
    """
    scorer = wrapper.scorer
    check_inner(scorer)
    check_check(wrapper.check)
    if not other_model:
        return
    name = type(wrapper).__name__
    if not scorer.needs.model:
        raise ConfigurationError(
            f"{name} works on the model in training, and {scorer!r} scores with a model of its "
            "own; wrap one that scores with the model itself, such as Forward()"
        )
    if scorer.needs.learns:
        raise ConfigurationError(
            f"{name} scores with another form of the model, and {scorer!r} learns from the one "
            "in training; write it by itself, or wrap one that does not learn, such as Forward()"
        )
