"""Scores are checked, and belong to the rows and the model of the moment."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, Stateless, fixture_data, numbers, select, selective
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

import selective_backprop as sb
from selective_backprop._pipeline.score_memory import EpochScores


@dataclass(frozen=True)
class Own(Stateless, sb.scorers.AbstractScorer, sb.scorers.RunningScorer):
    """Somebody's own scorer, which returns what it is told to make of the targets."""

    make: Callable[[Tensor], Any]

    @property
    def needs(self) -> sb.scorers.Needs:
        return sb.scorers.Needs()

    def start(self, context: sb.scorers.Context) -> sb.scorers.RunningScorer:
        return self

    def score(self, batch: Any, indices: Tensor | None) -> Any:
        return self.make(batch[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda targets: 1.0, "got float"),
        (lambda targets: targets.float().tolist(), "got list"),
        (lambda targets: targets.float().sum(), "is a scalar"),
        (lambda targets: targets[:3].float(), r"\(3,\).*batch of 5"),
        (lambda targets: targets[:, None].float(), r"\(5, 1\).*batch of 5"),
    ],
)
def test_scores_of_a_scorer_of_the_users_own_are_checked_in_every_batch(make, message):
    healthy = True
    # Counts, half precision and gradients rank like any other scores.
    own = Own(lambda targets: targets.bfloat16().requires_grad_() if healthy else make(targets))
    loader = select(DataLoader(Numbered(40), 5), selective(scorer=own))
    expected = numbers(select(DataLoader(Numbered(40), 5), selective(scorer=Own(lambda y: y))))
    assert numbers(loader) == expected
    assert loader.state_dict()["parts"]["history"]["ring"].dtype == torch.float32
    healthy = False
    with pytest.raises(sb.LossError, match=message):
        list(loader)


@pytest.mark.parametrize("size", [5, 4])
def test_the_tensors_that_were_scored_are_the_ones_that_are_trained_on(size):
    torch.manual_seed(0)
    scored: list[Tensor] = []

    def losses(model: nn.Module, batch: Any) -> Tensor:
        scored.append(batch[0].clone())
        return batch[0][:, 0]

    def augment(examples: list[Any]) -> Any:
        inputs, targets = default_collate(examples)
        return inputs + torch.rand_like(inputs), targets

    augmented = DataLoader(fixture_data(), 5, collate_fn=augment)
    loader = select(augmented, selective(), losses=losses, batch_size=size)
    for inputs, _ in loader:
        pool = torch.cat(scored)
        assert all(bool((pool == row).all(1).any()) for row in inputs)


def test_of_very_many_known_scores_as_many_are_ranked_against_as_ranks_need():
    scores = torch.rand(3_000_000, generator=torch.Generator().manual_seed(0))
    past = EpochScores(scores, len(scores), tracks=False).past
    assert len(past) == 2**20
    some = scores[:1_000]
    exact = torch.searchsorted(scores.sort().values, some) / len(scores)
    assert (past.percentiles(some) - exact).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a", "b"], "no whole numbers"),
        (torch.tensor([0.5]), "no whole numbers"),
        (torch.tensor([0, 4]), "0 to 4.* to 3"),
        (torch.tensor([-1, 2]), "-1 to 2"),
    ],
)
def test_what_is_no_index_of_the_data_set_is_refused(keys, message):
    with pytest.raises(sb.LoaderError, match=message):
        EpochScores(torch.arange(4.0), 4, tracks=False).look_up(keys)
