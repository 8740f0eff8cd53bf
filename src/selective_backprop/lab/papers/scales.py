"""The scales at which figures and tables can be redone, by name."""

from collections.abc import Mapping
from enum import StrEnum

from selective_backprop.lab.papers.full import FULL
from selective_backprop.lab.papers.settings import Scale
from selective_backprop.lab.papers.small import SMALL


class ScaleName(StrEnum):
    """How much to train."""

    SMALL = "small"
    FULL = "full"


SCALES: Mapping[ScaleName, Scale] = {ScaleName.SMALL: SMALL, ScaleName.FULL: FULL}
