"""Get one loss per example from the loss function that the user already has."""

import copy
import functools
import inspect
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.errors import ConfigurationError, LossError, warn
from selective_backprop._core.isolation import KeptModel, kept_random_streams
from selective_backprop._core.types import NO_TARGET, Bool, LossesOf, OutputsOf

LossFunction = Callable[..., Any]
SQUEEZED = "outputs=lambda model, batch: (model(batch[0]).squeeze(1), batch[1])."
SETTINGS = ("reduction", "ignore_index", "weight", "label_smoothing")
SLACK = 1e-2  # largest error of a sum of many probabilities in half precision
IGNORED = -100  # torch's default for the class index that a loss ignores

OF_LABELS = {
    "BCELoss",
    "BCEWithLogitsLoss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}
OF_CLASSES = {"CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss"}
ADVICE = (
    'Pass a loss function that has a reduction="none", or '
    "losses=callable(model, batch) -> one loss per example."
)


def is_no_cross_entropy(loss_fn: LossFunction | None) -> str | None:
    """Return the name of a torch loss that is no cross-entropy; None if it may be one."""
    if isinstance(loss_fn, type):
        raise ConfigurationError(
            f"loss_fn is the class {loss_fn.__name__}, not an object: write {loss_fn.__name__}()"
        )
    name, home = name_of(loss_fn)
    of_torch = home in (nn.modules.loss.__name__, nn.functional.__name__)
    return name if of_torch and name not in OF_CLASSES | OF_LABELS else None


def is_plainly_torchs(loss_fn: LossFunction) -> bool:
    known = type(loss_fn).__module__ == nn.modules.loss.__name__
    return known and getattr(loss_fn, "_compiled_call_impl", None) is None


def uncompiled(loss_fn: Any) -> Any:
    """Return the module inside a compiled one, which has its attributes, or the loss itself."""
    # `getattr(loss_fn, "_orig_mod")` would be slow for modules that have none.
    parts = getattr(loss_fn, "_modules", None)
    return parts.get("_orig_mod", loss_fn) if parts else loss_fn


def name_of(loss_fn: LossFunction | None) -> tuple[Any, Any]:
    loss_fn = uncompiled(loss_fn)
    function = loss_fn.func if isinstance(loss_fn, functools.partial) else loss_fn
    named = type(function) if isinstance(function, nn.Module) else function
    return getattr(named, "__name__", None), getattr(named, "__module__", None)


def option(loss_fn: LossFunction | None, name: str) -> Any:
    loss_fn = uncompiled(loss_fn)
    if isinstance(loss_fn, functools.partial):
        return loss_fn.keywords.get(name)
    return getattr(loss_fn, name, None)


def label_smoothing(loss_fn: LossFunction | None) -> float:
    return float(option(loss_fn, "label_smoothing") or 0.0)


def class_weights(loss_fn: LossFunction) -> Tensor | None:
    function = uncompiled(loss_fn)
    torchs = getattr(function, "func", None) in (cross_entropy, nll_loss)
    known = torchs or isinstance(function, (nn.CrossEntropyLoss, nn.NLLLoss))
    return option(function, "weight") if known else None


def ignored_label(loss_fn: LossFunction | None) -> int:
    """Return the class index that a loss ignores: its `ignore_index`, or torch's default."""
    found = None if loss_fn is None else UnreducedLoss.of(loss_fn).ignored
    return IGNORED if found is None else found


def without_ignored(ignored: int, targets: Any) -> Any:
    """Return targets with the ignored class index below 0, so that it counts as no class."""
    if not isinstance(targets, Tensor) or targets.is_floating_point():
        return targets
    return targets.long().masked_fill(targets == ignored, IGNORED)


def lacks_target(
    losses: Any, targets: Any, ignored: int | None = None
) -> Bool[Tensor, " row"] | None:
    """Return which rows have no target but ignored ones; None if rows do not have one loss each.

    Ignored is the class `ignored`; with None, torch's default, or a NaN, if the loss is 0.
    """
    tensors = isinstance(losses, Tensor) and isinstance(targets, Tensor)
    if not tensors or targets.is_nested or losses.ndim != 1 or targets.shape[:1] != losses.shape:
        return None
    targets = targets.detach().as_subclass(Tensor)
    soft = targets.is_floating_point()
    found = targets.isnan() if soft else targets == (IGNORED if ignored is None else ignored)
    found = (found.flatten(1).all(1) if found.ndim > 1 else found).to(losses.device)
    return found if ignored is not None and not soft else found & (losses == 0)


def _refuse_crossed_rows(losses: Tensor, outputs: Tensor, targets: Tensor) -> None:
    given, wanted, found = outputs.shape, targets.shape, losses.shape
    if len(given) == len(wanted):
        return
    try:
        crossed = torch.broadcast_shapes(given, wanted)
    except RuntimeError:
        return
    if found == crossed:
        raise LossError(
            f"outputs of shape {tuple(given)} and targets of shape {tuple(wanted)} were broadcast "
            f"to {tuple(found)}: each output was compared with the targets of all rows. Give both "
            f"the same shape. If your loop squeezes the outputs, pass {SQUEEZED}"
        )


def check_losses(losses: Any, candidates: int | None) -> Tensor:
    """Return losses as floats, if they are one number per candidate (None: of any number)."""
    if not isinstance(losses, Tensor):
        raise LossError(f"a tensor of losses is needed, got {type(losses).__name__}. {ADVICE}")
    if losses.ndim == 0:
        raise LossError(
            f"the loss is a scalar; one loss per example is needed. {ADVICE} If the loss compares "
            "the examples of a batch, as a contrastive loss does, let losses= return the term that "
            "each example adds to it"
        )
    if losses.ndim > 1 or candidates not in (None, losses.shape[0]):
        examples = "" if candidates is None else f" for a batch of {candidates} examples"
        raise LossError(
            f"the losses have shape {tuple(losses.shape)}{examples}; one loss per example is "
            f"needed. {ADVICE} Give tokens, pixels or views an axis of their own, then they are "
            "averaged"
        )
    if type(losses) is not Tensor:  # so that states hold no subclass
        losses = losses.as_subclass(Tensor)
    return losses if losses.is_floating_point() else losses.float()


@dataclass(frozen=True, eq=False)
class UnreducedLoss:
    """A loss function that can be asked for one loss per position, and what its reduction does."""

    given: Any  # the user's, not compiled
    settings: list[Any]  # of it, in the order of `SETTINGS`
    options: dict[str, Any]  # with which it does not reduce
    settable: bool  # whether it does not reduce once its attribute `reduction` says so
    counts: bool  # whether a call may change it, as far as can be seen
    reduction: str | None  # the user's `reduction`; None if there is none
    ignored: int | None  # `ignore_index`: the target that is left out
    weights: Tensor | None  # of classes
    shifted: bool  # whether the lowest loss may be above 0 if targets are classes

    @classmethod
    def of(cls, loss_fn: LossFunction) -> "UnreducedLoss":
        function = uncompiled(loss_fn)
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # builtins without a signature
            parameters = {}

        def known(name: str, kind: type) -> Any:
            found = option(function, name)
            if found is None and name in parameters:
                found = parameters[name].default
            return found if isinstance(found, kind) else None

        module = isinstance(function, nn.Module)
        settable = isinstance(getattr(function, "reduction", None), str)
        # What a compiled TorchScript module or an object without `__dict__` changes is not found.
        seen = not isinstance(function, torch.jit.ScriptModule) and hasattr(function, "__dict__")
        weights = class_weights(function)
        return cls(
            function,
            [option(function, name) for name in SETTINGS],
            {"reduction": "none"} if "reduction" in parameters and not (module or settable) else {},
            settable,
            seen and (module or settable) and not is_plainly_torchs(function),
            known("reduction", str),
            known("ignore_index", int),
            weights,
            weights is not None or label_smoothing(function) > 0,
        )

    def of_positions(self, outputs: Any, targets: Any, *more: Any, **named: Any) -> Any:
        """Return unreduced losses, `[candidate, ...]`; with gradients off, leave no trace."""
        tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
        trains = torch.is_grad_enabled()
        function = self._copied() if self.settable or (self.counts and not trains) else self.given
        try:
            with self._kept_buffers() if self.counts and not trains else nullcontext():
                losses = function(outputs, targets, *more, **self.options, **named)
        except (RuntimeError, ValueError) as error:
            if tensors and outputs.ndim > 2 and outputs.shape[:-1] == targets.shape:
                error.add_note(
                    f"torch needs classes on the second axis of {tuple(outputs.shape)}: pass "
                    "outputs=callable(model, batch) -> (logits.movedim(-1, 1), targets)."
                )
            elif tensors and outputs.shape == (len(targets), 1) and targets.ndim == 1:
                error.add_note(f"If your loop squeezes the outputs, pass {SQUEEZED}")
            raise
        if self.counts and trains and self.settable:
            changed = {**vars(function)}
            changed.pop("reduction", None)
            vars(self.given).update(changed)
        rows = tensors and isinstance(losses, Tensor) and losses.ndim
        if rows and losses.shape not in (targets.shape, outputs.shape):
            _refuse_crossed_rows(losses, outputs, targets)
        return losses

    def probe(self, outputs: Any, targets: Any, *more: Any, **named: Any) -> Any:
        """Return what the given loss returns, but leave no trace in it or in random streams."""
        given = self._copied(reduces=True) if self.counts else self.given
        # the function in a compiled one, which would be compiled again
        given = getattr(given, "_torchdynamo_orig_callable", given)
        device = outputs.device if isinstance(outputs, Tensor) else None
        kept = self._kept_buffers() if self.counts else nullcontext()
        with kept_random_streams(device), kept:
            found = given(outputs, targets, *more, **named)
        return found.detach() if isinstance(found, Tensor) else found

    def _copied(self, *, reduces: bool = False) -> Any:
        """Return a copy to call, since another thread may be using the user's own loss."""
        change = setattr if isinstance(self.given, torch.jit.ScriptModule) else object.__setattr__
        try:
            clone: Any = copy.copy(self.given)
            if self.settable and not reduces:
                change(clone, "reduction", "none")  # of a frozen dataclass too
        except (AttributeError, RuntimeError, TypeError) as error:
            raise LossError(
                f'a {type(self.given).__name__} cannot be copied with reduction="none" ({error}). '
                f"{ADVICE}"
            ) from error
        return clone

    def _kept_buffers(self) -> AbstractContextManager[None]:
        module = isinstance(self.given, nn.Module)
        return KeptModel(self.given).kept() if module else nullcontext()

    def reduce(self, losses: Tensor, targets: Any) -> Tensor:
        """Return the losses of positions, `[row, ...]`, reduced as the given loss reduces them.

        As in torch, a mean of cross-entropies is divided by the number of positions that are not
        ignored, or by the sum of their class weights; row weights do not change the divisor, or it
        would undo them. If all positions are ignored, the mean is 0, not NaN.
        """
        match self.reduction:
            case "mean":
                divisor = self._divisor(losses, targets)
                return losses.mean() if divisor is None else losses.sum() / divisor
            case "sum":
                return losses.sum()
            case "batchmean":
                return losses.sum() / len(losses)
            case None | "none":
                return losses
            case other:
                raise LossError(
                    f"the loss has reduction={other!r}, which is not known here, so rows cannot be "
                    'weighted. Use "mean", "sum", "batchmean" or "none"'
                )

    def _divisor(self, losses: Tensor, targets: Any) -> Tensor | None:
        """Return what a mean divides the sum by; None for the number of positions."""
        classes = isinstance(targets, Tensor) and not targets.is_floating_point()
        if not classes or targets.shape != losses.shape:
            return None
        ignored = self.ignored
        if targets.device.type == "cpu" and not (targets.numpy(force=True) == ignored).any():
            ignored = None  # so that the mean equals that of the given loss bit for bit
        if ignored is None and self.weights is None:
            return None
        kept = torch.ones_like(targets) > 0 if ignored is None else targets != ignored
        if self.weights is None:
            return kept.sum().clamp(min=1)
        divisor = (kept * self.weights.float()[targets.where(kept, 0).long()]).sum()
        return divisor.where(divisor > 0, 1).to(losses)


def average_examples(loss: UnreducedLoss, losses: Any, outputs: Any, targets: Any) -> Any:
    """Average losses over all axes but the first, without positions whose target is ignored."""
    if not isinstance(losses, Tensor) or losses.ndim < 2:
        return losses
    if loss.ignored is not None and isinstance(targets, Tensor) and targets.shape == losses.shape:
        kept = (targets != loss.ignored).flatten(1)
        return (losses.flatten(1) * kept).sum(1) / kept.sum(1).clamp(min=1)
    return losses.flatten(1).mean(1)


# Makes one loss per example of the losses of positions, `[row, ...]`, outputs and targets.
Average = Callable[[UnreducedLoss, Any, Any, Any], Any]


@dataclass(eq=False)
class ExampleLosses:
    """Losses of a batch of `(inputs, targets)`, or of what `outputs` returns for any batch.

    The loss function is called with `reduction="none"`, or unchanged if it has none. Its settings
    may change between batches. If it `marks`, rows without a target get `NO_TARGET`.
    """

    loss_fn: LossFunction
    outputs: OutputsOf | None = None
    average: Average = average_examples
    marks: bool = False
    _latest: UnreducedLoss | None = field(default=None, init=False, repr=False)

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        outputs, targets = (self.outputs or apply_to_pair)(model, batch)
        loss = self.unreduced
        losses = loss.of_positions(outputs, targets)
        each = isinstance(losses, Tensor) and losses.ndim == 1  # nearly always
        if not each or self.average is not average_examples:
            losses = self.average(loss, losses, outputs, targets)
        bare = lacks_target(losses, targets, loss.ignored) if self.marks else None
        if bare is not None:
            losses = losses.float() if losses.dtype is torch.float16 else losses
            losses = losses.masked_fill(bare, NO_TARGET)
        return losses

    @property
    def unreduced(self) -> UnreducedLoss:
        latest = self._latest
        if latest is not None:
            given = latest.given
            held = (
                [given.keywords.get(name) for name in SETTINGS]
                if isinstance(given, functools.partial)
                else [getattr(given, name, None) for name in SETTINGS]
            )
            if all(map(operator.is_, held, latest.settings)):
                return latest
        self._latest = latest = UnreducedLoss.of(self.loss_fn)
        return latest


def apply_to_pair(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    listed = isinstance(batch, (tuple, list))
    if not listed or len(batch) != 2:
        found = type(batch).__name__ + (f" of {len(batch)}" if listed else "")
        raise LossError(
            f"the batch is a {found}, not a pair (inputs, targets). Pass losses=callable(model, "
            "batch) -> one loss per example, or outputs=callable(model, batch) -> (outputs, "
            "targets)"
        )
    return model(batch[0]), batch[1]


def find_losses(
    loss_fn: LossFunction | None,
    losses: LossesOf | None,
    outputs: OutputsOf | None,
    *,
    average: Average = average_examples,
    marks: bool = True,
) -> LossesOf:
    if losses is not None:
        return losses
    if loss_fn is None:
        raise ConfigurationError(f"scoring needs a loss function, got None. {ADVICE}")
    return ExampleLosses(loss_fn, outputs, average, marks)


def find_outputs(losses: LossesOf | None, outputs: OutputsOf | None) -> OutputsOf | None:
    return outputs if outputs is not None or losses is not None else apply_to_pair


def warn_of_mixtures(batch: Any) -> None:
    if any(_is_mixed(leaf) for leaf in list_leaves(batch) if isinstance(leaf, Tensor)):
        warn(
            "the targets look mixed from two examples each (MixUp, CutMix), but the strategy files "
            "each loss under one example. Mix the batches that the loader yields, and use a "
            "strategy that scores candidates, such as selective_backprop"
        )


def _is_mixed(targets: Tensor) -> bool:
    """Return whether at most two of three or more classes stand out in each row, in some two."""
    if targets.layout is not torch.strided or targets.is_nested or not targets.is_floating_point():
        return False
    if targets.ndim != 2 or targets.shape[1] < 3 or not targets.shape[0]:
        return False
    values = targets.detach().float()
    peaks = (values > values.amin(1, keepdim=True) + SLACK / 100).sum(1)
    return bool(are_shares(values).all() & (peaks <= 2).all() & (peaks == 2).any())


def are_shares(values: Tensor) -> Bool[Tensor, " row"]:
    """Return which rows of `[row, class]` are distributions over classes."""
    return ((values.sum(1) - 1).abs() < SLACK) & (values >= 0).all(1)
