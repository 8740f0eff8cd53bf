"""BatchNorm in training that normalises by the statistics of all candidates."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from selective_backprop._core.errors import ConfigurationError

SIGNATURE = inspect.signature(functional.batch_norm)


class Moments(NamedTuple):
    """Mean and variance of each channel over the candidates, `[channel]`."""

    mean: Tensor
    variance: Tensor  # without Bessel's correction; normalises the rows
    unbiased: Tensor  # with Bessel's correction; running statistics move towards it


class BatchNormMode(TorchFunctionMode):
    """Let `run` answer each call of BatchNorm in training, from its arguments by name."""

    def __init__(self, run: Callable[[dict[str, Any]], Tensor]) -> None:
        super().__init__()
        self._run = run

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            bound = SIGNATURE.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            if given["training"] and given["input"].numel():
                return self._run(given)
        return func(*args, **kwargs)


def note_statistics(noted: list[Moments]) -> BatchNormMode:
    """Return a mode that appends the statistics by which each BatchNorm normalises."""

    def run(given: dict[str, Any]) -> Tensor:
        inputs = given["input"]
        channels, entries = inputs.shape[1], inputs.numel() // inputs.shape[1]
        kind = torch.promote_types(inputs.dtype, torch.float32)
        mean, unbiased = inputs.new_zeros(2, channels, dtype=kind).unbind()
        # With a momentum of 1 BatchNorm writes this batch's statistics here, in the same pass.
        given |= {"running_mean": mean, "running_var": unbiased, "momentum": 1.0}
        outputs = functional.batch_norm(**given)
        noted.append(Moments(mean, unbiased * ((entries - 1) / entries), unbiased))
        return outputs

    return BatchNormMode(run)


def use_statistics(noted: list[Moments]) -> BatchNormMode:
    """Return a mode that normalises by noted statistics, in their order, as constants.

    Running statistics move towards them.
    """
    coming = iter(noted)

    def run(given: dict[str, Any]) -> Tensor:
        moments = next(coming, None)
        if moments is None or moments.mean.shape[0] != given["input"].shape[1]:
            raise ConfigurationError(
                "the training forward calls other BatchNorms than the selection pass did, so "
                "that there are no candidate statistics for them; pass candidate_statistics=False"
            )
        with torch.no_grad():
            for running, now in (("running_mean", moments.mean), ("running_var", moments.unbiased)):
                if given[running] is not None:
                    given[running].lerp_(now.to(given[running].dtype), given["momentum"])
        given |= {"running_mean": moments.mean, "running_var": moments.variance, "training": False}
        return functional.batch_norm(**given)

    return BatchNormMode(run)
