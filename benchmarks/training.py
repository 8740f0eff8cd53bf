"""The loop of the cases that train by a lab recipe."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import Recipe

Seen = Callable[[Tensor, Tensor, int, bool], None]


def train(
    data: LabData,
    recipe: Recipe,
    strategy: sb.Strategy,
    *,
    seed: int = 0,
    weights: Tensor | None = None,
    see: Seen = lambda indices, logits, epoch, trained: None,
) -> nn.Module:
    """Train a recipe's net on what a strategy selects, and return the net.

    After each forward pass, `see` gets the indices and logits of the batch, the epoch, and whether
    the batch is trained on or only scored. `weights` multiply the examples' losses.
    """
    torch.manual_seed(seed)
    model = recipe.make_model(data, seed=seed)
    optimizer = recipe.make_optimizer(model.parameters())
    epoch, augmentation, size = 0, recipe.augmentation, recipe.batch_size

    def outputs(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        images, labels, indices = batch
        logits = model(images)
        see(indices, logits.detach(), epoch, False)
        return logits, labels

    loader = sb.SelectiveLoader(
        make_loader(data, batch_size=size, seed=seed, augmentation=augmentation, with_indices=True),
        model,
        nn.CrossEntropyLoss(),
        strategy,
        outputs=outputs,
        epochs=recipe.epochs,
        with_selection=True,
        generator=torch.Generator().manual_seed(seed),
        quiet=True,
    )
    for epoch in range(recipe.epochs):
        loader.set_epoch(epoch)
        for (images, labels, _), selection in loader:
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate_at(loader.progress or 0.0)
            logits = model(images)
            losses = nn.functional.cross_entropy(logits, labels, reduction="none")
            optimizer.zero_grad()
            weighed = losses if weights is None else weights[selection.indices] * losses
            (selection.weights * weighed).mean().backward()
            optimizer.step()
            loader.record(selection, losses, targets=())
            see(selection.indices, logits.detach(), epoch, True)
    return model


@torch.no_grad()
def outputs_of(model: nn.Module, data: LabData) -> Tensor:
    """Return the outputs for all training examples, in eval mode and without augmentation."""
    model.eval()
    batches = make_loader(data, batch_size=1000, seed=0, shuffle=False)
    return torch.cat([model(inputs) for inputs, _ in batches])
