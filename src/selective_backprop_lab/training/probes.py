"""Probes look into a run while it trains, without changing it, and record what they see.

A run with probes and a run without train the same net and share a record. A new probe is a frozen
dataclass that starts a `RunningProbe`, in a module that imports this one.
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
    """What a probe may look at, but must not change."""

    model: nn.Module  # the model in training; in eval mode when a probe looks
    data: LabData
    device: torch.device


class RunningProbe(ABC):
    """A probe that looks at one run; the run's time excludes the probe's, except in `selected`."""

    def selected(self, indices: Tensor) -> None:  # noqa: B027
        """Note the rows of a training batch, by their indices in the data set, on the CPU."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the probe needs to continue in another process, for `torch.save`."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Continue from `state_dict()`."""

    @abstractmethod
    def look(self, progress: float) -> Mapping[str, Any] | None:
        """Return what the probe sees after this fraction of the run, for a record, or None."""


class Probe(ABC):
    """What to look for in a run; a frozen dataclass, which records name by its `repr`."""

    @abstractmethod
    def start(self, scene: ProbeContext) -> RunningProbe:
        """Start looking at a run."""

    @property
    def record_name(self) -> str:
        """The probe's name in records."""
        return repr(self)
