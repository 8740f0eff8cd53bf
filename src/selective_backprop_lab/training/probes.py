"""Probes: looking into a run while it trains, and writing down what is seen, without touching it.

Probes are no part of what is trained: a run with probes and one without share a record, and train
the same net. What a probe sees is written into the record as observations, under the probe's name.
A new probe is a frozen dataclass that starts a `RunningProbe`, in a module that imports this one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from selective_backprop_lab.data.datasets import LabData


@dataclass(frozen=True, eq=False)
class ProbeContext:
    """What a probe may look at, and must leave as it is."""

    model: nn.Module  # that is being trained; in eval mode whenever a probe is asked
    data: LabData
    device: torch.device


class RunningProbe(ABC):
    """Looks at one run.

    Its time is no part of the run's, except what it spends in `selected`. It may draw random
    numbers; the run's streams are apart.
    """

    def selected(self, indices: Tensor) -> None:  # noqa: B027
        """Take note of a training batch: the data-set indices of its rows, on the CPU."""

    def state_dict(self) -> dict[str, Any]:
        """Return what it must remember to go on in another process, as `torch.save` takes it."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Go on from `state_dict()`."""

    @abstractmethod
    def look(self, progress: float) -> Mapping[str, Any] | None:
        """Return what is to be seen at this share of the run, as a record holds it; or None."""


class Probe(ABC):
    """What to look for in a run; a frozen dataclass.

    Its `repr` is how records name it, so equal probes see the same.
    """

    @abstractmethod
    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""

    @property
    def record_name(self) -> str:
        """The probe as records name it."""
        return repr(self)
