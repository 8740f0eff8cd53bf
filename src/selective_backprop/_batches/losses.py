"""One loss per example, from the loss function the user already has."""

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.types import LossesOf, OutputsOf, Scores

LossFunction = Callable[..., Any]

_CROSS_ENTROPIES = {
    "CrossEntropyLoss",
    "NLLLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}
ADVICE = (
    'Pass a loss function that has a reduction="none", or '
    "losses=callable(model, batch) -> one loss per example."
)


def is_no_cross_entropy(loss_fn: LossFunction | None) -> str | None:
    """Return the name of a loss of torch's that is no cross-entropy; None if it may be one."""
    name, home = _name_of(loss_fn)
    of_torch = home in (nn.modules.loss.__name__, nn.functional.__name__)
    return name if of_torch and name not in _CROSS_ENTROPIES else None


def _uncompiled(loss_fn: Any) -> Any:
    """Return the module that was compiled; other losses as they are.

    Attributes set on a compiled module, even on a copy, are set on the one inside.
    """
    # Not by the attribute: a module takes long to say that it has none.
    parts = getattr(loss_fn, "_modules", None)
    return parts.get("_orig_mod", loss_fn) if parts else loss_fn


def _name_of(loss_fn: LossFunction | None) -> tuple[Any, Any]:
    """Return the name of a loss's class or function, and of its module."""
    loss_fn = _uncompiled(loss_fn)
    function = loss_fn.func if isinstance(loss_fn, functools.partial) else loss_fn
    named = type(function) if isinstance(function, nn.Module) else function
    return getattr(named, "__name__", None), getattr(named, "__module__", None)


def label_smoothing(loss_fn: LossFunction | None) -> float:
    """Return the share of a target that a cross-entropy spreads over all classes."""
    loss_fn = _uncompiled(loss_fn)
    bound = isinstance(loss_fn, functools.partial)
    options = loss_fn.keywords if bound else getattr(loss_fn, "__dict__", {})
    return float(options.get("label_smoothing") or 0.0)


def excess_losses(
    loss_fn: LossFunction, losses: Tensor, outputs: Any, targets: Any
) -> Float[Tensor, "*position"]:
    """Return by how much losses exceed the lowest that their targets allow, weights divided out.

    That is the Kullback-Leibler divergence of the model from the target: of a cross-entropy with
    label smoothing, class weights or probabilities as targets what a plain cross-entropy is of
    classes, 0 where the model could not do better. Other losses are returned as they are.

    Args:
        loss_fn: gave the losses.
        losses: one per position, not reduced.
        outputs: logits, `[row, class, ...]`.
        targets: classes, `[row, ...]`, or probabilities of classes, like the logits.
    """
    smoothed, weights = label_smoothing(loss_fn), class_weights(loss_fn)
    tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
    if not tensors or outputs.ndim < 2:
        return losses
    soft = targets.is_floating_point() and targets.shape == outputs.shape
    if not (smoothed or weights is not None or soft):
        return losses
    if _name_of(loss_fn)[0] not in ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss"):
        return losses
    count = outputs.shape[1]
    each = losses.new_ones(count) if weights is None else weights.to(losses)
    spread = smoothed / count * each  # of a position's target, on each class
    if soft:
        shape = (1, count, *[1] * (outputs.ndim - 2))
        whole = (1.0 - smoothed) * targets * each.view(shape) + spread.view(shape)
        total, entropy = whole.sum(1), -torch.xlogy(whole, whole).sum(1)
    else:
        hit = targets.long().clamp(0, count - 1)  # what is ignored has no class, and is left out
        own = spread[hit] + (1.0 - smoothed) * each[hit]
        total = spread.sum() - spread[hit] + own
        others = torch.xlogy(spread, spread)
        entropy = others[hit] - others.sum() - torch.xlogy(own, own)
    lowest = entropy + torch.xlogy(total, total)
    return ((losses - lowest) / total.clamp(min=torch.finfo(losses.dtype).tiny)).clamp(min=0.0)


def class_weights(loss_fn: LossFunction) -> Tensor | None:
    """Return the class weights of a cross-entropy, or None."""
    loss_fn = _uncompiled(loss_fn)
    if isinstance(loss_fn, functools.partial) and loss_fn.func in (cross_entropy, nll_loss):
        return loss_fn.keywords.get("weight")
    return loss_fn.weight if isinstance(loss_fn, (nn.CrossEntropyLoss, nn.NLLLoss)) else None


def average_examples(losses: Any, targets: Any, ignored: int | None) -> Any:
    """Average token or pixel losses over all axes but the first; return others unchanged.

    Positions whose target equals `ignored` are left out; if all are, the example's loss is 0.
    """
    if not isinstance(losses, Tensor) or losses.ndim < 2:
        return losses
    if ignored is not None and isinstance(targets, Tensor) and targets.shape == losses.shape:
        kept = (targets != ignored).flatten(1)
        return (losses.flatten(1) * kept).sum(1) / kept.sum(1).clamp(min=1)
    return losses.flatten(1).mean(1)


def _refuse_crossed_rows(losses: Tensor, outputs: Tensor, targets: Tensor) -> None:
    """Refuse losses in which every row's output met every row's target by broadcasting."""
    given, wanted, found = outputs.shape, targets.shape, losses.shape
    if len(given) == len(wanted) or found in (given, wanted):
        return
    try:
        crossed = torch.broadcast_shapes(given, wanted)
    except RuntimeError:
        return
    if found == crossed:
        raise LossError(
            f"outputs of shape {tuple(given)} and targets of shape {tuple(wanted)} were broadcast "
            f"to {tuple(found)}, so that every row met every other row's target. Give both one "
            "shape: squeeze the outputs, or unsqueeze the targets."
        )


def check_losses(losses: Any, candidates: int | None) -> Tensor:
    """Return the losses if they are one number per candidate; counts become floats.

    With `candidates=None` any number of losses is accepted.
    """
    if not isinstance(losses, Tensor):
        raise LossError(f"a tensor of losses is needed, got {type(losses).__name__}. {ADVICE}")
    if losses.ndim == 0:
        raise LossError(
            f"the loss is a scalar; one loss per example is needed. {ADVICE} A loss over the whole "
            "batch, such as a contrastive one, has none; let losses= return the term that each "
            "example contributes to it, its row of the cross-entropy of similarities."
        )
    if losses.ndim > 1 or candidates not in (None, losses.shape[0]):
        examples = "" if candidates is None else f" for a batch of {candidates} examples"
        several = ""
        if losses.ndim == 1 and candidates and losses.shape[0] % candidates == 0:
            terms = losses.shape[0] // candidates
            several = (
                f" If these are {terms} tokens, pixels or views of each example, keep them on an "
                "axis of their own; they are then averaged."
            )
        raise LossError(
            f"the losses have shape {tuple(losses.shape)}{examples}; one loss per example is "
            f"needed. {ADVICE}{several}"
        )
    return losses if losses.is_floating_point() else losses.float()


def all_finite_on_host(losses: Tensor) -> bool:
    """Return whether losses in the host's memory are all finite; NumPy is the fastest to ask."""
    known = losses.detach().float() if losses.dtype is torch.bfloat16 else losses.detach()
    return bool(np.isfinite(known.numpy()).all())


def error_norms(outputs: Any, targets: Any) -> Scores:
    """Return `||softmax(outputs) - target||`, the Euclidean norm, in [0, sqrt(2)].

    Outputs are logits, `[candidate, class]`, and targets class numbers, `[candidate]`, or
    probabilities, `[candidate, class]`. NaN stands where a class number is out of range.
    """
    both = (outputs, targets)
    found = [tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__ for v in both]
    known = isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.ndim == 2
    if not known or outputs.shape[1] < 2:
        raise LossError(
            f"the error norm needs outputs [candidate, class] of at least 2 classes and targets, "
            f"got {found[0]} and {found[1]}. Pass outputs=callable(model, batch) -> (outputs, "
            "targets); a single logit z is the two logits (0, z)."
        )
    half = outputs.dtype in (torch.float16, torch.bfloat16)
    errors = (outputs.float() if half else outputs).softmax(1)
    if targets.shape == outputs.shape:
        return (errors - targets).norm(dim=1)
    if targets.shape != outputs.shape[:1] or targets.is_floating_point():
        raise LossError(
            f"targets of shape {found[1]} and type {targets.dtype} belong to no outputs of shape "
            f"{found[0]}: class numbers [candidate] or probabilities [candidate, class] are needed"
        )
    hit = targets.unsqueeze(1) == torch.arange(errors.shape[1], device=errors.device)
    # 1 - p would lose all digits if p is near 1; the sum of the other probabilities keeps them.
    others = errors.masked_fill(hit, 0.0)
    norms = (others.square().sum(1) + others.sum(1).square()).sqrt()
    return norms.where(hit.any(1), torch.nan)


@dataclass(eq=False)
class ExampleLosses:
    """Losses of a batch of `(inputs, targets)`, or of what `outputs` returns for any batch.

    The loss function is called with `reduction="none"`; if it is a module, a copy of it is. A loss
    without a `reduction` is called unchanged; the first batch shows what it returns. The copy is
    reused until the module's attributes change, which they may between batches. With `excess`, an
    example's loss is what it exceeds the lowest by, as `excess_losses` says.
    """

    loss_fn: LossFunction
    outputs: OutputsOf | None = None
    excess: bool = False
    _copy: Any = field(default=None, init=False, repr=False)
    _copied: Sequence[Any] = field(default=(), init=False, repr=False)

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        return self.of_examples(*(self.outputs or apply_to_pair)(model, batch))

    def of_examples(self, outputs: Any, targets: Any) -> Any:
        """Return one loss per example; return others unchanged for `check_losses` to reject."""
        losses = self.of_positions(outputs, targets)
        if self.excess:
            losses = excess_losses(self.loss_fn, losses, outputs, targets)
        return average_examples(losses, targets, self.ignored)

    def of_positions(self, outputs: Any, targets: Any) -> Any:
        """Return unreduced losses, `[candidate, ...]`, or whatever else the loss returns."""
        loss_fn, options = self._function, {}
        if isinstance(getattr(loss_fn, "reduction", None), str):
            loss_fn = self._unreduced(loss_fn)
        elif not isinstance(loss_fn, nn.Module) and "reduction" in self._defaults:
            options = {"reduction": "none"}
        tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
        try:
            losses = loss_fn(outputs, targets, **options)
        except (RuntimeError, ValueError) as error:
            if tensors and outputs.ndim > 2 and outputs.shape[:-1] == targets.shape:
                error.add_note(
                    f"Outputs {tuple(outputs.shape)} seem to have the classes on their last axis, "
                    "where torch wants them on the second. Pass outputs=callable(model, batch) -> "
                    "(logits.movedim(-1, 1), targets)."
                )
            raise
        if tensors and isinstance(losses, Tensor) and losses.ndim:
            _refuse_crossed_rows(losses, outputs, targets)
        return losses

    def mean(self, losses: Tensor, targets: Any) -> Tensor:
        """Return the mean of the losses of rows, with the divisor that a cross-entropy uses.

        With class weights the divisor is their sum over the rows, or over all positions of the
        rows. Targets equal to `ignore_index` do not count. If the targets are not classes, the
        plain mean is taken.
        """
        weights, ignored = class_weights(self.loss_fn), self.ignored
        classes = isinstance(targets, Tensor) and not targets.is_floating_point()
        masked = ignored is not None and classes and targets.ndim == 1
        if masked and targets.device.type == "cpu":
            masked = bool((targets.detach().numpy() == ignored).any())
        if not classes or not (masked or weights is not None):
            return losses.mean()
        kept = torch.ones_like(targets, dtype=torch.bool) if ignored is None else targets != ignored
        counted = kept.float()
        if weights is not None:
            counted = counted * weights.float()[targets.where(kept, 0).long()]
        rows = len(losses) if targets.ndim == 1 else kept.sum()
        return losses.mean() * (rows / counted.sum()).nan_to_num(posinf=1.0).to(losses.dtype)

    @property
    def reduction(self) -> str | None:
        """How the loss reduces the losses of rows; None if it has no `reduction`."""
        found = self._option("reduction")
        return found if isinstance(found, str) else None

    @property
    def ignored(self) -> int | None:
        """The target value that the loss leaves out, `ignore_index`, or None."""
        found = self._option("ignore_index")
        return found if isinstance(found, int) else None

    @property
    def _function(self) -> LossFunction:
        return _uncompiled(self.loss_fn)

    def _option(self, name: str) -> Any:
        found = getattr(self._function, name, None)
        if found is None and isinstance(self._function, functools.partial):
            found = self._function.keywords.get(name)
        return self._defaults.get(name) if found is None else found

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        try:
            parameters = inspect.signature(self._function).parameters
        except (TypeError, ValueError):  # builtins without a signature
            return {}
        return {n: parameters[n].default for n in ("reduction", "ignore_index") if n in parameters}

    def _unreduced(self, loss_fn: Any) -> LossFunction:
        """Return a copy of a loss that does not reduce, with its current attributes."""
        if self._copied:
            held = (type(loss_fn), *vars(loss_fn).values(), *vars(self._copy).values())
            if len(held) == len(self._copied) and all(map(operator.is_, held, self._copied)):
                return self._copy
        self._copy = copy.copy(loss_fn)
        self._copy.reduction = "none"
        if isinstance(loss_fn, nn.Module):  # all its attributes are in its `__dict__`
            self._copied = (type(loss_fn), *vars(loss_fn).values(), *vars(self._copy).values())
        return self._copy


def apply_to_pair(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    """Return `(model(inputs), targets)` of a batch that is a pair `(inputs, targets)`."""
    listed = isinstance(batch, (tuple, list))
    if not listed or len(batch) != 2:
        found = type(batch).__name__ + (f" of {len(batch)}" if listed else "")
        raise LossError(
            f"the batch is a {found}, not a pair (inputs, targets), so it is not known what the "
            "model takes. Pass losses=callable(model, batch) -> one loss per example, or "
            "outputs=callable(model, batch) -> (outputs, targets)."
        )
    inputs, targets = batch
    return model(inputs), targets


def find_losses(
    loss_fn: LossFunction | None,
    losses: LossesOf | None,
    outputs: OutputsOf | None,
    *,
    excess: bool = False,
) -> LossesOf:
    """Return the function that gives one loss per example, from the user's arguments."""
    if losses is not None:
        return losses
    if loss_fn is None:
        raise ConfigurationError(f"scoring needs a loss function, got None. {ADVICE}")
    return ExampleLosses(loss_fn, outputs, excess)


def find_outputs(losses: LossesOf | None, outputs: OutputsOf | None) -> OutputsOf | None:
    """Return the function that gives `(outputs, targets)`; None if only losses were given."""
    return outputs if outputs is not None or losses is not None else apply_to_pair
