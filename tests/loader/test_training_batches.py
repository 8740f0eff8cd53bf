"""Rows come with their own indices and weights, in batches of one shape."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fixture_loaders
import pytest
import torch
from fixture_loaders import NotedSampler, Numbered, numbers, select, selective, train
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

import selective_backprop as sb

# Where a whole epoch is less than a window, nothing comes out, which is warned about.
pytestmark = pytest.mark.filterwarnings("ignore::selective_backprop.SelectionWarning")
STRATEGIES: dict[str, sb.Strategy] = {
    "traditional": sb.traditional(),
    "random": sb.random_backprop(1 / 2),
    "random, coins": sb.random_backprop(1 / 2, draw="bernoulli"),
    "random, scored": sb.random_scored(1 / 2),
    "selective": selective(),
    "selective, coins": selective(draw="bernoulli"),
    "selective, warm-up": selective(warmup_epochs=1),
    "random, warm-up": sb.random_backprop(1 / 2, schedule=sb.Schedule(warmup_epochs=1)),
    "top": sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(1 / 2)),
    "bottom": sb.Strategy("bottom", sb.scorers.Forward(), sb.selectors.Bottom(1 / 2)),
}


def assert_paired(batch: Any, selection: sb.Selection) -> None:
    inputs, targets = batch
    assert selection.indices is not None
    assert selection.indices.tolist() == targets.tolist()
    assert torch.equal(inputs, torch.stack([targets.float(), -targets.float()], dim=1))
    assert torch.equal(selection.weights, torch.ones(len(targets)))


@pytest.mark.parametrize(
    ("name", "loads"),
    [*((name, 3) for name in STRATEGIES), ("random", 16), ("selective", 16)],  # a window exactly
)
def test_indices_name_their_rows_when_workers_load_them(name, loads):
    loader = DataLoader(Numbered(50), loads, sampler=NotedSampler(50), num_workers=2)
    selecting = select(loader, STRATEGIES[name], batch_size=8, with_selection=True)
    for stop in (2, None):
        for number, (batch, selection) in enumerate(selecting, start=1):
            assert_paired(batch, selection)
            if number == stop:
                break


def collate_without_the_first(examples: list[Any]) -> Any:
    return default_collate(examples[1:])


@pytest.mark.parametrize("strategy", [sb.traditional(), sb.random_backprop(1 / 2), selective()])
def test_a_collate_function_that_loses_rows_is_refused_where_rows_are_paired(strategy):
    loader = DataLoader(Numbered(8), batch_size=4, collate_fn=collate_without_the_first)
    with pytest.raises(sb.BatchError, match=r"3 rows.* 4"):
        list(select(loader, strategy, with_selection=True))
    assert [len(batch) for batch in numbers(select(loader, sb.traditional()))] == [3, 3]


@dataclass(frozen=True)
class Weighing(sb.selectors.AbstractSelector):
    """Keeps every second candidate, which weighs what it scored; 3 where nothing is scored."""

    scored: bool

    @property
    def terms(self) -> sb.selectors.Terms:
        return sb.selectors.Terms(1 / 2, needs_scores=self.scored, reweights=True)

    def start(self, context: sb.selectors.Context) -> sb.selectors.RunningSelector:
        def rule(
            scores: Tensor, history: sb.selectors.History, generator: torch.Generator
        ) -> sb.selectors.Choice:
            rows = torch.arange(0, len(scores), 2)[: context.quota(len(scores))]
            return sb.selectors.Choice(
                rows, scores[rows] if self.scored else torch.full((len(rows),), 3.0)
            )

        return sb.selectors.Stateless(rule)


@pytest.mark.parametrize("scored", [True, False], ids=["scored", "drawn before loading"])
@pytest.mark.parametrize("trains", [4, 5, 11])
def test_weights_stay_with_their_rows_and_unselected_rows_weigh_one(scored, trains):
    scorer = sb.scorers.Forward() if scored else None
    strategy = sb.Strategy("weighing", scorer, Weighing(scored), sb.Schedule(end=2 / 3))
    loader = DataLoader(Numbered(60), 4, sampler=NotedSampler(60), num_workers=0)
    options = {"batch_size": trains, "epochs": 3, "leftovers": "flush", "with_selection": True}
    selecting = select(loader, strategy, **options)
    selected = unselected = 0
    for _ in range(3):
        for batch, (indices, weights) in selecting:
            assert indices.tolist() == batch[1].tolist()
            expected = (
                fixture_loaders.losses_by_number(nn.Identity(), batch)
                if scored
                else torch.full((1,), 3.0)
            )
            plain = weights == 1
            assert bool((plain | (weights == expected)).all())
            selected, unselected = selected + int((~plain).sum()), unselected + int(plain.sum())
    assert selected > 20
    assert unselected == 60


BATCH, WINDOW, WINDOWS, EPOCHS = 4, 12, 3, 4
EXACT = {
    "percentile": sb.selectors.Percentile(2.0),
    "top": sb.selectors.Top(1 / 3),
    "bottom": sb.selectors.Bottom(1 / 3),
    "uniform": sb.selectors.Uniform(1 / 3),
    "proportional": sb.selectors.Proportional(presample=3.0, bias=0.0),
}


@pytest.mark.parametrize("name", EXACT)
def test_each_window_is_scored_in_one_pass_and_all_training_batches_have_one_shape(name):
    model, passes, shapes = fixture_loaders.fresh_net(), [], []

    def losses(model: nn.Module, batch: Any) -> Tensor:
        passes.append(tuple(batch[0].shape))
        return fixture_loaders.cross_entropies(model, batch)

    def noted() -> Iterator[Any]:
        for inputs, targets in loader:
            shapes.append((*inputs.shape, *targets.shape))
            yield inputs, targets

    # 5 more than whole windows, so that there is something to leave out
    plain = DataLoader(
        fixture_loaders.fixture_data(WINDOWS * WINDOW + 5), WINDOW, shuffle=True, drop_last=True
    )
    strategy = sb.Strategy("exact", sb.scorers.Forward(), EXACT[name])
    loader = sb.SelectiveLoader(plain, model, None, strategy, batch_size=BATCH, losses=losses)
    train((batch for _ in range(EPOCHS) for batch in noted()), model, 1)
    assert {*shapes} == {(BATCH, 2, BATCH)}
    assert passes == [(WINDOW, 2)] * EPOCHS * WINDOWS
