"""What `find_copies` finds of copies that were made, and what leaving them out does."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import selective_backprop as sb
from benchmarks.case import Once, Row, case, value
from benchmarks.training import train
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import Recipe, find_recipe

FOUND_BY = [f"src/selective_backprop/guide/{name}.py" for name in ("_copies", "_near_images")]
EXACT, NEAR = ({"copies": 1, "near_copies": pixels, "places": 4000} for pixels in (0, 2))
MADE: dict[str, tuple[dict[str, Any], ...]] = {
    "digits": ({}, EXACT, NEAR),
    "mnist": ({}, EXACT, NEAR),
    "fashion-mnist": ({}, EXACT, NEAR),
    "cifar10": ({}, EXACT, NEAR),
    "adult": ({}, EXACT),
}
EVERYTHING, ONCE, WEIGHED = "everything", "each once", "each once, by its count"


@case(*FOUND_BY)
def found(*, data: tuple[str, ...] = tuple(MADE), root: Path = Path("data")) -> Iterator[Once]:
    """What is found in data as they are published, and of copies that are made of them."""
    for name in data:
        for settings in MADE[name]:
            yield Once(
                {"data": name, "settings": {k: v for k, v in settings.items() if v}},
                lambda name=name, settings=settings: apart(found_in, name, settings, root),
            )


def apart(measure: Callable[..., list[Row]], *about: Any) -> list[Row]:
    """Return what is measured in a new process, whose memory nothing has been taken from."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, about)


def found_in(name: str, settings: dict[str, Any], root: Path) -> list[Row]:
    """Return how many copies there are, how many are found, and what that takes."""
    published = datasets.load(name, root=root / "adult" if name == "adult" else root)
    data = Composition(**settings)(published)
    loader = make_loader(data, batch_size=500, seed=0, shuffle=False)
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # from now on VmHWM is the highest of what follows
    before, begun = memory("VmRSS"), time.process_time()
    copies = sb.guide.find_copies(loader)
    spent, held = time.process_time() - begun, memory("VmHWM") - before
    row = {"examples": len(data.train_labels), "found": len(copies.pairs), "bytes": held}
    row |= {"exact": int(copies.exact.sum()), "conflicts": len(copies.conflicts)}
    if data.train_sources is not None:
        sources, dropped = data.train_sources, ~copies.subset.mask()
        repeats = np.ones(len(sources), dtype=bool)
        repeats[np.unique(sources.numpy(), return_index=True)[1]] = False
        of_one = sources[copies.pairs[:, 0]] == sources[copies.pairs[:, 1]]
        row |= {"made": int(repeats.sum()), "recalled": int(dropped.numpy()[repeats].sum())}
        row |= {"of_one": int(of_one.sum())}
    return [value("finding", spent, "CPU seconds") | row]


def memory(name: str) -> int:
    """Return a number of bytes that Linux keeps of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


@case(*FOUND_BY)
def frequent(
    *,
    data: tuple[str, ...] = ("fashion-mnist", "adult"),
    root: Path = Path("data"),
    examples: int = 4000,
    passes: int = 2,
    rates: tuple[float, ...] = (0.01, 0.03, 0.1, 0.2),
    seeds: tuple[int, ...] = tuple(range(6)),
) -> Iterator[Once]:
    """What leaving copies out does where test examples repeat as training examples do.

    Images are of one drawn pool, to train on and to test on. Of the census, categories alone are
    known, which many people share. All arms take as many steps, to within half an epoch.
    """
    for name in data:
        training, test = repeating(name, root, examples)
        found = sb.guide.find_copies(make_loader(training, batch_size=500, seed=0, shuffle=False))
        recipe = replace(
            find_recipe(name), model="perceptron", batch_size=64, augmentation=Augmentation()
        )
        about = {"data": name, "examples": examples, "passes": passes, "kept": len(found.subset)}
        about |= {"conflicts": len(found.conflicts)}
        pruned = sb.pruned(found.subset)
        arms: dict[str, tuple[sb.Strategy, int, Tensor | None]] = {
            EVERYTHING: (sb.traditional(), examples, None),
            ONCE: (pruned, len(found.subset), None),
            WEIGHED: (pruned, len(found.subset), found.weights),
        }
        for seed, rate, arm in itertools.product(seeds, rates, arms):

            def try_out(
                seed: int = seed,
                rate: float = rate,
                arm: tuple[sb.Strategy, int, Tensor | None] = arms[arm],
                recipe: Recipe = recipe,
                training: datasets.LabData = training,
                test: datasets.LabData = test,
            ) -> list[Row]:
                strategy, kept, weights = arm
                epochs = round(passes * examples / kept)
                length = replace(recipe, learning_rate=rate, epochs=epochs)
                net = train(training, length, strategy, seed=seed, weights=weights)
                return [value("error", wrong(net, test), "%")]

            yield Once(about | {"arm": arm, "rate": rate, "seed": seed}, try_out)


def repeating(name: str, root: Path, examples: int) -> tuple[datasets.LabData, datasets.LabData]:
    """Return data whose examples come several times, and test examples as the ones to look at."""
    if name != "adult":
        pool = Composition(copies=1.5, places=2 * examples)(datasets.load(name, root=root))
        return pool.within(torch.arange(examples)), pool.within(
            torch.arange(examples, 2 * examples)
        )
    data = datasets.load(name, root=root / name, limit=examples)
    categories = [len(column.unique()) == 2 for column in data.train_inputs.T]
    train, test = (part[:, categories] for part in (data.train_inputs, data.test_inputs))
    known = {"mean": (0.0,) * train.shape[1], "std": (1.0,) * train.shape[1]}
    return (
        replace(data, train_inputs=train, **known),
        replace(data, train_inputs=test, train_labels=data.test_labels, **known),
    )


@torch.no_grad()
def wrong(model: nn.Module, data: datasets.LabData) -> float:
    """Return the share of the training examples of data that a model gets wrong, in %."""
    model.eval()
    batches = make_loader(data, batch_size=1000, seed=0, shuffle=False)
    misses = [model(inputs).argmax(1) != labels for inputs, labels in batches]
    return 100 * float(torch.cat(misses).double().mean())
