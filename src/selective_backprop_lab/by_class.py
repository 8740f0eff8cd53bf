"""What a person would do about classes of unequal size: skip many of the largest, or weigh all."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.preparation import Preparation, TrainingSetup
from selective_backprop_lab.shapes import Float


@final
@dataclass(frozen=True, eq=False)
class Given(sb.scorers.AbstractScorer):
    """Score each example by a number that is known before training."""

    numbers: Float[Tensor, " example"]

    @property
    def needs(self) -> sb.scorers.Needs:
        """Indices alone: nothing is computed."""
        return sb.scorers.Needs(passes=False, indices=True, remembers=True, model=False)

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        """Return a scorer that recalls the numbers in each epoch."""
        return _RunningGiven(self.numbers)


class _RunningGiven(sb.scorers.RunningScorer):
    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.float()

    def recall(self, ledger: sb.scorers.Ledger, epoch: int) -> Tensor:
        return self._numbers

    def score(self, batch: object, indices: Tensor | None) -> Tensor:
        raise AssertionError("every example has a score before it is loaded")

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        pass


@final
@dataclass(frozen=True)
class Tossed(sb.selectors.AbstractSelector):
    """Keep each candidate with a probability that is its score."""

    rate: float  # the mean of the scores

    @property
    def terms(self) -> sb.selectors.Terms:
        """A number of rows that differs from epoch to epoch."""
        return sb.selectors.Terms(self.rate, sb.selectors.Draw.BERNOULLI, promises=False)

    def start(self, context: sb.selectors.Context) -> sb.selectors.RunningSelector:
        """Return a selector that tosses a coin for each candidate."""

        def toss(
            scores: Tensor, history: sb.selectors.History, generator: torch.Generator
        ) -> sb.selectors.Choice:
            coins = torch.rand(len(scores), generator=generator, device=scores.device)
            return sb.selectors.Choice((coins < scores).nonzero()[:, 0])

        return sb.selectors.Stateless(toss)


@final
@dataclass(frozen=True)
class Weighed(sb.selectors.AbstractSelector):
    """Keep all candidates; the weight of each is its score."""

    @property
    def terms(self) -> sb.selectors.Terms:
        """All rows, with weights."""
        draw = sb.selectors.Draw.BERNOULLI
        return sb.selectors.Terms(1.0, draw, promises=False, reweights=True)

    def start(self, context: sb.selectors.Context) -> sb.selectors.RunningSelector:
        """Return a selector that passes scores on as weights."""
        return sb.selectors.Stateless(
            lambda scores, history, generator: sb.selectors.Choice(
                torch.arange(len(scores), device=scores.device), scores.float()
            )
        )


def prepare_thinned(setup: TrainingSetup, *, share: float) -> Preparation:
    """Give each example of the largest class the odds `share`, and all others 1; at no cost."""
    labels = setup.data.train_labels
    largest = labels == labels.bincount().argmax()
    return Preparation(numbers=torch.where(largest, share, 1.0))


def prepare_weights(setup: TrainingSetup) -> Preparation:
    """Weigh classes alike: each example by the inverse of its class's size, 1 on average."""
    labels = setup.data.train_labels
    sizes = labels.bincount().double()
    return Preparation(numbers=(len(labels) / int((sizes > 0).sum()) / sizes[labels]).float())


def thinned(preparation: Preparation) -> sb.Strategy:
    """Train on a share of the largest class, drawn anew in each epoch, and on all else."""
    numbers = preparation.numbers
    assert numbers is not None
    return sb.Strategy("thinned", Given(numbers), Tossed(float(numbers.mean())))


def weighed(preparation: Preparation) -> sb.Strategy:
    """Train on everything, with the weights of classes."""
    assert preparation.numbers is not None
    return sb.Strategy("class-weights", Given(preparation.numbers), Weighed())
