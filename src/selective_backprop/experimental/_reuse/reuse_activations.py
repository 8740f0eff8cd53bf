"""The public specification of reuse."""

from dataclasses import dataclass
from typing import Any, final

from selective_backprop._core.options import check_flag, settle
from selective_backprop._step.reuse import AbstractReuse
from selective_backprop.experimental._reuse.activations import RunningReuseActivations
from selective_backprop.experimental._reuse.checks import (
    check_reusable_model,
    check_reusable_scorer,
)
from selective_backprop.scorers import AbstractScorer, Forward


@final
@dataclass(frozen=True)
class ReuseActivations(AbstractReuse):
    """Experimental: let `SelectiveStep` train with results that its selection pass has computed.

    If a share `s` of the candidates is selected, a step costs `1 + 2 s` forward passes over the
    candidates instead of `1 + 3 s`. Results of matrix products, convolutions and attention are
    reused. Gradients equal those without reuse, up to rounding. A result is reused only if
    fingerprints show that the operation's inputs belong to the selected rows. The first time, the
    operation is also computed, and both results are compared. If anything differs, the computed
    result is used, so you lose only time. Two kinds of operations are always computed: fused
    recurrent layers, and operations too small to gain from reuse (fewer than 64 multiplications per
    element they read).

    The selection pass runs in the modules' present modes, not in eval mode. It must not draw random
    numbers, as dropout does. The results of all candidates are held until the training forward. On
    a CPU, later steps reuse this memory. `stats.held_bytes` says how much memory this is.
    On CUDA the host waits for the device two or three times per heavy operation.

    Args:
        candidate_statistics: True lets every BatchNorm in training mode normalise the selected rows
            by the mean and variance of all candidates, taken as constants. Its running statistics
            move towards these. False refuses BatchNorm in training mode.

    Raises:
        ConfigurationError: if `candidate_statistics` is no bool.

    Example:
        >>> import torch, selective_backprop as sb
        >>> model, loss_fn = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss()
        >>> strategy = sb.selective_backprop(rate=1 / 4, warmup_epochs=0)
        >>> reuse = sb.experimental.ReuseActivations()
        >>> step = sb.SelectiveStep(model, loss_fn, strategy, reuse=reuse)
    """

    candidate_statistics: bool = False

    def __post_init__(self) -> None:
        settle(self, check_flag, "candidate_statistics")

    def fit(self, scorer: AbstractScorer | None, model: Any) -> Forward:
        """Return a scorer that keeps the modules' modes; raise if results cannot be reused."""
        fitting = check_reusable_scorer(scorer)
        check_reusable_model(model, candidate_statistics=self.candidate_statistics)
        return fitting

    def start(self) -> RunningReuseActivations:
        """Return the object that records and reuses results in one training."""
        return RunningReuseActivations(candidate_statistics=self.candidate_statistics)
