"""The scales at which figures and tables can be redone.

| scale | data | nets | epochs | for |
| :-- | :-- | :-- | --: | :-- |
| small | parts of CIFAR, MNIST, Fashion-MNIST | small ones | 2 to 20 | two cores for two hours |
| cifar10 | CIFAR-10 | small_cnn | 20 | the same, a few figures |
| nets | 8,000 images of CIFAR-10 | mobilenet_v2, resnet20 | 20, 30 | a GPU for minutes, a few |
| gpu | CIFAR-10, CIFAR-100 | resnet18, bf16 | 15 | a GPU for half an hour, a few |
| gpu-wide | CIFAR-10 | wide_resnet_28_10, bf16 | 15 | a GPU for some hours, a few |
| gpu-50, gpu-200 | CIFAR-10 | resnet18, bf16 | 50, 200 | a GPU for minutes a seed, a few |
| full | CIFAR, SVHN, MNIST | the papers' own | 160, 200 | a GPU for days |

Schedules are compressed into fewer epochs, and every net is trained until its last learning rate
has done its work. At the full scale runs end after the epochs of the authors' code, not by the
clock; a run took the paper 12 hours on a Titan X, and 96 on SVHN on a K20c.

The small scale is a budget: three seeds of everything take about two hours on two cores of an AMD
EPYC, an eighth of them Diet-SB's.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from reproductions.jiang2019.recipes import EXPERIMENTS, OTHER_NETS, Experiment, PaperSchedule
from reproductions.settings import AT_COST, EXAMPLES, SHORTENED, USUAL, Published, Scale, Setting
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
    epochs: int | None = None,
    cutout: bool = True,
    paper_data: str | None = None,
    limit: int | None = None,
    evaluations: int = 50,
    **changes: Any,
) -> Setting:
    """Return one of the paper's experiments, its schedules compressed and its recipe changed."""
    recipe = replace(experiment.recipe(epochs=epochs), **changes)
    if not cutout:
        recipe = replace(recipe, augmentation=replace(recipe.augmentation, cutout=0))
    return Setting(
        title=title,
        recipe=recipe,
        falls=experiment.recipe(PaperSchedule.ACCELERATED).steps,
        rate=experiment.rate,
        kath18_rate=experiment.kath18_rate,
        published=published(paper_data or title, experiment),
        limit=limit,
        evaluations=evaluations,
    )


def published(name: str, experiment: Experiment) -> Published:
    """Return what the paper trained, its model and length where its authors' code has them."""
    return Published(
        name,
        experiment.model,
        experiment.epochs,
        batch_size=128,
        examples=EXAMPLES[experiment.data],
        cutout=experiment.augmentation.cutout,
    )


def _small(title: str, data: str, /, *, evaluations: int = 12, **options: Any) -> Setting:
    """Return a setting for a small net that trains for few epochs.

    Batches are of the paper's other size, since on a CPU twice the updates cost hardly more; and no
    image is cut out, since these nets do not overfit.
    """
    options = {"model": "small_cnn", "batch_size": 64, "cutout": False} | options
    return _setting(title, EXPERIMENTS[data], evaluations=evaluations, **options)


def _batch(setting: Setting, size: int) -> Setting:
    """Return a setting with batches of another size."""
    recipe = replace(setting.recipe, batch_size=size)
    return replace(setting, title=f"{setting.title}, batches of {size}", recipe=recipe)


def _filtered(setting: Setting) -> Setting:
    """Return a setting in which SB leaves out as much as on the poster, more than 85 %."""
    examples = EXAMPLES[setting.recipe.data]
    published = Published(setting.published.data, examples=examples)
    return replace(setting, rate=1 / 8, published=published)


def _unknown(setting: Setting, data: str, model: str | None) -> Setting:
    """Return a setting of the Diet-SB poster, which names the data, seldom the net, no more."""
    return replace(setting, published=Published(data, model, examples=50_000))


