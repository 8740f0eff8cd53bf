"""Run a cheap scorer in place of an exact one, and check it: some batches are scored by both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn

from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.isolation import unwrapped
from selective_backprop._core.options import check_instance, check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved, Stateful, loaded
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import PassThrough, RunningScorer, check_inner
from selective_backprop.scorers._agreement import Agreement, measure

UNKNOWN_RATE = 1 / 3

Both: TypeAlias = tuple[RunningScorer, RunningScorer]  # cheap, and the exact one


@final
@dataclass(frozen=True)
class Check:
    """When to compare the scores of `Pipelined` with exact scores, and when to warn.

    The model itself scores the candidates of some batches again, which gives their exact scores.
    `Stats.checked` counts these candidates. Training uses the scores of `Pipelined`. The result is
    `SelectiveLoader.agreement`. Of the candidates with the highest exact scores, its `overlap` is
    the share that also has the highest scores of `Pipelined`. The highest quarter is compared if
    training selects a quarter, and a third if this share is unknown.

    Args:
        batches: number of batches to compare, at least 1, beginning with the first batch.
        least: warn if `overlap` is below this number, in [0, 1]; 0 never warns.

    Raises:
        ConfigurationError: if a value is out of its range.
    """

    batches: int = 8
    least: float = 0.8

    def __post_init__(self) -> None:
        settle(self, check_whole, "batches", hint="check=None turns the check off")
        settle(self, check_number, "least", most=1)


class Comparison:
    """A check at work.

    Only every `stride`-th scored batch is compared, since a cheap scorer may be less exact in some
    batches than in others. `name` and `advice` are for the warning that agreement is low.
    """

    def __init__(
        self, check: Check, rate: float | None, *, name: str, advice: str, stride: int = 1
    ) -> None:
        self._check, self._rate, self._stride = check, rate or UNKNOWN_RATE, stride
        self._name, self._advice = name, advice
        self._scored, self._batches = 0, 0
        self._sums: Tensor | None = None  # of each measure, on the scores' device
        self.agreement: Agreement | None = None  # the result
        self.checked = 0  # candidates that were scored twice

    def follow(self, scores: Scores, exactly: Callable[[], Scores]) -> None:
        """Count a scored batch; if a comparison is due, compare its scores with exact ones."""
        due = self.agreement is None and self._scored % self._stride == 0
        if due and scores.shape[0]:
            exact = exactly().to(scores.device)
            measured = measure(scores, exact, self._rate)
            self._sums = measured if self._sums is None else self._sums.to(scores.device) + measured
            self._batches += 1
            self.checked += scores.shape[0]
            if self._batches == self._check.batches:
                self._conclude(self._sums)
        self._scored += 1

    def _conclude(self, sums: Tensor) -> None:
        means = (sums / self._batches).tolist()
        found = self.agreement = Agreement(*means, self._rate, self._batches, self.checked)
        self._sums, self._batches = None, 0
        if found.overlap < self._check.least:
            warn(
                f"{self._name} finds {found.overlap:.0%} of the candidates with the highest "
                f"{found.rate:.0%} of exact scores, less than least={self._check.least} (rank "
                f"correlation {found.correlation:.2f}; {found.batches} batches, {found.candidates} "
                "candidates), so training selects other examples than with exact scores. "
                f"{self._advice}, or accept this with check=Check(least=...)."
            )

    def state_dict(self) -> dict[str, Any]:
        found = self.agreement
        return {
            "scored": self._scored,
            "sums": None if self._sums is None else self._sums.tolist(),
            "batches": self._batches,
            "checked": self.checked,
            "found": None if found is None else dict(vars(found)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        scored, sums, batches, checked, found = Saved(state).fields(
            "scored", "sums", "batches", "checked", "found"
        )
        most = int(self._check.batches)

        def read(both: Saved) -> list[float]:
            correlation, overlap = both.items(2)  # up to 1 per batch, plus rounding
            return [correlation.number(-most - 1, most + 1), overlap.number(0, most + 1)]

        values = sums.maybe(read)
        ends = (0, 0) if values is None else (1, most - 1)
        agreement = found.maybe(lambda each: each.record(Agreement, correlation=(-2.0, 2.0)))
        counts = scored.whole(), batches.whole(*ends), checked.whole()
        self._scored, self._batches, self.checked = counts
        self._sums = None if values is None else torch.tensor(values, dtype=torch.float64)
        self.agreement = agreement


@final
class ApproximateScorer(PassThrough):
    """A running scorer that scores cheaply and, when a check is due, exactly too."""

    def __init__(
        self, cheap: RunningScorer, exact: RunningScorer, comparison: Comparison | None
    ) -> None:
        super().__init__(cheap)
        self.parts = cheap, exact
        self._exact, self._comparison = exact, comparison

    @property
    def agreement(self) -> Agreement | None:
        return (self._comparison or self.inner).agreement

    @property
    def checked(self) -> int:
        return self.inner.checked + (0 if self._comparison is None else self._comparison.checked)

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self._followed(self.inner.score(batch, indices), batch, indices)

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        # If a check is due, it is made when the scores are asked for.
        wait = self.inner.begin(batch, indices)
        return lambda: self._followed(wait(), batch, indices)

    def _followed(self, scores: Scores, batch: Any, indices: RowIndices | None) -> Scores:
        if self._comparison is not None:
            self._comparison.follow(scores, lambda: self.score_exactly(batch, indices))
        return scores

    def score_exactly(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self._exact.score_exactly(batch, indices)

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._named()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        parts = dict(self._named())
        states = Saved(state).fields(*parts)
        # The cheap scorer comes last, since undoing its load may be expensive.
        with loaded(reversed([*zip(parts.values(), states, strict=True)])):
            pass

    def _named(self) -> Iterator[tuple[str, Stateful]]:
        yield from zip(("cheap", "exact"), self.parts, strict=True)
        if self._comparison is not None:
            yield "check", self._comparison


def start_checked(
    scorer: Any, context: Context, begin: Callable[[Context], Both], *, advice: str, interval: int
) -> ApproximateScorer:
    """Start a cheap scorer, which is compared with the exact one as the field `check` says.

    `begin` starts both in a context. Scorers inside a checked scorer are not checked themselves.
    The batches of a check are spread over `interval` scored batches.
    """
    check, compared = scorer.check, None
    if check is not None and context.checks:
        name, stride = type(scorer).__name__, -(-interval // int(check.batches))
        compared = Comparison(check, context.rate, name=name, advice=advice, stride=stride)
        context = replace(context, checks=False)
    cheap, exact = begin(context)
    if exact.ahead:
        raise ConfigurationError(
            f"{scorer.scorer!r} scores beside the training already; wrap the scorer inside it "
            "instead, such as Pipelined(Forward(), every=8)"
        )
    return ApproximateScorer(cheap, exact, compared)


def model_of(scorer: Any, context: Context) -> nn.Module:
    """Return the model in training, for a scorer that uses another form of it; refuse None."""
    if context.model is None:
        raise ConfigurationError(
            f"{type(scorer).__name__}() scores with a copy of the model, but there is none"
        )
    return unwrapped(context.model)


def check_wrapper(wrapper: Any) -> None:
    """Refuse fields `scorer` and `check` of a scorer with another form of the model in training."""
    scorer = wrapper.scorer
    check_inner(scorer)
    check_instance("check", wrapper.check, Check, "Check(batches=8)", optional=True)
    if not scorer.needs.model:
        raise ConfigurationError(
            f"{type(wrapper).__name__} needs a scorer that scores with the model in training, such "
            f"as Forward(), but {scorer!r} scores with a model of its own"
        )
