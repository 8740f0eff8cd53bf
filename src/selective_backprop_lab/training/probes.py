"""Probes look into a run while it trains, without changing it, and record what they see.

A run with probes and a run without train the same net and share a record.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from selective_backprop_lab.data.datasets import LabData

Memory = dict[str, Any]
"""What a probe remembers of one run, for `torch.save`; it is empty at first."""


@dataclass(frozen=True, eq=False)
class ProbeContext:
    """What a probe may look at, but must not change."""

    model: nn.Module  # the model in training; in eval mode when a probe looks
    data: LabData
    device: torch.device


class Probe(ABC):
    """What to look for in a run; a frozen dataclass, which records name by its `repr`."""

    def select(self, scene: ProbeContext, indices: Tensor, memory: Memory) -> None:  # noqa: B027
        """Note a training batch by its rows' indices, on the CPU; the run's time includes this."""

    @abstractmethod
    def look(
        self, scene: ProbeContext, progress: float, memory: Memory
    ) -> Mapping[str, Any] | None:
        """Return what the probe sees after this fraction of the run, for a record, or None."""
