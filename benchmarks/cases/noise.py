"""How many labels are wrong, as the first pass reads it, beside how many are."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import nn

import selective_backprop as sb
from benchmarks.case import Once, Row, case, value
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.data.noise import NoiseKind
from selective_backprop_lab.recipe import Recipe, find_recipe

# What data are made into, as settings of `Composition`, and what a table calls it.
MADE = {
    **{f"{100 * share:.0f} % wrong": {"noise": share} for share in (0.0, 0.05, 0.1, 0.2, 0.4)},
    "20 % taken for what is alike": {"noise": 0.2, "noise_kind": NoiseKind.ALIKE},
    "skewed and repeated": {"skew": 1.5, "copies": 1.0},
}
NETS = (
    *(("fashion-mnist", "perceptron", 0.1), ("fashion-mnist", "small_cnn", 0.1)),
    *(("mnist", "perceptron", 0.1), ("cifar10", "small_cnn", 0.05)),
)


@case("src/selective_backprop/strategies/_auto/wrong_labels.py")
def read(
    *,
    root: Path = Path("data"),
    places: int = 8000,
    smoothing: tuple[float, ...] = (0.0, 0.3),
    seeds: tuple[int, ...] = (0, 1, 2),
) -> Iterator[Once]:
    """The share of wrong labels that `auto` reads in half a pass, with label smoothing and not."""
    for (data, net, rate), smooth, made, seed in itertools.product(NETS, smoothing, MADE, seeds):
        recipe = replace(find_recipe(data), model=net, learning_rate=rate, batch_size=64)

        def find(
            recipe: Recipe = recipe, smooth: float = smooth, made: str = made, seed: int = seed
        ) -> list[Row]:
            composition = Composition(places=places, seed=seed, **MADE[made])
            noisy = composition(datasets.load(recipe.data, root=root))
            found = wrong_labels(noisy, recipe, smooth, seed)
            if found is None:
                return [value("share read", 0.0, "share") | {"half_width": None}]
            return [value("share read", found.share, "share") | {"half_width": found.half_width}]

        about = {"data": data, "net": net, "smoothing": smooth, "made": made, "seed": seed}
        yield Once(about | {"places": places}, find)


def wrong_labels(
    data: LabData, recipe: Recipe, smoothing: float, seed: int
) -> sb.scorers.WrongShare | None:
    """Return what a loop of one pass reads."""
    model = recipe.make_model(data, seed=seed)
    optimizer = recipe.make_optimizer(model.parameters())
    for group in optimizer.param_groups:
        group["lr"] = recipe.learning_rate
    loss_fn = nn.CrossEntropyLoss(label_smoothing=smoothing)
    candidates = make_loader(data, batch_size=recipe.batch_size, seed=seed)
    loader = sb.SelectiveLoader(candidates, model, loss_fn, sb.auto(), quiet=True)
    loss_fn = loader.loss_fn
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
    next(iter(loader))  # the pass is over where the next one begins
    return loader.wrong_labels
