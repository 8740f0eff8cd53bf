"""What only a batch can show is said at the first batch, and not when an epoch has been trained."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fixture_loaders import Numbered, fixture_data, fresh_net, numbers, select, selective, train
from fixture_parts import Stateless
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, default_collate

import selective_backprop as sb

# With its default warm-up nothing is selected for a whole epoch; mistakes are found all the same.
WARM = sb.selective_backprop(1 / 2)


def first_batch(strategy: sb.Strategy = WARM, collate: Any = None, **options: Any) -> Any:
    loader = DataLoader(fixture_data(), 5, collate_fn=collate)
    options.setdefault("loss_fn", nn.CrossEntropyLoss())
    return next(iter(sb.SelectiveLoader(loader, nn.Linear(2, 2), strategy=strategy, **options)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"loss_fn": lambda outputs, targets: functional.cross_entropy(outputs, targets)},
            "scalar",
        ),
        ({"loss_fn": lambda outputs, targets: outputs[:3, 0]}, r"\(3,\).*batch of 5"),
        ({"loss_fn": lambda outputs, targets: 1.0}, "got float"),
        ({"losses": lambda model, batch: model(batch[0])}, r"\(5, 2\).*batch of 5"),
        ({"losses": lambda model, batch: model(batch[0])[:, :1]}, r"\(5, 1\).*batch of 5"),
        ({"losses": lambda model, batch: model(batch[0]).sum()}, "scalar"),
        ({"losses": lambda model, batch: model(batch[0])[:0, 0]}, r"\(0,\).*batch of 5"),
    ],
)
@pytest.mark.parametrize("strategy", [WARM, selective(), sb.random_scored(1 / 2)])
def test_losses_that_are_not_one_number_per_example_are_refused(options, message, strategy):
    with pytest.raises(sb.LossError, match=message) as caught:
        first_batch(strategy, **options)
    assert 'reduction="none"' in str(caught.value)
    assert "losses=" in str(caught.value)


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
    own = Own(lambda targets: targets.float() if healthy else make(targets))
    loader = select(DataLoader(Numbered(40), 5), selective(scorer=own))
    next(batches := iter(loader))
    healthy = False
    with pytest.raises(sb.LossError, match=message):
        list(batches)


def test_scores_that_are_counts_or_need_gradients_rank_like_any_others():
    def chosen(make: Callable[[Tensor], Tensor]) -> list[list[int]]:
        return numbers(select(DataLoader(Numbered(40), 5), selective(scorer=Own(make))))

    plain = chosen(lambda targets: targets.float())
    assert chosen(lambda targets: targets) == plain
    assert chosen(lambda targets: targets.float().requires_grad_()) == plain


def collate_nothing(examples: list[Any]) -> dict[str, Any]:
    return {"names": [f"n{target}" for _, target in examples]}


def collate_ragged(examples: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
    return (*default_collate(examples), torch.zeros(2))


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (collate_nothing, r"\(dict\).*no tensor"),
        (collate_ragged, r"'2' has 2 .* 5.*whole=\{'2'\}"),
        (lambda examples: {"x": torch.zeros(5), "o": object()}, "'o' .*object"),
    ],
    ids=["no tensors", "lengths", "object"],
)
@pytest.mark.parametrize("strategy", [WARM, sb.stale_sb(1 / 2)])
def test_a_batch_whose_rows_cannot_be_told_apart_is_refused(collate, message, strategy):
    with pytest.raises(sb.BatchError, match=message):
        first_batch(strategy, collate)


@pytest.mark.parametrize("warmup", [0, 1])
def test_a_mistake_in_the_losses_loses_no_state(warmup):
    healthy = True

    def losses(model: nn.Module, batch: Any) -> Tensor:
        scores = batch[1].double()
        return scores if healthy else scores.mean()

    loader = select(DataLoader(Numbered(30), 4), selective(warmup_epochs=warmup), losses=losses)
    list(loader)
    list(loader)
    before = loader.stats
    healthy = False
    with pytest.raises(sb.LossError, match="is a scalar"):
        list(loader)
    healthy = True
    assert loader.stats.waiting == before.waiting > 0
    assert loader.stats.kept == before.kept
    assert len(numbers(loader)) == (30 + before.waiting) // 8


def test_a_model_in_half_precision_is_ranked_in_single():
    model = nn.Linear(2, 2).bfloat16()
    loader = DataLoader(fixture_data(), 5)
    selecting = sb.SelectiveLoader(
        loader,
        model,
        None,
        selective(),
        losses=lambda model, batch: model(batch[0].bfloat16())[:, 0],
    )
    assert len(list(selecting)) == 4
    assert selecting.state_dict()["parts"]["history"]["ring"].dtype == torch.float32


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

    loader = sb.SelectiveLoader(
        DataLoader(fixture_data(), 5, collate_fn=augment),
        fresh_net(),
        None,
        selective(),
        losses=losses,
        batch_size=size,
    )
    for inputs, _ in loader:
        pool = torch.cat(scored)
        assert all(bool((pool == row).all(1).any()) for row in inputs)


def test_each_batch_is_scored_by_the_model_as_it_is_at_that_moment():
    model = fresh_net()
    seen: list[float] = []

    def losses(model: nn.Module, batch: Any) -> Tensor:
        seen.append(float(model.head.weight.norm()))
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    loader = DataLoader(fixture_data(), 5)
    train(sb.SelectiveLoader(loader, model, None, selective(), losses=losses), model, 1)
    assert len(seen) == 8
    assert len(set(seen)) == 4  # a window is two candidate batches, and then comes a step
