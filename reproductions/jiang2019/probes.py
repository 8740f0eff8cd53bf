"""What the papers' figures look for inside a run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import nn

from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.training.callbacks import Probe, RunningProbe, Scene


@final
@dataclass(frozen=True)
class LossQuantiles(Probe):
    """Quantiles of the training examples' losses, from none to all of them.

    Attributes:
        examples: of the training set, the first so many, without augmentation.
        steps: between the lowest loss and the highest.
    """

    examples: int = 2000
    steps: int = 100

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningLossQuantiles(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each example at each look, forward."""
        return looks * min(self.examples, trained), 0


class _RunningLossQuantiles(RunningProbe):
    def __init__(self, spec: LossQuantiles, scene: Scene) -> None:
        data, count = scene.data, spec.examples
        part = replace(
            data,
            train_images=data.train_images[:count],
            train_labels=data.train_labels[:count],
            train_clean_labels=None,
        )
        self._loader = make_loader(part, batch_size=500, seed=0, shuffle=False)
        self._shares = torch.linspace(0, 1, spec.steps + 1)
        self._scene = scene

    @torch.no_grad()
    def look(self, progress: float) -> Mapping[str, Any] | None:
        scene = self._scene
        losses = torch.cat(
            [
                nn.functional.cross_entropy(
                    scene.model(inputs.to(scene.device)),
                    targets.to(scene.device),
                    reduction="none",
                )
                for inputs, targets in self._loader
            ]
        )
        quantiles = losses.float().cpu().quantile(self._shares)
        # Six digits are enough for a curve, and keep records small.
        return {"quantiles": [float(f"{value:.6g}") for value in quantiles.tolist()]}
