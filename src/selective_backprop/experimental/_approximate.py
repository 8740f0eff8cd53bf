"""Check a cheap scorer against an exact one: some batches are scored by both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.isolation import unwrapped
from selective_backprop._core.options import check_instance, check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved, loaded
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    Delegating,
    RunningScorer,
    check_inner,
    scorer_parts,
)
from selective_backprop.scorers._agreement import Agreement, measure

UNKNOWN_RATE = 1 / 3


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


@final
class CheckedScorer(Delegating):
    """A running scorer that scores cheaply and, when a check is due, exactly too.

    Only every `stride`-th scored batch is compared, since a cheap scorer may be less exact in some
    batches than in others. `name` and `advice` are for the warning that agreement is low.
    """

    def __init__(
        self,
        cheap: RunningScorer,
        exact: RunningScorer,
        check: Check,
        rate: float | None,
        *,
        name: str,
        advice: str,
        stride: int = 1,
    ) -> None:
        super().__init__(cheap)
        self.parts = cheap, exact
        self._exact, self._check, self._rate = exact, check, rate or UNKNOWN_RATE
        self._name, self._advice, self._stride = name, advice, stride
        self._scored, self._batches, self._checked = 0, 0, 0
        self._sums: Tensor | None = None  # of each measure, on the scores' device
        self._found: Agreement | None = None  # the result

    @property
    def ahead(self) -> int:
        return self.inner.ahead

    @property
    def agreement(self) -> Agreement | None:
        return self._found

    @property
    def checked(self) -> int:
        return self._checked

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self._followed(self.inner.score(batch, indices), batch, indices)

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        # If a check is due, it is made when the scores are asked for.
        wait = self.inner.begin(batch, indices)
        return lambda: self._followed(wait(), batch, indices)

    def _followed(self, scores: Scores, batch: Any, indices: RowIndices | None) -> Scores:
        """Count a scored batch; if a comparison is due, compare its scores with exact ones."""
        due = self._found is None and self._scored % self._stride == 0
        if due and scores.shape[0]:
            exact = self._exact.score(batch, indices).to(scores.device)
            measured = measure(scores, exact, self._rate)
            self._sums = measured if self._sums is None else self._sums.to(scores.device) + measured
            self._batches += 1
            self._checked += scores.shape[0]
            if self._batches == self._check.batches:
                self._conclude(self._sums)
        self._scored += 1
        return scores

    def _conclude(self, sums: Tensor) -> None:
        means = (sums / self._batches).tolist()
        found = self._found = Agreement(*means, self._rate, self._batches, self._checked)
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
        return {
            "cheap": self.inner.state_dict(),
            "exact": self._exact.state_dict(),
            "scored": self._scored,
            "sums": None if self._sums is None else self._sums.clone(),
            "batches": self._batches,
            "checked": self._checked,
            "found": None if self._found is None else dict(vars(self._found)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        cheap, exact, scored, sums, batches, checked, found = Saved(state).fields(
            "cheap", "exact", "scored", "sums", "batches", "checked", "found"
        )
        most = int(self._check.batches)
        # Up to 1 per batch, plus rounding.
        values = sums.maybe(
            lambda each: each.tensor(torch.float64, shape=(2,), least=-most - 1, most=most + 1)
        )
        agreement = found.maybe(lambda each: each.record(Agreement, correlation=(-2.0, 2.0)))
        counts = scored.whole(), batches.whole(*((0, 0) if values is None else (1, most - 1)))
        twice = checked.whole()
        # The cheap scorer comes last, since undoing its load may be expensive.
        with loaded([(self._exact, exact), (self.inner, cheap)]):
            self._scored, self._batches = counts
            self._checked, self._sums, self._found = twice, values, agreement


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
    if any(hasattr(part, "check") for part in scorer_parts(scorer)):
        raise ConfigurationError(f"{scorer!r} scores with a copy already; wrap Forward() instead")
