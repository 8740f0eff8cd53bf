"""A treatment of a whole run: smaller images in its first part."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.preparation import forward_operations


class Halving:
    """Show a model images of half their side in the first `share` of a run.

    Within `acting()`, a hook shows the model the means of blocks of four pixels, in training and in
    scoring. Such a pass costs less, in proportion to the operations that it takes.
    """

    def __init__(self, model: nn.Module, data: LabData, share: float) -> None:
        self._model, self._share = model, share
        self._until = math.inf  # what all passes at half size together would cost at full size
        whole = data.train_inputs.shape[1:]
        half = (*whole[:-2], *(side // 2 for side in whole[-2:]))
        try:
            operations = [forward_operations(model, shape) for shape in (half, whole)]
        except RuntimeError as error:
            raise sb.ConfigurationError(
                f"progressive resolution needs images, and a net that also takes images of half "
                f"the side; here inputs are {tuple(whole)}. Use small_cnn or resnet9_narrow"
            ) from error
        self._price = operations[0] / operations[1]

    def _halve(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if math.isfinite(self._until):
            return None
        return functional.avg_pool2d(inputs[0], 2), *inputs[1:]

    @contextmanager
    def acting(self) -> Generator[None]:
        """Show the model smaller images in the body, if the run's first part is not over."""
        with self._model.register_forward_pre_hook(self._halve):
            yield

    def paid(self, cost: float) -> float:
        """Return the actual cost, given the cost at full size, both without a preparation's."""
        return cost - (1.0 - self._price) * min(cost, self._until)

    def went_on(self, progress: float, cost: float) -> None:
        """Note the run's progress, and its cost if all passes had been at full size."""
        if progress >= self._share and not math.isfinite(self._until):
            self._until = cost

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` continues from."""
        return {"until": self._until}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self._until = state["until"]
