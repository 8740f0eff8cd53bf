"""Where confidence is read from losses, a loss that is no cross-entropy is refused."""

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

READING = {"auto": sb.auto(), "easy-skip": sb.easy_skip(), "kakurenbo": sb.kakurenbo()}
SCORING = sb.Strategy("scoring", sb.scorers.Forward(), sb.selectors.Confident())
INPUTS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
DRAWN = torch.randn(40, generator=torch.Generator().manual_seed(1))
CLASSES = torch.arange(40) % 4
SOFT = torch.randn(40, 4, generator=torch.Generator().manual_seed(2)).softmax(1)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets) ** 2


def opposite(outputs: Tensor, targets: Tensor) -> Tensor:
    return -outputs.softmax(1)[torch.arange(len(targets)), targets]


def entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def odds(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")


def halves(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


# What a loss is about, the loss, and what the refusal names.
OTHER = {
    "numbers": (DRAWN, squared, rf"targets.* {DRAWN[:8].min():.3g} to {DRAWN[:8].max():.3g}"),
    "labels": (2.0 * (CLASSES % 2) - 1.0, nn.BCEWithLogitsLoss(), "targets.* -1 to 1"),
    "shares": (DRAWN.sigmoid(), squared, "losses.* 0[.]"),
    "a probability": (CLASSES, opposite, "losses.* -0[.]"),
    "no logarithms": (CLASSES, nn.NLLLoss(), "losses.* -[0-9]"),
}
ENTROPIES = {
    "one class ignored": (CLASSES, nn.CrossEntropyLoss(ignore_index=3)),
    "a function": (CLASSES, functools.partial(functional.cross_entropy, reduction="none")),
    "odds, weighed": (SOFT, nn.BCEWithLogitsLoss(pos_weight=torch.ones(4))),
    "classes": (CLASSES, entropy),
    "bytes": (CLASSES.byte(), lambda x, y: entropy(x, y.long())),
    "soft": (SOFT, entropy),
    "yes or no": ((DRAWN > 0).float(), odds),
    "odds": (DRAWN.sigmoid(), odds),
    "several": (SOFT, halves),
    "torch's": (SOFT, nn.CrossEntropyLoss()),
    "torch's, weighed": (SOFT, nn.CrossEntropyLoss(torch.tensor([0.01, 0.02, 0.03, 0.01]))),
}


def make(targets: Tensor, loss_fn: Any, strategy: sb.Strategy, **options: Any) -> Any:
    torch.manual_seed(3)
    flat = targets.ndim == 1 and isinstance(loss_fn, nn.BCEWithLogitsLoss)
    outputs = 1 if flat or loss_fn is odds else 4
    model = nn.Sequential(nn.Linear(4, outputs), nn.Flatten(0) if flat else nn.Identity())
    loader = sb.SelectiveLoader(
        DataLoader(TensorDataset(INPUTS, targets), 8),
        *(model, loss_fn, strategy),
        epochs=4,
        quiet=True,
        **options,
    )
    return model, loader


NAMED = {
    "MSELoss": nn.MSELoss(),
    "mse_loss": functional.mse_loss,
    "l1_loss": functools.partial(functional.l1_loss, reduction="none"),
}
SHIFTED = {
    "smooths labels": nn.CrossEntropyLoss(label_smoothing=0.1),
    "smooths labels, too": functools.partial(functional.cross_entropy, label_smoothing=0.1),
    "weighs classes": nn.CrossEntropyLoss(weight=torch.ones(4)),
    "weighs classes, too": functools.partial(functional.nll_loss, weight=torch.ones(4)),
}


@pytest.mark.parametrize("strategy", READING)
@pytest.mark.parametrize("name", NAMED)
def test_a_loss_known_to_be_no_cross_entropy_is_refused_when_the_loader_is_built(name, strategy):
    refusal = f"{READING[strategy].name} takes .* and {name} is no cross-entropy.*recorded_sb"
    with pytest.raises(sb.ConfigurationError, match=refusal):
        make(CLASSES, NAMED[name], READING[strategy])
    make(CLASSES, NAMED[name], sb.recorded_sb(1 / 2))


@pytest.mark.parametrize("why", SHIFTED)
@pytest.mark.parametrize("strategy", READING)
def test_losses_recorded_by_hand_that_have_another_lowest_value_are_warned_of(strategy, why):
    _, loader = make(CLASSES, SHIFTED[why], READING[strategy], with_selection=True)
    said = f"{READING[strategy].name} takes .* the loss {why[:14]}"
    with pytest.warns(sb.SelectionWarning, match=said):
        iter(loader)
    _, loader = make(CLASSES, SHIFTED[why], READING[strategy])
    assert loader.loss_fn
    iter(loader)
    for spared in (sb.recorded_sb(1 / 2), sb.auto(stream=True)):  # the second records nothing
        iter(make(CLASSES, SHIFTED[why], spared, with_selection=True)[1])


@pytest.mark.parametrize("strategy", READING)
@pytest.mark.parametrize("name", OTHER)
def test_the_first_batch_shows_that_a_loss_is_no_cross_entropy(name, strategy):
    targets, loss_fn, named = OTHER[name]
    model, loader = make(targets, loss_fn, READING[strategy])
    weighing = loader.loss_fn
    inputs, given = next(iter(loader))
    with pytest.raises(sb.LossError, match=named + r".*recorded_sb"):
        weighing(model(inputs), given)


@pytest.mark.parametrize("name", OTHER)
def test_scoring_shows_that_a_loss_is_no_cross_entropy_before_the_first_batch(name):
    targets, loss_fn, named = OTHER[name]
    warm = replace(SCORING, schedule=sb.Schedule(warmup_epochs=1))
    with pytest.raises(sb.LossError, match=named):
        next(iter(make(targets, loss_fn, warm, with_selection=True)[1]))


@pytest.mark.parametrize("strategy", READING)
def test_losses_that_fall_below_0_later_are_refused_before_anything_is_skipped(strategy):
    lowered = 0.0

    def falling(outputs: Tensor, targets: Tensor) -> Tensor:
        return entropy(outputs, targets) - lowered

    model, loader = make(CLASSES, falling, READING[strategy])
    weighing = loader.loss_fn
    for inputs, targets in loader:
        weighing(model(inputs), targets)
        lowered = 3.0
    with pytest.raises(sb.LossError, match=r"losses.* -[0-9].*recorded_sb"):
        next(iter(loader))
    assert loader.stats.kept == 40


@pytest.mark.parametrize("strategy", [*READING, "scoring"])
@pytest.mark.parametrize("name", ENTROPIES)
def test_a_cross_entropy_of_ones_own_is_taken(name, strategy):
    targets, loss_fn = ENTROPIES[name]
    model, loader = make(targets, loss_fn, (READING | {"scoring": SCORING})[strategy])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    weighing = loader.loss_fn
    for _ in range(4):
        for inputs, given in loader:
            optimizer.zero_grad()
            weighing(model(inputs), given).mean().backward()
            optimizer.step()
    assert loader.stats.kept
