"""The scales at which figures and tables can be redone.

| scale | data | nets | epochs | for |
| :-- | :-- | :-- | --: | :-- |
| small | parts of CIFAR, MNIST, Fashion-MNIST | small ones | 2 to 20 | two cores for two hours |
| cifar10 | CIFAR-10 | small_cnn | 20 | the same, a few figures |
| nets | 8,000 images of CIFAR-10 | mobilenet_v2, resnet20 | 20, 30 | a GPU for minutes, a few |
| gpu | CIFAR-10, CIFAR-100 | resnet18, bf16 | 15 | a GPU for half an hour, a few |
| gpu-50, gpu-200 | CIFAR-10 | resnet18, bf16 | 50, 200 | a GPU for minutes a seed, a few |
| full | CIFAR, SVHN, MNIST | the papers' own | 160, 200 | a GPU for days |

Schedules are compressed into fewer epochs. At the full scale, runs end after the epochs of the
authors' code, not by the clock. A run took the paper 12 hours on a Titan X, and 96 on SVHN on a
K20c.

The small scale is a budget: three seeds of everything take about two hours on two cores of an AMD
EPYC, an eighth of them Diet-SB's.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from reproductions.jiang2019.recipes import EXPERIMENTS, OTHER_NETS, Experiment
from reproductions.settings import (
    AT_COST,
    EXAMPLES,
    SHORTENED,
    USUAL,
    Published,
    Scale,
    Setting,
    changed,
)
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.recipe import Precision, find_recipe

# By data set and rate: what the item "tuning" found; `times.tuned` lists it.
_FOUND: Mapping[str, Mapping[float, str]] = {
    "mnist": {
        0.025: "released kath18",
        0.05: "random scored sb stale stale-2 half third quarter",
        0.1: "traditional shortened",
    },
    "fashion-mnist": {
        0.05: "stale released",
        0.1: "traditional shortened random scored sb kath18 stale-2 half third quarter",
    },
}
TUNED: Mapping[str, Mapping[str, float]] = {
    data: {key: rate for rate, keys in found.items() for key in keys.split()}
    for data, found in _FOUND.items()
}
_THIRD: dict[str, Any] = {"rate": 1 / 3, "kath18_rate": 1 / 3}


def _setting(
    title: str,
    experiment: Experiment,
    *,
    cutout: bool = True,
    paper_data: str | None = None,
    limit: int | None = None,
    evaluations: int = 50,
    **changes: Any,
) -> Setting:
    """Return one of the paper's experiments with a changed recipe."""
    recipe = replace(experiment.recipe, **changes)
    if not cutout:
        recipe = replace(recipe, augmentation=replace(recipe.augmentation, cutout=0))
    return Setting(
        title=title,
        recipe=recipe,
        falls=experiment.accelerated,
        rate=experiment.rate,
        kath18_rate=experiment.kath18_rate,
        published=published(paper_data or title, experiment),
        limit=limit,
        evaluations=evaluations,
    )


def published(name: str, experiment: Experiment) -> Published:
    """Return the training of the paper, with net and length of its authors' code."""
    recipe, examples = experiment.recipe, EXAMPLES[experiment.recipe.data]
    cutout = recipe.augmentation.cutout
    return Published(name, recipe.model, recipe.epochs, 128, examples, cutout)


def _small(title: str, data: str, /, *, evaluations: int = 12, **options: Any) -> Setting:
    """Return a setting for a small net that trains for few epochs.

    It has batches of the paper's other size, because twice the updates cost a CPU hardly more, and
    no cutout, because small nets do not overfit.
    """
    options = {"model": "small_cnn", "batch_size": 64, "cutout": False} | options
    return _setting(title, EXPERIMENTS[data], evaluations=evaluations, **options)


def _batch(setting: Setting, size: int) -> Setting:
    """Return a setting with batches of another size."""
    title = f"{setting.title}, batches of {size}"
    return replace(changed(setting, batch_size=size), title=title)


def _filtered(setting: Setting) -> Setting:
    """Return a setting in which SB leaves out as much as on the poster, more than 85 %."""
    said = Published(setting.published.data, examples=EXAMPLES[setting.recipe.data])
    return replace(setting, rate=1 / 8, published=said)


def _unknown(setting: Setting, data: str, model: str | None) -> Setting:
    """Return a setting of the Diet-SB poster, which names the data, and seldom the net."""
    return replace(setting, published=Published(data, model, examples=50_000))


def _early(setting: Setting, title: str, model: str, epochs: int) -> Setting:
    """Return one of the two nets, early in training, whose EL2N scores the poster compares."""
    said = replace(setting.published, model=model.removesuffix("_narrow"))
    young = changed(setting, model=model, epochs=epochs)
    return replace(young, title=title, published=said, evaluations=1)


