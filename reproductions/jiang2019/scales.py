"""The scales at which figures and tables can be redone, by name."""

from collections.abc import Mapping
from enum import StrEnum

from reproductions.jiang2019.full import FULL
from reproductions.jiang2019.settings import Scale
from reproductions.jiang2019.single import CIFAR10, GPU, GPU_WIDE
from reproductions.jiang2019.small import SMALL


class ScaleName(StrEnum):
    """How much to train."""

    SMALL = "small"
    CIFAR10 = "cifar10"
    GPU = "gpu"
    GPU_WIDE = "gpu-wide"
    FULL = "full"


SCALES: Mapping[ScaleName, Scale] = {
    ScaleName.SMALL: SMALL,
    ScaleName.CIFAR10: CIFAR10,
    ScaleName.GPU: GPU,
    ScaleName.GPU_WIDE: GPU_WIDE,
    ScaleName.FULL: FULL,
}
