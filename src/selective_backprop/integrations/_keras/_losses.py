"""One loss per example, from the loss that a Keras model was compiled with."""

import copy
import functools
import inspect
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop.integrations._keras._backend import keras
from selective_backprop.strategies._auto.entropies import check_entropies

CROSS_ENTROPIES = {  # class and function names, in lower case without underscores
    "binarycrossentropy": "binary",
    "categoricalcrossentropy": "categorical",
    "sparsecategoricalcrossentropy": "sparse",
}
INSTEAD = "Pass losses=callable(model, batch) -> one loss per example."


def apply(model: Any, inputs: Any) -> Any:
    """Return the model's outputs, in training or inference mode as its `training` flag says."""
    if _takes_mode(type(model)):
        return model(inputs, training=model.training)
    return model(inputs)


@functools.cache
def _takes_mode(kind: type) -> bool:
    if not issubclass(kind, keras.layers.Layer):
        return False  # another torch module, such as a proxy
    parameters = inspect.signature(kind.call).parameters.values()
    return any(one.name == "training" or one.kind is one.VAR_KEYWORD for one in parameters)


class CompiledLoss:
    """The loss of a compiled model, for each example.

    If an example has several positions, its loss is the mean over them. Positions that Keras masks
    and positions of class `ignore_class` are left out. The sample weight multiplies the loss.

    Attributes:
        axes: number of axes that the latest losses had before the mean over positions.
        smoothing: the label smoothing of the loss, in [0, 1].

    Raises:
        ConfigurationError: if the model has no single loss that gives one number per example.
    """

    def __init__(self, model: Any) -> None:
        found = _find_loss(model)
        self.axes = 1
        self.smoothing = float(getattr(found, "label_smoothing", 0.0) or 0.0)
        self._kind, self._axis = _kind(found), getattr(found, "axis", -1)
        self._ignored = getattr(found, "ignore_class", None)
        self._gives_logits = _gives_logits(found)
        self._checked = False  # whether the first losses were found to be cross-entropies
        if isinstance(found, keras.losses.Loss):
            self._loss = copy.copy(found)
            self._loss.reduction = "none"
        else:
            self._loss = _Function(found)

    def __call__(self, model: Any, batch: Any) -> Tensor:
        """Return the losses `[candidate]` of a batch `(inputs, targets)`, maybe with weights."""
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
        return self.of(apply(model, inputs), targets, weights)

    def excess(self, model: Any, batch: Any) -> Tensor:
        """Return how far a batch's losses exceed the lowest losses that the targets allow."""
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(batch)
        return self.of(apply(model, inputs), targets, None, excess=True)

    @property
    def no_cross_entropy(self) -> str | None:
        """The name of the loss if it is one of Keras's but no cross-entropy, else None."""
        return self._kind.name if self._kind is not None and not self._kind.entropy else None

    def of(
        self, outputs: Any, targets: Any, weights: Tensor | None, *, excess: bool = False
    ) -> Tensor:
        """Return the losses `[candidate]` of outputs that were computed before.

        With `excess`, return how far they exceed the lowest losses that label smoothing or soft
        targets allow. An example's losses of yes-or-no labels are then summed, not averaged as in
        Keras. At the first batch, a loss that cannot be a cross-entropy is refused.
        """
        outputs, targets = the_only(outputs, "output"), self.labels(targets)
        losses = self._loss(targets, outputs)  # 0 at masked positions
        if excess and losses.ndim:
            if not self._checked:
                self._checked = True
                rows = losses.flatten(1).mean(1) if losses.ndim > 1 else losses
                check_entropies(rows, targets, own=self._kind is None)
            losses = (losses - self._lowest(outputs, targets)).clamp(min=0.0)
            if self._kind is not None and self._kind.entropy == "binary":
                losses = losses * outputs.shape[self._axis]
        self.axes = losses.ndim
        if losses.ndim == 0:
            return losses  # the caller refuses a single loss, with advice
        mask = self._mask(outputs, targets, losses)
        if weights is not None:
            losses = losses * spread(weights.to(losses.device), losses.ndim)
        if losses.ndim == 1:
            return losses
        if mask is None:
            return losses.flatten(1).mean(1)
        return losses.flatten(1).sum(1) / mask.flatten(1).sum(1).clamp(min=1)

    def labels(self, targets: Any) -> Tensor:
        """Return a batch's targets, with class numbers as integers; Keras allows any type."""
        targets = the_only(targets, "target")
        sparse = self._kind is not None and self._kind.entropy == "sparse"
        return targets.long() if sparse else targets

    def classes(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """Return a batch's logits `[candidate, class]` and targets, to compare the two."""
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(batch)
        return self._class_scores(apply(model, inputs), targets)

    def predictions(self, outputs: Any, targets: Any) -> tuple[Tensor, Tensor] | None:
        """Return logits `[candidate, class]` and class indices; None if the loss has no classes."""
        if self._kind is None or self._kind.entropy not in ("sparse", "categorical"):
            return None
        logits, targets = self._class_scores(outputs, targets)
        if self._kind.entropy == "sparse":
            return logits, targets.long()
        # One-hot targets. In a mixed target no single class is right.
        most, classes = targets.max(-1)
        return logits, torch.where(most == 1, classes, -1)

    def _class_scores(self, outputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
        outputs, targets = the_only(outputs, "output"), the_only(targets, "target")
        if not self._gives_logits:  # the logarithms of probabilities are logits
            outputs = outputs.clamp(min=torch.finfo(outputs.dtype).tiny).log()
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets.squeeze(1)
        return outputs, targets.to(outputs.device)

    @property
    def has_classes(self) -> bool:
        """Whether outputs are known to be class scores, so that `classes` can be called."""
        return self._gives_logits is not None

    def _lowest(self, outputs: Tensor, targets: Tensor) -> Tensor | float:
        """Return the entropies of the targets: the lowest losses that they allow."""
        if self._kind is None or self._kind.entropy not in ("binary", "categorical"):
            return 0.0
        targets = targets.to(outputs).reshape(outputs.shape)
        if self._kind.entropy == "binary":
            some = targets * (1.0 - self.smoothing) + 0.5 * self.smoothing
            return -(torch.xlogy(some, some) + torch.xlogy(1 - some, 1 - some)).mean(self._axis)
        each = self.smoothing / outputs.shape[self._axis]
        some = targets * (1.0 - self.smoothing) + each
        return -torch.xlogy(some, some).sum(self._axis)

    def _mask(self, outputs: Tensor, targets: Tensor, losses: Tensor) -> Tensor | None:
        """Return which positions count, in the losses' shape; None if all do."""
        mask = getattr(outputs, "_keras_mask", None)  # Keras reads the same attribute
        mask = mask if mask is None or mask.shape == losses.shape else None
        if self._ignored is not None and targets.shape == losses.shape:
            counted = targets.to(losses.device) != self._ignored
            mask = counted if mask is None else mask & counted
        return mask


class _Kind(NamedTuple):
    """One of Keras's losses."""

    name: str
    entropy: str | None  # "binary", "categorical", "sparse"; None if it is no cross-entropy


def _kind(loss: Any) -> _Kind | None:
    """Return what is known about a compiled loss; None for a loss of the user's own."""
    of_keras = type(loss) if isinstance(loss, keras.losses.Loss) else loss
    name = getattr(of_keras, "__name__", "")
    if getattr(keras.losses, name, None) is not of_keras:
        return None
    return _Kind(name, CROSS_ENTROPIES.get(name.lower().replace("_", "")))


class _Function(keras.losses.Loss):
    """A loss function `(y_true, y_pred)`, called as Keras calls it."""

    def __init__(self, function: Any) -> None:
        super().__init__(reduction="none")
        self._function = function

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Return the function's losses, after matching a last axis of length 1 as Keras does."""
        if y_true.ndim == y_pred.ndim + 1 and y_true.shape[-1] == 1:
            y_true, y_pred = _level(y_true, y_pred)
        elif y_pred.ndim == y_true.ndim + 1 and y_pred.shape[-1] == 1:
            y_pred, y_true = _level(y_pred, y_true)
        return self._function(y_true, y_pred)


def _level(longer: Tensor, shorter: Tensor) -> tuple[Tensor, Tensor]:
    if shorter.ndim == 1:
        return longer, shorter.unsqueeze(-1)
    return longer.squeeze(-1), shorter


def spread(weights: Tensor, axes: int) -> Tensor:
    """Return weights with as many axes as the losses, so that each weight multiplies its row."""
    if weights.ndim == 2 and weights.shape[1] == 1 and axes == 1:
        return weights.squeeze(1)
    return weights.reshape(*weights.shape, *(1 for _ in range(axes - weights.ndim)))


def the_only(values: Any, what: str) -> Any:
    """Return the only tensor of a structure.

    Raises:
        ConfigurationError: if there are several.
    """
    leaves = keras.tree.flatten(values)
    if len(leaves) != 1:
        raise ConfigurationError(
            f"the model has {len(leaves)} {what}s, so an example's loss is not defined. {INSTEAD}"
        )
    return leaves[0]


def _find_loss(model: Any) -> Any:
    """Return the compiled loss as an object of Keras or a function."""
    for name in ("compute_loss", "train_step"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise ConfigurationError(
                f"{type(model).__name__}'s own {name} gives no loss per example. {INSTEAD}"
            )
    losses = [loss for loss in keras.tree.flatten(model.loss) if loss is not None]
    if len(losses) != 1:
        found = f"{len(losses)} losses" if losses else "no loss"
        raise ConfigurationError(
            f"the model was compiled with {found}, but one is needed: compile(loss=...). {INSTEAD}"
        )
    if losses[0] in ("ce", "crossentropy"):
        raise ConfigurationError(
            f"loss={losses[0]!r} can mean three losses. Name one, such as "
            "'sparse_categorical_crossentropy'"
        )
    return keras.losses.get(losses[0])


def _gives_logits(loss: Any) -> bool | None:
    """Return whether a classification loss takes logits; None if it is another loss."""
    known = keras.losses
    if loss in (known.categorical_crossentropy, known.sparse_categorical_crossentropy):
        return False
    if isinstance(loss, (known.CategoricalCrossentropy, known.SparseCategoricalCrossentropy)):
        return loss.from_logits
    return None
