"""Write statistics of selection to the user's experiment log."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_whole
from selective_backprop._core.stats import Stats
from selective_backprop._loader.selective_loader import SelectiveLoader

PREFIX = "selection/"  # before each name, so that logging tools show the values together

Write: TypeAlias = Callable[[Mapping[str, float], int], object]


class Log:
    """Write statistics of selection to your experiment log.

    Call it with the loader after each training step. It writes one entry per `every` batches: the
    epoch, from 0; counts of `loader.stats` since training began, with `kept` for the examples
    trained on, and their `rate`; `recent_rate`, the same since the previous entry; the costs of
    training with and without selection (in forward passes of one example); mean and deciles of the
    recent scores and, once an epoch, `wrong_labels` and `least_class` (the lowest ratio of a
    class's share of the examples trained on to its share of the data), all after `selection/`.

    The step of an entry is the number of training batches so far. With several processes only rank
    0 writes, of its own share of the data. For each entry, the CPU waits for the GPU.

    Args:
        to: a TensorBoard `SummaryWriter`, a Weights & Biases run, the `mlflow` module, or another
            object with the methods of one of these (`add_scalar`; `log` and `define_metric`; or
            `log_metrics`). Or a `callable(values, step)`, where `values` maps names to numbers.
            Ranks other than 0 may pass None.
        every: number of training batches from one entry to the next, at least 1.

    Raises:
        ConfigurationError: if `to` is of another kind.
    """

    def __init__(self, to: Any, *, every: int = 100) -> None:
        self._every = check_whole("every", every)
        self._write = _writer(to) if to is not None or _writes() else lambda *entry: None
        self._last = Stats()

    def __call__(self, loader: SelectiveLoader, *, now: bool = False) -> None:
        """Write an entry if `every` batches have passed since the last one; `now`, if any has."""
        if not _writes():
            return
        stats = loader.stats
        if stats.batches < self._last.batches:
            self._last = Stats()  # another loader
        passed = stats.batches - self._last.batches
        if passed >= (1 if now else self._every):
            counted = ("epoch", "candidates", "loaded", "scored", "kept", "cost", "plain_cost")
            values = {name: float(getattr(stats, name)) for name in counted}
            rates = {"rate": stats.rate, "recent_rate": stats.since(self._last).rate}
            values |= {name: rate for name, rate in rates.items() if not math.isnan(rate)}
            if (scores := loader.scores) is not None:
                values["score_mean"] = scores.mean
                values |= {f"score_p{tenth}0": scores.deciles[tenth] for tenth in range(1, 10)}
            if stats.epoch != self._last.epoch:
                if (visits := loader.class_visits) is not None:
                    values["least_class"] = visits.least
                if (wrong := loader.wrong_labels) is not None:
                    values["wrong_labels"] = wrong.share
            self._write({f"{PREFIX}{name}": v for name, v in values.items()}, stats.batches)
            self._last = stats


def _writes() -> bool:
    several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not several or torch.distributed.get_rank() == 0


def _writer(to: Any) -> Write:
    if hasattr(to, "add_scalar"):

        def write_scalars(values: Mapping[str, float], step: int) -> None:
            for name, value in values.items():
                to.add_scalar(name, value, step)

        return write_scalars
    if hasattr(to, "log_metrics"):
        return lambda values, step: to.log_metrics(dict(values), step=step)
    if hasattr(to, "define_metric") and hasattr(to, "log"):
        # A separate axis: the user's own entries advance W&B's step, and earlier ones are dropped.
        axis = f"{PREFIX}batches"
        to.define_metric(axis)
        to.define_metric(f"{PREFIX}*", step_metric=axis)
        return lambda values, step: to.log({**values, axis: step})
    if callable(to):
        return to
    raise ConfigurationError(
        f"to={to!r:.60} has no add_scalar (TensorBoard), no log_metrics (MLflow), no log and "
        "define_metric (Weights & Biases), and cannot be called. Pass the writer, run or module "
        "itself, or callable(values, step)."
    )
