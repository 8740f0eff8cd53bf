"""`auto` with one part left out or changed, and a policy that asks whether examples recover."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

import selective_backprop as sb
from selective_backprop.scorers import AbstractScorer, Delegating, Needs, RunningScorer

_USUAL: Any = sb.auto()
_EVEN = math.log(2.0)  # up to this loss, no other class is likelier


def _scored(**changes: Any) -> sb.Strategy:
    return replace(_USUAL, scorer=replace(_USUAL.scorer, **changes))


def _kept(**changes: Any) -> sb.Strategy:
    return replace(_USUAL, selector=replace(_USUAL.selector, **changes))


@dataclass(frozen=True)
class _Recovering(AbstractScorer):
    @property
    def needs(self) -> Needs:
        return replace(_USUAL.scorer.needs, first=True)

    def start(self, context: Any) -> RunningScorer:
        return _Running(context)


class _Running(Delegating):
    def __init__(self, context: Any) -> None:
        super().__init__(_USUAL.scorer.start(context))
        self._keeping = replace(_USUAL.scorer, hopeless=0.0).start(context)

    def score(self, batch: Any, indices: Any) -> Any:
        return self.inner.score(batch, indices)

    def recall(self, ledger: Any, epoch: int) -> torch.Tensor | None:
        wrong = ledger.wrong_labels
        drops = wrong is not None and wrong.is_clear
        scores = (self.inner if drops else self._keeping).recall(ledger, epoch)
        newest, first = torch.tensor(ledger.recorded.on_host()[0][0]), ledger.recorded.first()
        met = (first > _EVEN) & newest.isfinite()
        if scores is None or (newest[met] <= _EVEN).double().mean() >= 0.5:
            return scores
        return torch.where(scores > -torch.inf, scores.clamp(min=1.0), scores)  # skips nothing


gives_up_nothing = _scored(hopeless=0.0)
skips_nothing = _kept(floor=1.0)
raises_no_class = _scored(raises=False)
never_ends = _scored(fades=math.inf)
skips_three_epochs = _scored(max_age=3)
lower_floor = _kept(floor=0.03)
half_weights = _kept(correction=0.5)
full_weights = _kept(correction=1.0)
# Skips while half of the examples that were not known at first are known, and gives up examples
# only where the share of wrong labels is clear.
recovering = replace(_USUAL, scorer=_Recovering())
ABLATIONS = (
    *("gives_up_nothing", "skips_nothing", "raises_no_class", "never_ends", "skips_three_epochs"),
    *("lower_floor", "half_weights", "full_weights", "recovering"),
)
