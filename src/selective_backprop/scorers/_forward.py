"""The scorer of Selective-Backprop: one forward pass of the model itself, without gradients."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import torch
from torch import Tensor, nn

from selective_backprop._batches import losses as _losses
from selective_backprop._batches.losses import ExampleLosses, check_losses
from selective_backprop._core import isolation
from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import NamedOption, check_flag, choose, settle
from selective_backprop._core.types import NO_TARGET, LossesOf, RowIndices, Scores
from selective_backprop._sampling.context import Context, Unchanging
from selective_backprop.scorers._abstract import AbstractScorer, Needs, RunningScorer


class Measure(NamedOption):
    """What a forward pass measures for each candidate.

    `LOSS` is the candidate's loss. `ERROR_NORM` is the distance between the predicted probabilities
    and the target, `||softmax(outputs) - onehot(target)||`. With a cross-entropy loss, this
    distance is the norm of the loss's gradient with respect to the outputs.
    """

    LOSS = "loss"
    ERROR_NORM = "error-norm"


MeasureName: TypeAlias = Literal["loss", "error-norm"]


@final
@dataclass(frozen=True)
class Forward(AbstractScorer):
    """Score each candidate by its loss in a forward pass of the current model.

    The pass runs without gradients. It does not change buffers, the train or eval mode of modules,
    or the random states of torch, NumPy and Python. The model's forward hooks do run.

    Args:
        measure: `"loss"` or `"error-norm"` (see `Measure`). The error norm needs outputs
            `[candidate, class]`, and targets that are class numbers or class probabilities.
        training: whether to leave modules in their current mode, normally training mode. Dropout
            is then active, and BatchNorm uses the batch's statistics. If False, eval mode is used.
        precision: `"bf16"` runs the pass in autocast to bfloat16. None uses the autocast that is
            active when your loop asks the loader for a batch, if any. An autocast inside the
            function that you pass to the loader as `losses=` comes before both.
        features: whether `losses=` returns `(losses, features)`, as in `Needs(features=True)`.

    Source:
        For the error norm: Katharopoulos and Fleuret 2018, arXiv:1803.00942, equation 20; Paul et
        al. 2021, arXiv:2107.07075 (EL2N).
    """

    measure: Measure | MeasureName = Measure.LOSS
    training: bool = False
    precision: Literal["bf16"] | None = None
    features: bool = False

    def __post_init__(self) -> None:
        settle(self, choose, "measure", kind=Measure)
        settle(self, check_flag, "training", "features")
        if self.precision not in ("bf16", None):
            raise ConfigurationError(f'precision={self.precision!r}: write "bf16" or None')

    @property
    def needs(self) -> Needs:
        outputs = self.measure is not Measure.LOSS
        return Needs(outputs=outputs, features=self.features, plain_forward=True)

    def start(self, context: Context) -> RunningScorer:
        measured, outputs = context.losses, context.outputs
        if context.model is None or measured is None:
            raise ConfigurationError(
                "Forward() scores by the model's loss, but there is none; pass a model and a loss"
            )
        if self.measure is Measure.ERROR_NORM:
            if outputs is None:
                raise ConfigurationError(
                    "the error norm needs the model's outputs, but losses= gives only losses. "
                    "Pass outputs=callable(model, batch) -> (outputs, targets)."
                )
            loss_fn = measured.loss_fn if isinstance(measured, ExampleLosses) else None
            ignored = _losses.ignored_label(loss_fn)

            def measured(model: nn.Module, batch: Any) -> Tensor:
                return error_norms(*outputs(model, batch), ignored)

        return _RunningForward(isolation.unwrapped(context.model), measured, context.device, self)


class _RunningForward(Unchanging, RunningScorer):
    def __init__(
        self, model: nn.Module, losses: LossesOf, device: torch.device | None, spec: Forward
    ) -> None:
        self._model, self._losses, self._device = model, losses, device
        self._training, self._features = spec.training, spec.features
        self._dtype = torch.bfloat16 if spec.precision == "bf16" else None
        self._kept = isolation.KeptModel(model)
        # The next replay of a CUDA graph overwrites losses that the model itself returns. Losses
        # that torch's own loss functions compute from the model's outputs are not overwritten.
        known = isinstance(losses, ExampleLosses)
        self._new = known and _losses.is_plainly_torchs(losses.loss_fn)

    def score(self, batch: Any, indices: RowIndices | None) -> Any:
        with (
            torch.no_grad(),
            isolation.kept_random_streams(self._device),
            self._kept.kept(evaluates=not self._training),
            isolation.uncached_autocast(self._device, self._dtype),
        ):
            losses: Any = self._losses(self._model, batch)
        paired = self._features and isinstance(losses, tuple)
        losses, *features = losses if paired else (losses,)
        scores = check_losses(losses, None if indices is None else indices.shape[0])
        if scores.is_cuda and not self._new:
            scores, *features = (each.clone() for each in (scores, *features))
        return (scores, *features) if features else scores


def error_norms(outputs: Any, targets: Any, ignored: int | None = None) -> Scores:
    """Return `||softmax(outputs) - target||`, the Euclidean norm, in [0, sqrt(2)].

    Outputs are logits, `[candidate, class]`. Targets are class numbers, `[candidate]`, or
    probabilities, `[candidate, class]`. If a class number is out of range, the result is NaN. If it
    equals `ignored`, it is `NO_TARGET`.
    """
    both = (outputs, targets)
    found = [tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__ for v in both]
    known = isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.ndim == 2
    if not known or outputs.shape[1] < 2:
        raise LossError(
            "the error norm needs outputs [candidate, class] of at least 2 classes, and targets, "
            f"got {found[0]} and {found[1]}. Pass outputs=callable(model, batch) -> (outputs, "
            "targets). If the model gives a single logit z, return the two logits (0, z)."
        )
    half = outputs.dtype in (torch.float16, torch.bfloat16)
    errors = (outputs.float() if half else outputs).softmax(1)
    if targets.shape == outputs.shape:
        return (errors - targets).norm(dim=1)
    if targets.shape != outputs.shape[:1] or targets.is_floating_point():
        raise LossError(
            f"targets of shape {found[1]} and type {targets.dtype} do not fit outputs of shape "
            f"{found[0]}: class numbers [candidate] or probabilities [candidate, class] are needed"
        )
    hit = targets.unsqueeze(1) == torch.arange(errors.shape[1], device=errors.device)
    # If p is near 1, 1 - p loses all digits; the sum of the other probabilities keeps them.
    others = errors.masked_fill(hit, 0.0)
    norms = (others.square().sum(1) + others.sum(1).square()).sqrt()
    norms = norms.where(hit.any(1), torch.nan)
    return norms if ignored is None else norms.masked_fill(targets == ignored, NO_TARGET)
