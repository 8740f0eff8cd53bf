"""Scales for a few of the figures: all of CIFAR-10 on a CPU, and residual nets on one GPU.

What is trained is what the paper trained at its own length, with another net and fewer epochs into
which its schedule is compressed:

| scale | data | net | epochs | for |
| :-- | :-- | :-- | --: | :-- |
| cifar10 | CIFAR-10 | small_cnn | 20 | two CPU cores for two hours |
| gpu | CIFAR-10, CIFAR-100 | resnet18, bf16 | 15 | a GPU for half an hour |
| gpu-wide | CIFAR-10 | wide_resnet_28_10, bf16 | 15 | a GPU for some hours |
"""

from dataclasses import replace

from reproductions.jiang2019.settings import Scale, Setting
from reproductions.recipes import EXPERIMENTS, PaperSchedule
from selective_backprop.lab.recipe import Precision, Recipe

_COMPARED = ("fig-6", "fig-7", "table-1", "fig-10")


def _setting(
    title: str,
    data: str,
    model: str,
    *,
    epochs: int,
    precision: Precision = Precision.FP32,
    cutout: bool = True,
    batch_size: int = 128,
) -> Setting:
    experiment = replace(EXPERIMENTS[data], model=model)

    def adapted(schedule: PaperSchedule) -> Recipe:
        recipe = experiment.recipe(schedule, epochs=epochs)
        augmentation = recipe.augmentation
        return replace(
            recipe,
            batch_size=batch_size,
            precision=precision,
            augmentation=augmentation if cutout else replace(augmentation, cutout=0),
        )

    return Setting(
        title=title,
        recipe=adapted(PaperSchedule.FIRST),
        accelerated=adapted(PaperSchedule.ACCELERATED),
        rate=experiment.rate,
        kath18_rate=experiment.kath18_rate,
        paper_data=_PAPER_NAMES[data],
        evaluations=20,
    )


def _scale(name: str, main: tuple[Setting, ...], items: tuple[str, ...]) -> Scale:
    first = main[0]
    return Scale(
        name=name,
        main=main,
        redundant=first,
        noisy=first,
        swept=(first,),
        sweep=(1 / 4, 1 / 3, 1 / 2),
        nets=main,
        poster=main,
        timed=tuple(each.recipe for each in main),
        pruned=first,
        scored=(first, first),
        items=items,
    )


_PAPER_NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
# Nothing is cut out of the images, since a net of this size does not overfit in these epochs.
CIFAR10 = _scale(
    "cifar10",
    (_setting("CIFAR-10", "cifar10", "small_cnn", epochs=20, cutout=False, batch_size=64),),
    (*_COMPARED, "fig-12", "fig-13"),
)
GPU = _scale(
    "gpu",
    tuple(
        _setting(
            f"{_PAPER_NAMES[data]}, resnet18", data, "resnet18", epochs=15, precision=Precision.BF16
        )
        for data in ("cifar10", "cifar100")
    ),
    _COMPARED,
)
GPU_WIDE = _scale(
    "gpu-wide",
    (
        _setting(
            "CIFAR-10, wide_resnet_28_10",
            "cifar10",
            "wide_resnet_28_10",
            epochs=15,
            precision=Precision.BF16,
        ),
    ),
    _COMPARED,
)
