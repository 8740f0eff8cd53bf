"""The scales at which figures and tables can be redone, with the settings of `scales.toml`."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from reproductions.settings import EXAMPLES, Published, Scale, Setting
from selective_backprop_lab.data.augment import Augmentation, Border
from selective_backprop_lab.recipe import Precision, Rates, Recipe, find_recipe

OTHER_NETS = ("resnet18", "densenet_121", "mobilenet_v2")  # of the paper's appendix A.3
_FIGURES = ("fig-6", "fig-7", "table-1", "fig-10")  # of a scale that names none
_ROWS = tomllib.loads(Path(__file__).with_name("scales.toml").read_text(encoding="utf-8"))
TUNED: Mapping[str, Mapping[str, float]] = _ROWS["tuned"]
"""The learning rate that is best for each strategy, by data set."""


class Experiment(NamedTuple):
    """One data set of the paper, and how it was trained on."""

    recipe: Recipe  # with the first schedule, for the epochs of the authors' code
    accelerated: tuple[float, ...] = ()  # shares of the run at which the second schedule falls
    rate: float = 1 / 3  # selectivity of SB and Stale-SB
    kath18_rate: float = 1 / 3


_KINDS: dict[str, Callable[[Any], Any]] = {
    "augmentation": lambda row: Augmentation(
        **row | {"border": Border(row.get("border", Border.MIRROR))}
    ),
    "precision": Precision,
    "rates": Rates,
}


def _of_recipe(row: dict[str, Any]) -> dict[str, Any]:
    names = [each.name for each in fields(Recipe) if each.name in row]
    return {name: _KINDS.get(name, lambda each: each)(row.pop(name)) for name in names}


def _experiment(
    recipe: dict[str, Any], falls: list[int], accelerated: list[int], **rates: float
) -> Experiment:
    first, second = (tuple(at / recipe["epochs"] for at in own) for own in (falls, accelerated))
    made = Recipe(**_of_recipe({**recipe}), rates=Rates.STEPS, steps=first)
    return Experiment(made, second, **rates)


# Section 5.1 of the paper, by data set.
EXPERIMENTS = {name: _experiment(**row) for name, row in _ROWS["experiments"].items()}


def _setting(
    of: str,
    title: str,
    cutout: bool = True,
    paper_data: str = "",
    published: Any = None,
    **row: Any,
) -> Setting:
    experiment = EXPERIMENTS.get(of) or Experiment(find_recipe(of))
    recipe = replace(experiment.recipe, **_of_recipe(row))
    if not cutout:
        recipe = replace(recipe, augmentation=replace(recipe.augmentation, cutout=0))
    # What the paper does not say are net and length of its authors' code.
    net, name = experiment.recipe, paper_data or title
    said = (name, net.model, net.epochs, 128, EXAMPLES.get(net.data), net.augmentation.cutout)
    told = Published(**published) if published else Published(*said)
    row = {"evaluations": 50, "falls": experiment.accelerated, "rate": experiment.rate} | row
    made: dict[str, Any] = {"kath18_rate": experiment.kath18_rate} | row
    return Setting(title=title, recipe=recipe, published=told, **made)


def _scale(name: str, settings: dict[str, dict[str, Any]], **row: Any) -> Scale:
    rows, made = dict[str, dict[str, Any]](), dict[str, Setting]()
    for key, own in settings.items():
        rows[key] = (rows[own["like"]] if "like" in own else {}) | own
        made[key] = _setting(**{name: value for name, value in rows[key].items() if name != "like"})
    main = tuple(made[key] for key in row["main"])
    groups = dict.fromkeys(("rated", "nets", "poster", "timed"), main)
    groups |= dict.fromkeys(("first", "inside", "redundant", "noisy", "swept", "batches"), main[:1])
    groups |= {"pruned": main[:1], "scored": 2 * main[:1], "remarked": (), "gated": ()}
    for group in ("main", *groups):
        if group in row:
            keys = row.pop(group)
            groups[group] = tuple(made[key] for key in ([keys] if isinstance(keys, str) else keys))
    options: dict[str, Any] = {"sweep": (1 / 4, 1 / 3, 1 / 2), "figures": _FIGURES}
    options |= {key: tuple(own) if isinstance(own, list) else own for key, own in row.items()}
    return Scale(name=name, groups=groups, **options)


_NAMES = ("small", "cifar10", "nets", "saturated", "redundant", "gpu", "gpu-50", "gpu-200", "full")
SCALES: Mapping[str, Scale] = {name: _scale(name, **_ROWS[name]) for name in _NAMES}
