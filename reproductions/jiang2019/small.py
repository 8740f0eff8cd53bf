"""The small scale: the whole budget of runs that two cores finish in less than two hours.

Nets are small and lengths short, but every net is trained until its last learning rate has done
its work. One run of traditional training takes, on one thread of an AMD EPYC, evaluations included:

| setting | net | examples | epochs | evaluations | seconds |
| :-- | :-- | --: | --: | --: | --: |
| CIFAR-10 | small_cnn | 8,000 | 20 | 12 | 53 |
| CIFAR-100 | small_cnn | 8,000 | 13 | 12 | 38 |
| Fashion-MNIST | small_cnn | 10,000 | 10 | 12 | 28 |
| MNIST | small_cnn | 10,000 | 10 | 10 | 27 |
| CIFAR-10 | tiny_cnn | 8,000 | 20 | 12 | 19 |
| CIFAR-10 | resnet9_narrow | 4,000 | 12 | 6 | 150 |
| CIFAR-10 | tiny_cnn | 3,000 | 20 | 6 | 8 |
| CIFAR-10 | resnet18_narrow | 3,000 | 2 | 1 | 38 |
| CIFAR-10 | googlenet_narrow | 3,000 | 2 | 1 | 192 |

Three seeds of everything take 140 minutes of one core: 17 of them are those of Diet-SB, which the
last three lines belong to, and 3 are what figures 2, 5, 8, 9 and 15 look for inside shared runs.

`selective-backprop reproduce list` counts the runs, and says what each figure takes of the budget.
"""

from dataclasses import replace

from reproductions.jiang2019.settings import Scale, Setting
from reproductions.recipes import EXPERIMENTS, Experiment, PaperSchedule
from selective_backprop.lab.data.augment import Augmentation
from selective_backprop.lab.recipe import Recipe


def _small(recipe: Recipe) -> Recipe:
    """Adapt a recipe to a small net that trains for few epochs.

    Batches are of the paper's other size, since on a CPU twice the updates cost hardly more; and no
    image is cut out, since these nets do not overfit.
    """
    return replace(recipe, batch_size=64, augmentation=replace(recipe.augmentation, cutout=0))


def _setting(
    title: str,
    experiment: Experiment,
    *,
    epochs: int,
    limit: int,
    paper_data: str | None = None,
    evaluations: int = 12,
) -> Setting:
    """Compress the schedules of one of the paper's experiments into fewer epochs."""
    return Setting(
        title=title,
        recipe=_small(experiment.recipe(epochs=epochs)),
        accelerated=_small(experiment.recipe(PaperSchedule.ACCELERATED, epochs=epochs)),
        rate=experiment.rate,
        kath18_rate=experiment.kath18_rate,
        paper_data=paper_data or title,
        limit=limit,
        evaluations=evaluations,
    )


_CIFAR10 = _setting(
    "CIFAR-10", replace(EXPERIMENTS["cifar10"], model="small_cnn"), epochs=20, limit=8_000
)
_CIFAR100 = _setting(
    "CIFAR-100", replace(EXPERIMENTS["cifar100"], model="small_cnn"), epochs=13, limit=8_000
)
# SVHN is 1.5 GB to download; of what everybody has, this comes nearest that is not solved at once.
_FASHION = _setting(
    "Fashion-MNIST",
    replace(
        EXPERIMENTS["svhn"],
        data="fashion-mnist",
        model="small_cnn",
        augmentation=Augmentation(shift=2, flip=True),
    ),
    epochs=10,
    limit=10_000,
    paper_data="SVHN",
)
_MNIST = _setting(
    "MNIST",
    replace(
        EXPERIMENTS["cifar10"],
        data="mnist",
        model="small_cnn",
        augmentation=Augmentation(shift=2),
    ),
    epochs=10,
    limit=10_000,
    evaluations=10,
)
_TINY = replace(
    _CIFAR10,
    title="CIFAR-10, tiny_cnn",
    recipe=replace(_CIFAR10.recipe, model="tiny_cnn"),
    paper_data="CIFAR-10",
)
_RESIDUAL = replace(
    _CIFAR10,
    title="CIFAR-10, resnet9_narrow",
    recipe=replace(_CIFAR10.recipe, model="resnet9_narrow", epochs=12),
    limit=4_000,
    evaluations=6,
)
_PRUNED = replace(
    _TINY,
    title="CIFAR-10, tiny_cnn on fewer examples",
    limit=3_000,
    evaluations=6,
)
_YOUNG, _YOUNG_GOOGLENET = (
    replace(
        _PRUNED,
        title=f"CIFAR-10, young {model}",
        recipe=replace(_PRUNED.recipe, model=model, epochs=2),
        evaluations=1,
    )
    for model in ("resnet18_narrow", "googlenet_narrow")
)

SMALL = Scale(
    name="small",
    main=(_CIFAR10, _CIFAR100, _FASHION),
    redundant=_FASHION,
    noisy=_CIFAR10,
    swept=(_CIFAR10,),
    sweep=(1 / 3, 1 / 2),
    nets=(_TINY, _CIFAR10, _RESIDUAL),
    poster=(_CIFAR10, _MNIST),
    timed=(_TINY.recipe, _CIFAR10.recipe, _RESIDUAL.recipe),
    pruned=_PRUNED,
    scored=(_YOUNG_GOOGLENET, _YOUNG),
)
