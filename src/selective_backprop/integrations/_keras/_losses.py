"""One loss per example, from the loss that a Keras model was compiled with."""

import copy
import inspect
from typing import Any

import torch
from torch import Tensor

from selective_backprop import ConfigurationError
from selective_backprop.integrations._keras import keras
from selective_backprop.integrations._kit import check_entropies

CROSS_ENTROPIES = ("binary", "categorical", "sparsecategorical")
INSTEAD = "losses=callable(model, batch) -> one loss per example"


def apply(model: Any, inputs: Any) -> Any:
    """Return the model's outputs in inference mode."""
    layer = isinstance(model, keras.layers.Layer)  # no other torch module, such as a proxy
    takes_mode = layer and "training" in inspect.signature(model.call).parameters
    return model(inputs, training=False) if takes_mode else model(inputs)


class CompiledLoss:
    """The loss of a compiled model, for each example.

    If an example has several positions, its loss is the mean over them. Positions that Keras masks
    and positions of class `ignore_class` are left out. The sample weight multiplies the loss.
    """

    def __init__(self, model: Any) -> None:
        losses = [loss for loss in keras.tree.flatten(model.loss) if loss is not None]
        own = own_step(model)
        what = own or f"compile(loss={model.loss!r:.60})"
        if own or len(losses) != 1 or losses[0] in ("ce", "crossentropy"):
            raise ConfigurationError(
                f"{what} gives no single loss per example: compile the model with one loss by its "
                f"full name, such as 'sparse_categorical_crossentropy', or pass {INSTEAD}"
            )
        found = keras.losses.get(losses[0])
        named = type(found) if isinstance(found, keras.losses.Loss) else found
        name = getattr(named, "__name__", "")
        self._own = getattr(keras.losses, name, None) is not named  # written by the user
        kind = name.lower().replace("_", "").removesuffix("crossentropy")
        self._entropy = kind if kind in CROSS_ENTROPIES and not self._own else None
        # The name of the loss if it is one of Keras's but no cross-entropy.
        self.no_cross_entropy = name if not self._own and self._entropy is None else None
        self.has_classes = self._entropy in ("sparsecategorical", "categorical")
        self.axes = 1  # of the latest losses, before the mean over positions
        self.smoothing = float(getattr(found, "label_smoothing", 0.0) or 0.0)
        self._gives_logits = getattr(found, "from_logits", False)
        self._axis, self._ignored = getattr(found, "axis", -1), getattr(found, "ignore_class", None)
        self._checked = False  # whether the first losses were found to be cross-entropies
        wrap: Any = keras.losses.MeanSquaredError.__base__  # in which Keras wraps functions
        self._loss = wrap(found) if named is found else copy.copy(found)
        self._loss.reduction = "none"

    def __call__(self, model: Any, batch: Any, *, excess: bool = False) -> Tensor:
        inputs, targets, weights = keras.utils.unpack_x_y_sample_weight(batch)
        return self.of(apply(model, inputs), targets, weights, excess=excess)

    def of(
        self, outputs: Any, targets: Any, weights: Tensor | None, *, excess: bool = False
    ) -> Tensor:
        """Return the losses `[candidate]` of outputs that were computed before.

        With `excess`, return how far they exceed the lowest losses that label smoothing or soft
        targets allow, without weights. An example's losses of yes-or-no labels are then summed, not
        averaged as in Keras. At the first batch, a loss that is no cross-entropy is refused.
        """
        outputs, targets = the_only(outputs, "output"), self.labels(targets)
        losses = self._loss(targets, outputs)  # 0 at masked positions
        self.axes = losses.ndim
        if losses.ndim == 0:
            return losses  # the caller refuses a single loss, with advice
        if excess:
            if not self._checked:
                self._checked = True
                check_entropies(losses.reshape(len(losses), -1).mean(1), targets, own=self._own)
            losses = (losses - self._lowest(outputs, targets)).clamp(min=0.0)
            if self._entropy == "binary":
                losses = losses * outputs.shape[self._axis]
        elif weights is not None:
            losses = losses * spread(weights.to(losses.device), losses.ndim)
        if losses.ndim == 1:
            return losses
        counted = torch.ones_like(losses, dtype=torch.bool)
        mask = getattr(outputs, "_keras_mask", None)  # Keras reads the same attribute
        if mask is not None and mask.shape == losses.shape:
            counted = counted & mask
        if self._ignored is not None and targets.shape == losses.shape:
            counted = counted & (targets.to(losses.device) != self._ignored)
        return losses.flatten(1).sum(1) / counted.flatten(1).sum(1).clamp(min=1)

    def labels(self, targets: Any) -> Tensor:
        """Return a batch's targets, with class numbers as integers; Keras allows any type."""
        targets = the_only(targets, "target")
        return targets.long() if self._entropy == "sparsecategorical" else targets

    def classes(self, model: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """Return a batch's logits `[candidate, class]` and targets, to compare the two."""
        inputs, targets, _ = keras.utils.unpack_x_y_sample_weight(batch)
        return self._class_scores(apply(model, inputs), targets)

    def predictions(self, outputs: Any, targets: Any) -> tuple[Tensor, Tensor] | None:
        """Return logits `[candidate, class]` and class indices; None if the loss has no classes."""
        if not self.has_classes:
            return None
        logits, targets = self._class_scores(outputs, targets)
        if self._entropy == "sparsecategorical":
            return logits, targets
        most, classes = targets.max(-1)  # in a mixed target no single class is right
        return logits, torch.where(most == 1, classes, -1)

    def _class_scores(self, outputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
        outputs, targets = the_only(outputs, "output"), self.labels(targets)
        if not self._gives_logits:  # the logarithms of probabilities are logits
            outputs = outputs.clamp(min=torch.finfo(outputs.dtype).tiny).log()
        if targets.ndim == 2 and targets.shape[1] == 1:
            targets = targets.squeeze(1)
        return outputs, targets.to(outputs.device)

    def _lowest(self, outputs: Tensor, targets: Tensor) -> Tensor | float:
        """Return the entropies of the targets: the lowest losses that they allow."""
        if self._entropy not in ("binary", "categorical"):
            return 0.0
        targets = targets.to(outputs).reshape(outputs.shape) * (1.0 - self.smoothing)
        if self._entropy == "binary":
            some = targets + 0.5 * self.smoothing
            return -(torch.xlogy(some, some) + torch.xlogy(1 - some, 1 - some)).mean(self._axis)
        some = targets + self.smoothing / outputs.shape[self._axis]
        return -torch.xlogy(some, some).sum(self._axis)


def spread(weights: Tensor, axes: int) -> Tensor:
    """Return weights with as many axes as the losses, so that each weight multiplies its row."""
    if weights.ndim == 2 and weights.shape[1] == 1 and axes == 1:
        return weights.squeeze(1)
    return weights.reshape(*weights.shape, *(1 for _ in range(axes - weights.ndim)))


def the_only(values: Any, what: str) -> Any:
    """Return the only tensor of a structure; refuse several."""
    leaves = keras.tree.flatten(values)
    if len(leaves) != 1:
        raise ConfigurationError(
            f"the model has {len(leaves)} {what}s, so an example's loss is unknown: pass {INSTEAD}"
        )
    return leaves[0]


def own_step(model: Any) -> str | None:
    """Return the method by which a model's class computes its training loss itself, if any."""
    names = ("compute_loss", "train_step")
    own = (name for name in names if getattr(type(model), name) is not getattr(keras.Model, name))
    return next((f"{type(model).__name__}.{name}" for name in own), None)