def _early(setting: Setting, title: str, model: str, epochs: int) -> Setting:
    """Return one of the two nets, early in training, whose EL2N scores the poster compares."""
    recipe = replace(setting.recipe, model=model, epochs=epochs)
    said = replace(setting.published, model=model.removesuffix("_narrow"))
    return replace(setting, title=title, recipe=recipe, published=said, evaluations=1)


_CIFAR10 = _small("CIFAR-10", "cifar10", epochs=20, limit=8_000)
# SVHN is 1.5 GB to download; of what everybody has, this comes nearest that is not solved at once.
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
_TINY = replace(
    _CIFAR10, title="CIFAR-10, tiny_cnn", recipe=replace(_CIFAR10.recipe, model="tiny_cnn")
)
# So few images are learned by heart, in as many epochs as the authors' code has, and losses come
# apart: only there does the gate of Kath18 open on CIFAR.
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
    _CIFAR10,
    title="CIFAR-10, resnet9_narrow",
    recipe=replace(_CIFAR10.recipe, model="resnet9_narrow", epochs=12),
    limit=4_000,
    evaluations=6,
)
# Of Diet-SB: 15 epochs bring small_cnn far above guessing, and the first is every arm's warm-up.
_PRUNED = _unknown(
    _small("CIFAR-100", "cifar100", epochs=15, limit=8_000, evaluations=3), "CIFAR-100", None
)
# What two nets prune is of fewer examples: googlenet_narrow takes 22 s for a thousand of them.
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
    # What the poster trained on MNIST is not known; the lab's own recipe stands for it.
    poster=(
        _filtered(_MAIN[0]),
        _filtered(
            Setting(
                "MNIST",
                find_recipe("mnist"),
                published=Published("MNIST"),
                evaluations=50,
                **_THIRD,
            )
        ),
    ),
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


_INSIDE = _few_images("mobilenet_v2", epochs=20)


def _on_gpu(
    title: str, data: str, model: str, *, epochs: int = 15, evaluations: int = 20
) -> Setting:
    """Return one of the paper's main experiments, shorter, in lower precision, with a net."""
    length: dict[str, Any] = {"epochs": epochs, "evaluations": evaluations}
    setting = _setting(title, EXPERIMENTS[data], model=model, precision=Precision.BF16, **length)
    return replace(setting, title=f"{title}, {model}")


def _regime(epochs: int) -> Scale:
    """Return the paper's CIFAR-10 with a smaller net, for so many epochs.

    An evaluation costs a fifteenth of a pass. The first six strategies make 3.5 passes for each of
    the epochs, so that 0.8 evaluations for each epoch of each run are less than a tenth of them.
    """
    setting = _on_gpu("CIFAR-10", "cifar10", "resnet18", epochs=epochs, evaluations=4 * epochs // 5)
    first = ("traditional", "shortened", "sb", "stale", "random", "third")
    return replace(_few(f"gpu-{epochs}", setting), lineup=(*first, *AT_COST), jobs=1)


# Trained until less than one per cent of the training examples are wrong, every strategy at the
# paper's learning rate.
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
    """How much to train."""

    SMALL = "small"
    CIFAR10 = "cifar10"
    NETS = "nets"
    SATURATED = "saturated"
    GPU = "gpu"
    GPU_WIDE = "gpu-wide"
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
        _few("nets", _INSIDE),
        remarked=_unknown(
            _few_images("resnet20", epochs=30, evaluations=4), "CIFAR-10", "resnet20"
        ),
        figures=("fig-3", "fig-4", "fig-5", "fig-15", "fig-16", "diet-cifar10"),
    ),
    ScaleName.GPU: _few(
        "gpu",
        _on_gpu("CIFAR-10", "cifar10", "resnet18"),
        _on_gpu("CIFAR-100", "cifar100", "resnet18"),
    ),
    ScaleName.GPU_WIDE: _few("gpu-wide", _on_gpu("CIFAR-10", "cifar10", "wide_resnet_28_10")),
    ScaleName.GPU_50: _regime(50),
    ScaleName.GPU_200: _regime(200),
    ScaleName.FULL: FULL,
}