_CIFAR10 = _small("CIFAR-10", "cifar10", epochs=20, limit=8_000)
# In place of SVHN, which is 1.5 GB to download.
_FASHION = _small(
    "Fashion-MNIST",
    "svhn",
    data="fashion-mnist",
    augmentation=Augmentation(shift=2, flip=True),
    epochs=10,
    limit=10_000,
    paper_data="SVHN",
)
_MNIST = _small(
    "MNIST",
    "cifar10",
    data="mnist",
    augmentation=Augmentation(shift=2),
    epochs=10,
    limit=10_000,
    evaluations=10,
)
_TINY = replace(changed(_CIFAR10, model="tiny_cnn"), title="CIFAR-10, tiny_cnn")
# So few images are learned by heart in the epochs of the authors' code, and their losses come
# apart. Only there does the gate of Kath18 open on CIFAR.
_GATED = _small(
    "CIFAR-10, 1,000 images",
    "cifar10",
    batch_size=128,
    epochs=200,
    limit=1_000,
    evaluations=20,
    paper_data="CIFAR-10",
)
_RESIDUAL = replace(
    changed(_CIFAR10, model="resnet9_narrow", epochs=12),
    title="CIFAR-10, resnet9_narrow",
    limit=4_000,
    evaluations=6,
)
# Of Diet-SB: 15 epochs bring small_cnn far above guessing, and the first is every arm's warm-up.
_PRUNED = _unknown(
    _small("CIFAR-100", "cifar100", epochs=15, limit=8_000, evaluations=3), "CIFAR-100", None
)
# The two nets train on fewer examples: googlenet_narrow takes 22 s for a thousand of them.
_FEWER = replace(_PRUNED, limit=3_000)
_TIMED = ("tiny_cnn", "small_cnn", "resnet9_narrow", "resnet20", "mobilenet_v2", "resnet18")
SMALL = Scale(
    name="small",
    main=(_CIFAR10, _small("CIFAR-100", "cifar100", epochs=13, limit=8_000), _FASHION),
    inside=_CIFAR10,
    redundant=_FASHION,
    noisy=_CIFAR10,
    swept=(_CIFAR10,),
    sweep=(1 / 3, 1 / 2),
    batches=(_CIFAR10, _batch(_CIFAR10, 128)),
    nets=(_TINY, _CIFAR10, _RESIDUAL),
    gated=(_GATED,),
    poster=(_filtered(_CIFAR10), _filtered(_MNIST)),
    timed=tuple(replace(_CIFAR10.recipe, model=net) for net in _TIMED),
    pruned=_PRUNED,
    scored=(
        _early(_FEWER, "CIFAR-100, young googlenet_narrow", "googlenet_narrow", 2),
        _early(_FEWER, "CIFAR-100, young resnet18_narrow", "resnet18_narrow", 2),
    ),
    remarked=_unknown(
        _small("CIFAR-10", "cifar10", model="tiny_cnn", epochs=20, limit=5_000, evaluations=4),
        "CIFAR-10",
        "resnet20",
    ),
)

_MAIN = tuple(
    _setting(title, EXPERIMENTS[data])
    for title, data in (("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100"), ("SVHN", "svhn"))
)
_NETS = {
    model: Setting(
        f"CIFAR-10, {model}",
        recipe,
        published=Published("CIFAR-10", model, batch_size=128, examples=50_000),
        evaluations=50,
        **_THIRD,
    )
    for model, recipe in OTHER_NETS.items()
}
# The Diet-SB poster says neither its recipe nor its length: those of the paper, without cutout.
# EL2N after 20 epochs is that of its source, arXiv:2107.07075.
_DIET = {
    data: _unknown(
        _setting(f"{name}, {model}", EXPERIMENTS[data], cutout=False, model=model, nesterov=False),
        name,
        model if data == "cifar10" else None,
    )
    for name, data, model in (
        ("CIFAR-100", "cifar100", "resnet18"),
        ("CIFAR-10", "cifar10", "resnet20"),
    )
}
# The poster does not say how it trained on MNIST; this is the lab's own recipe.
_POSTER = Setting(
    "MNIST", find_recipe("mnist"), published=Published("MNIST"), evaluations=50, **_THIRD
)
FULL = Scale(
    name="full",
    main=_MAIN,
    inside=_NETS["mobilenet_v2"],
    redundant=_MAIN[2],
    noisy=_MAIN[0],
    swept=_MAIN,
    sweep=(1 / 4, 1 / 3, 1 / 2),
    batches=(_MAIN[0], _batch(_MAIN[0], 64)),
    nets=tuple(_NETS.values()),
    poster=(_filtered(_MAIN[0]), _filtered(_POSTER)),
    timed=(OTHER_NETS["mobilenet_v2"], OTHER_NETS["resnet18"], _MAIN[0].recipe),
    pruned=_DIET["cifar100"],
    scored=(
        _early(_DIET["cifar100"], "CIFAR-100, young googlenet", "googlenet", 20),
        _early(_DIET["cifar100"], "CIFAR-100, young resnet18", "resnet18", 20),
    ),
    remarked=_DIET["cifar10"],
)


