"""How many copies `find_copies` finds, and how the error changes if they are left out."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from benchmarks.case import Row, case, value
from benchmarks.training import outputs_of, train
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import find_recipe

FOUND_BY = "src/selective_backprop/guide/_copies.py"
EXACT, NEAR = ({"copies": 1, "near_copies": pixels, "places": 4000} for pixels in (0, 2))
MADE: dict[str, tuple[dict[str, Any], ...]] = {
    **dict.fromkeys(("digits", "mnist", "fashion-mnist", "cifar10"), ({}, EXACT, NEAR)),
    "adult": ({}, EXACT),
}


@case(FOUND_BY)
def found(*, data: tuple[str, ...] = tuple(MADE), root: Path = Path("data")) -> Iterator[Row]:
    """How many copies there are, how many are found, and how long that takes."""
    for name, settings in [(each, settings) for each in data for settings in MADE[each]]:
        published = datasets.load(name, root=root / "adult" if name == "adult" else root)
        made = Composition(**settings)(published)
        loader = make_loader(made, batch_size=500, seed=0, shuffle=False)
        begun = time.process_time()
        copies = sb.guide.find_copies(loader)
        row = value("finding", time.process_time() - begun, "CPU seconds")
        row |= {"data": name, "settings": {key: each for key, each in settings.items() if each}}
        row |= {"examples": len(made.train_labels), "found": len(copies.pairs)}
        row |= {"exact": int(copies.exact.sum()), "conflicts": len(copies.conflicts)}
        if made.train_sources is not None:
            sources, dropped = made.train_sources, ~copies.subset.mask()
            repeats = np.ones(len(sources), dtype=bool)
            repeats[np.unique(sources.numpy(), return_index=True)[1]] = False
            of_one = sources[copies.pairs[:, 0]] == sources[copies.pairs[:, 1]]
            row |= {"made": int(repeats.sum()), "recalled": int(dropped.numpy()[repeats].sum())}
            row |= {"of_one": int(of_one.sum())}
        yield row


@case(FOUND_BY)
def frequent(
    *,
    data: tuple[str, ...] = ("fashion-mnist", "adult"),
    root: Path = Path("data"),
    examples: int = 4000,
    passes: int = 2,
    rates: tuple[float, ...] = (0.01, 0.03, 0.1, 0.2),
    seeds: tuple[int, ...] = tuple(range(6)),
) -> Iterator[Row]:
    """The test error with and without copies, if test examples repeat as training examples do.

    Images for training and testing come from one pool. Of the census, only categories are used,
    which many people share. All arms take as many steps, to within half an epoch.
    """
    for name in data:
        training, test = repeating(name, root, examples)
        copies = sb.guide.find_copies(make_loader(training, batch_size=500, seed=0, shuffle=False))
        recipe = replace(
            find_recipe(name), model="perceptron", batch_size=64, augmentation=Augmentation()
        )
        about = {"data": name, "examples": examples, "passes": passes, "kept": len(copies.subset)}
        about |= {"conflicts": len(copies.conflicts)}
        pruned, kept = sb.pruned(copies.subset), len(copies.subset)
        arms: dict[str, tuple[sb.Strategy, int, Tensor | None]] = {
            "everything": (sb.traditional(), examples, None),
            "each once": (pruned, kept, None),
            "each once, by its count": (pruned, kept, copies.weights),
        }
        for seed, rate, arm in itertools.product(seeds, rates, arms):
            strategy, size, weights = arms[arm]
            length = replace(recipe, learning_rate=rate, epochs=round(passes * examples / size))
            net = train(training, length, strategy, seed=seed, weights=weights)
            wrong = outputs_of(net, test).argmax(1) != test.train_labels
            error = 100 * float(wrong.double().mean())
            yield about | {"arm": arm, "rate": rate, "seed": seed} | value("error", error, "%")


def repeating(name: str, root: Path, examples: int) -> tuple[datasets.LabData, datasets.LabData]:
    """Return training data whose examples repeat, and test data as further training data."""
    if name != "adult":
        pool = Composition(copies=1.5, places=2 * examples)(datasets.load(name, root=root))
        training, test = torch.arange(2 * examples).chunk(2)
        return pool.within(training), pool.within(test)
    data = datasets.load(name, root=root / name, limit=examples)
    categories = [len(column.unique()) == 2 for column in data.train_inputs.T]
    train, test = (part[:, categories] for part in (data.train_inputs, data.test_inputs))
    known = {"mean": (0.0,) * train.shape[1], "std": (1.0,) * train.shape[1]}
    return (
        replace(data, train_inputs=train, **known),
        replace(data, train_inputs=test, train_labels=data.test_labels, **known),
    )
