"""BatchNorm in training that normalises by the statistics of all candidates."""

import inspect
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from selective_backprop._core.errors import ConfigurationError

SIGNATURE = inspect.signature(functional.batch_norm)


class Moments(NamedTuple):
    """Mean and variance of each channel over the candidates.

    Attributes:
        mean: `[channel]`.
        variance: without Bessel's correction; normalises the rows.
        unbiased: the variance with Bessel's correction; running statistics move towards it.
    """

    mean: Tensor
    variance: Tensor
    unbiased: Tensor


class NotingStatistics(TorchFunctionMode):
    """Note the statistics by which each BatchNorm normalises in a selection pass."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Moments] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _training_arguments(func, args, kwargs)
        if given is None:
            return func(*args, **kwargs)
        inputs = given["input"]
        channels, entries = inputs.shape[1], inputs.numel() // inputs.shape[1]
        kind = torch.promote_types(inputs.dtype, torch.float32)
        mean, unbiased = inputs.new_zeros(2, channels, dtype=kind).unbind()
        # With a momentum of 1 BatchNorm writes this batch's statistics here, in the same pass.
        replaced = {"running_mean": mean, "running_var": unbiased, "momentum": 1.0}
        outputs = func(**given | replaced)
        self.noted.append(Moments(mean, unbiased * ((entries - 1) / entries), unbiased))
        return outputs


class NotedStatistics(TorchFunctionMode):
    """Normalise by noted statistics, as constants, and move running statistics towards them.

    Args:
        noted: the moments of each BatchNorm in the order of the selection pass.
    """

    def __init__(self, noted: list[Moments]) -> None:
        super().__init__()
        self._noted = iter(noted)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = _training_arguments(func, args, kwargs)
        if given is None:
            return func(*args, **kwargs)
        moments = next(self._noted, None)
        if moments is None or moments.mean.shape[0] != given["input"].shape[1]:
            raise ConfigurationError(
                "the training forward calls other BatchNorms than the selection pass did, so "
                "that there are no candidate statistics for them; pass candidate_statistics=False"
            )
        with torch.no_grad():
            for running, noted in ((given["running_mean"], 0), (given["running_var"], 2)):
                if running is not None:
                    running.lerp_(moments[noted].to(running.dtype), given["momentum"])
        constant = {"running_mean": moments.mean, "running_var": moments.variance}
        return func(**given | constant | {"training": False})


def _training_arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any] | None:
    """Return the arguments by name if this calls BatchNorm in training, or else None."""
    if func is not functional.batch_norm:
        return None
    bound = SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    if not given["training"] or math.prod(given["input"].shape) == 0:
        return None
    return dict(given)