def _few(name: str, *main: Setting, more: tuple[str, ...] = ()) -> Scale:
    """Return a scale for a few of the figures."""
    first = main[0]
    return Scale(
        name=name,
        main=main,
        inside=first,
        redundant=first,
        noisy=first,
        swept=(first,),
        sweep=(1 / 4, 1 / 3, 1 / 2),
        batches=(first,),
        nets=main,
        poster=main,
        timed=tuple(each.recipe for each in main),
        pruned=first,
        scored=(first, first),
        figures=("fig-6", "fig-7", "table-1", "fig-10", *more),
    )


def _few_images(model: str, **options: Any) -> Setting:
    """Return the small scale's images of CIFAR-10 with one of the papers' own nets."""
    return _small("CIFAR-10", "cifar10", model=model, limit=8_000, **options)


def _on_gpu(title: str, data: str, *, epochs: int = 15, evaluations: int = 20) -> Setting:
    """Return one of the paper's main experiments with ResNet-18, shorter, in lower precision."""
    net: dict[str, Any] = {"model": "resnet18", "precision": Precision.BF16}
    length: dict[str, Any] = {"epochs": epochs, "evaluations": evaluations}
    setting = _setting(title, EXPERIMENTS[data], **net, **length)
    return replace(setting, title=f"{title}, resnet18")


def _regime(epochs: int) -> Scale:
    """Return the paper's CIFAR-10 with ResNet-18, for so many epochs.

    An evaluation costs a fifteenth of a pass, and the first six strategies make 3.5 passes for each
    epoch. So 0.8 evaluations for each epoch of each run are less than a tenth of all.
    """
    setting = _on_gpu("CIFAR-10", "cifar10", epochs=epochs, evaluations=4 * epochs // 5)
    first = ("traditional", "shortened", "sb", "stale", "random", "third")
    return replace(_few(f"gpu-{epochs}", setting), lineup=(*first, *AT_COST), jobs=1)


# Until traditional training gets less than one per cent of the training examples wrong.
_SATURATED = tuple(
    _setting(
        title,
        EXPERIMENTS["cifar10"],
        data=data,
        model="small_cnn",
        augmentation=Augmentation(),
        epochs=epochs,
        evaluations=epochs,
        paper_data="CIFAR-10",
    )
    for title, data, epochs in (("MNIST", "mnist", 8), ("Fashion-MNIST", "fashion-mnist", 30))
)


class ScaleName(StrEnum):
    """The names of the scales."""

    SMALL = "small"
    CIFAR10 = "cifar10"
    NETS = "nets"
    SATURATED = "saturated"
    GPU = "gpu"
    GPU_50 = "gpu-50"
    GPU_200 = "gpu-200"
    FULL = "full"


SCALES: Mapping[ScaleName, Scale] = {
    ScaleName.SMALL: SMALL,
    ScaleName.CIFAR10: replace(
        _few(
            "cifar10",
            _small("CIFAR-10", "cifar10", epochs=20, evaluations=20),
            more=("fig-12", "fig-13"),
        ),
        selectivities=(1 / 4, 1 / 3, 1 / 2),
    ),
    ScaleName.SATURATED: replace(
        _few("saturated", *_SATURATED, more=("fig-1", "fig-11", "fig-14", "tuned", "tuning")),
        redundant=replace(
            _SATURATED[1],
            published=published("SVHN", EXPERIMENTS["svhn"]),
            learning_rates=TUNED["fashion-mnist"],
        ),
        # One schedule and one selectivity.
        swept=tuple(replace(each, falls=()) for each in _SATURATED),
        sweep=(1 / 3,),
        lineup=(*USUAL, "stale-2", *list(SHORTENED)[1:]),
        # At one rate for all, nothing is chosen by the runs of a seed that rates are tried with.
        seeds=(0, 1, 100, 2),
        tuned=(0.05, 0.1, 0.2),
    ),
    # The net that the paper looked into, and that of the poster's remark.
    ScaleName.NETS: replace(
        _few("nets", _few_images("mobilenet_v2", epochs=20)),
        remarked=_unknown(
            _few_images("resnet20", epochs=30, evaluations=4), "CIFAR-10", "resnet20"
        ),
        figures=("fig-3", "fig-4", "fig-5", "fig-15", "fig-16", "diet-cifar10"),
    ),
    ScaleName.GPU: _few("gpu", _on_gpu("CIFAR-10", "cifar10"), _on_gpu("CIFAR-100", "cifar100")),
    ScaleName.GPU_50: _regime(50),
    ScaleName.GPU_200: _regime(200),
    ScaleName.FULL: FULL,
}
