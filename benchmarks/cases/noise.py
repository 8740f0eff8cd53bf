"""How many labels look wrong to `auto` in the first pass, beside how many are."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from torch import nn

import selective_backprop as sb
from benchmarks.case import Row, case, value
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.composition import Composition, NoiseKind
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import find_recipe

BATCH = 64
# How data are changed, as settings of `Composition`, and what a table calls it.
MADE = {
    **{f"{100 * share:.0f} % wrong": {"noise": share} for share in (0.0, 0.05, 0.1, 0.2, 0.4)},
    "20 % taken for what is alike": {"noise": 0.2, "noise_kind": NoiseKind.ALIKE},
    "skewed and repeated": {"skew": 1.5, "copies": 1.0},
}
NETS = (  # data, net, learning rate
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
) -> Iterator[Row]:
    """The share of wrong labels that `auto` estimates in half a pass, by label smoothing."""
    for (name, net, rate), smooth, made, seed in itertools.product(NETS, smoothing, MADE, seeds):
        data = Composition(places=places, seed=seed, **MADE[made])(datasets.load(name, root=root))
        recipe = replace(find_recipe(name), model=net, learning_rate=rate)
        model = recipe.make_model(data, seed=seed)
        optimizer = recipe.make_optimizer(model.parameters())
        candidates = make_loader(data, batch_size=BATCH, seed=seed)
        plain = nn.CrossEntropyLoss(label_smoothing=smooth)
        loader = sb.SelectiveLoader(candidates, model, plain, sb.auto(), quiet=True)
        loss_fn = loader.loss_fn
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
        next(iter(loader))  # the first epoch is over when the next one begins
        found = loader.wrong_labels
        row = value("share read", found.share if found else 0.0, "share")
        about = {"data": name, "net": net, "smoothing": smooth, "made": made, "seed": seed}
        yield about | {"places": places} | row | {"half_width": found and found.half_width}
