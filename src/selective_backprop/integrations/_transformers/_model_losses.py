"""The losses of a Transformers model, computed like the model's own loss but not averaged.

An element has one prediction and one loss, such as a token of a text or the label of an image. The
model returns the mean over all elements of a batch, but selection needs one loss per row. If a
batch is one packed row, selection needs one loss per document.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.auto import modeling_auto as auto_models

from selective_backprop import ConfigurationError, LossError
from selective_backprop.integrations._kit import NO_TARGET, check_losses

RowLosses: TypeAlias = Callable[[Any, Mapping[str, Any]], Tensor]
REGRESSION = "regression"
IGNORED = -100  # the label of a token that is not predicted
FUSED = "fused_lm_head"  # an input of models with TRL's fused head
LENGTHS = "selection_lengths"  # the batch key with the lengths of a packed row's documents


class Target(Enum):
    """The kind of a model's labels."""

    NEXT_TOKENS = auto()  # each predicted at the position before it
    TOKENS = auto()  # each predicted at its own position
    CLASSES = auto()  # one or several classes, or numbers, per example


LOSS_TYPES = {
    "ForCausalLM": Target.NEXT_TOKENS,
    "ForConditionalGeneration": Target.NEXT_TOKENS,
    "ForMaskedLM": Target.TOKENS,
    "ForTokenClassification": Target.TOKENS,
    "ForSequenceClassification": Target.CLASSES,
    "ForImageClassification": Target.CLASSES,
    "ForVideoClassification": Target.CLASSES,
    "ForAudioClassification": Target.CLASSES,
}


@dataclass(frozen=True)
class ElementLosses:
    """The losses of a batch, element by element."""

    losses: Tensor  # [row, element]; 0 where nothing is predicted, as at padding
    counted: Tensor  # whether something is predicted, [row, element]
    lengths: Tensor | None = None  # of a packed row's documents, in tokens

    def per_row(self, bare: float = 0.0) -> Tensor:
        """Return the mean loss of each row's counted elements; `bare` if no element counts."""
        if self.lengths is None:
            counts = self.counted.sum(1)
            return (self.losses.sum(1) / counts.clamp(min=1)).where(counts > 0, bare)
        sums = self.losses.new_zeros(2, len(self.lengths))
        elements = torch.stack([self.losses[0], self.counted[0].to(self.losses.dtype)])
        sums.index_add_(1, self._documents(self.lengths), elements)
        return (sums[0] / sums[1].clamp(min=1)).where(sums[1] > 0, bare)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the sum of the losses, each times the weight of its row."""
        if self.lengths is None:
            return (weights.unsqueeze(1) * self.losses).sum()
        return (weights[self._documents(self.lengths)] * self.losses[0]).sum()

    def _documents(self, lengths: Tensor) -> Tensor:
        """Return the document that each element belongs to, without waiting for the device.

        If tokens predict the next tokens, this is the document of the predicting token. As nothing
        predicts a document's first token, both are in the same document at every counted element.
        """
        places = torch.arange(self.losses.shape[1], device=lengths.device)
        found = torch.searchsorted(lengths.cumsum(0), places, right=True)
        return found.clamp(max=len(lengths) - 1)  # the last document gets the padding after it


@dataclass(frozen=True)
class ModelLosses:
    """The loss of a Transformers model, before it is averaged."""

    target: Target
    problem: str | None = None  # of a classifier; None if the type of the labels decides it
    smoothing: float = 0.0
    fused: bool = False  # TRL's fused head returns only labels' log-probabilities
    # Losses then say how sure the model is: of yes-or-no labels, by how much each loss exceeds its
    # lowest value, summed over the labels.
    confidence: bool = False

    @classmethod
    def of_model(cls, model: Any, **options: Any) -> "ModelLosses":
        """Return the losses of a model, by its type and configuration."""
        target = find_target(model)
        return cls(target, _problem(model) if target is Target.CLASSES else None, **options)

    def __call__(self, model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        """Return one loss per row of a batch, by a forward pass; `NO_TARGET` for one without."""
        return self.of(self.forward(model, batch), batch).per_row(NO_TARGET)

    def forward(self, model: nn.Module, batch: Mapping[str, Any], *, compare: bool = False) -> Any:
        """Return the model's outputs. Labels are passed only if the model's inputs need them.

        If `compare`, labels are passed too, and the model's own loss must equal this one.
        """
        inputs = model_inputs(batch)
        if self.fused and not self.smoothing:
            return model(**inputs, fused_lm_head=True)
        compare = compare and not self.smoothing  # with smoothing, the Trainer computes the loss
        if not compare and not _makes_inputs_of_labels(model):
            inputs.pop("labels", None)
        outputs = model(**inputs)
        if compare:
            self._compare(outputs, batch, model)
        return outputs

    def _compare(self, outputs: Any, batch: Mapping[str, Any], model: nn.Module) -> None:
        elements, own = self.of(outputs, batch), outputs.get("loss")
        found = elements.losses.sum() / elements.counted.sum()
        apart = max(1e-3, 4 * torch.finfo(_logits(outputs).dtype).eps)  # half precision rounds
        if own is not None and (own - found).abs() > apart * found.abs():
            raise LossError(
                f"{type(model).__name__} returned a loss of {own.item():.4g}, but its logits and "
                f"labels have a mean loss of {found.item():.4g}, so it computes another loss than "
                "usual, which cannot be weighted by row. Pass losses=callable(outputs, batch) -> "
                "one loss per row, or use a strategy without weights."
            )

    def outputs(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return logits and classes, for scorers that need predictions."""
        return self.predictions(self.forward(model, batch), batch)

    def predictions(self, outputs: Any, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return _logits(outputs), _labels(batch)

    def of(self, outputs: Any, batch: Mapping[str, Any]) -> ElementLosses:
        """Return the losses of a forward pass's outputs, one per element."""
        lengths = batch.get(LENGTHS)
        if isinstance(outputs, Mapping) and outputs.get("log_probs") is not None:
            return ElementLosses(-outputs["log_probs"].float(), outputs["label_mask"], lengths)
        logits, labels = _logits(outputs), _labels(batch).to(_logits(outputs).device)
        if self.target is Target.CLASSES:
            return self._of_classes(logits, labels)
        if labels.ndim != 2 or logits.shape[:2] != labels.shape:
            raise LossError(
                f"logits {list(logits.shape)} and labels {list(labels.shape)}: one label per "
                "position is needed. Pass losses=callable(outputs, batch) -> one loss per row."
            )
        if self.target is Target.NEXT_TOKENS:
            logits, labels = logits[:, :-1], labels[:, 1:]
        losses = self._entropy(logits.flatten(0, 1), labels.flatten()).view(labels.shape)
        return ElementLosses(losses, labels != IGNORED, lengths)

    def rows(self, outputs: Any, batch: Mapping[str, Any]) -> Tensor:
        """Return one loss per row of a forward pass's outputs."""
        return self.of(outputs, batch).per_row()

    def weigh(self, outputs: Any, batch: Mapping[str, Any], weights: Tensor, items: Any) -> Tensor:
        """Return the loss of a batch whose rows have weights.

        As in the model's own loss, the sum of the losses is divided by the number of elements in
        the update, which is `items`. If `items` is None, it is divided by the number in this batch.
        Dividing by the sum of the weights would bias the gradient.
        """
        elements = self.of(outputs, batch)
        total = elements.weighted_sum(weights)
        return total / (elements.counted.sum() if items is None else items)

    def _of_classes(self, logits: Tensor, labels: Tensor) -> ElementLosses:
        single = self.problem == "single_label_classification"
        logits = logits.float().reshape(len(labels), -1)
        if single or (self.problem is None and labels.dtype in (torch.long, torch.int)):
            losses = self._entropy(logits, labels.view(-1)).unsqueeze(1)
            return ElementLosses(losses, (labels.view(-1) != IGNORED).unsqueeze(1))
        targets = labels.float().reshape(logits.shape)
        if self.problem == REGRESSION:
            losses = functional.mse_loss(logits, targets, reduction="none")
        else:
            losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
            if self.confidence:
                lowest = -torch.xlogy(targets, targets) - torch.xlogy(1 - targets, 1 - targets)
                losses = (losses - lowest).clamp(min=0.0).sum(1, keepdim=True)
        return ElementLosses(losses, torch.ones_like(losses, dtype=torch.bool))

    def _entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        options: dict[str, Any] = {"ignore_index": IGNORED, "label_smoothing": self.smoothing}
        return functional.cross_entropy(logits.float(), labels, reduction="none", **options)


@dataclass(frozen=True)
class OwnLosses:
    """The user's own losses, one per row; `function` gets a model's outputs and their batch."""

    function: RowLosses
    # Of the model's `forward`. Keys of a batch that it does not take are for the function alone.
    parameters: Mapping[str, inspect.Parameter]

    def __call__(self, model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        return self.rows(self.forward(model, batch), batch)

    def forward(self, model: nn.Module, batch: Mapping[str, Any], **_: Any) -> Any:
        inputs = model_inputs(batch)
        if not any(each.kind is each.VAR_KEYWORD for each in self.parameters.values()):
            inputs = {key: value for key, value in inputs.items() if key in self.parameters}
        return model(**inputs, **({FUSED: True} if FUSED in self.parameters else {}))

    def rows(self, outputs: Any, batch: Mapping[str, Any]) -> Tensor:
        return check_losses(self.function(outputs, batch), None)

    def weigh(self, outputs: Any, batch: Mapping[str, Any], weights: Tensor, items: Any) -> Tensor:
        """Return the mean of the rows' losses, each multiplied by its weight."""
        return (weights * self.rows(outputs, batch)).mean()


def model_inputs(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the batch without the key that selection added for packed rows."""
    return {key: value for key, value in batch.items() if key != LENGTHS}


def model_parameters(model: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a model's `forward`. Call this before the model is prepared."""
    return inspect.signature(_without_peft(model).forward, follow_wrapped=False).parameters


def _without_peft(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def find_target(model: Any) -> Target:
    """Return the kind of a model's labels; refuse a model whose loss is unknown."""
    inside = _without_peft(model)
    name, kind = type(inside).__name__, getattr(inside, "loss_type", None)
    target = LOSS_TYPES.get(kind) if isinstance(kind, str) else None
    if name in auto_models.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        target = Target.NEXT_TOKENS
    if name in auto_models.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values():
        target = Target.TOKENS
    if target is Target.NEXT_TOKENS and _makes_inputs_of_labels(inside):
        target = Target.TOKENS
    if target is None:
        raise ConfigurationError(
            f"this adapter does not know how {name} computes its loss, but selection needs a loss "
            "for each row. Pass losses=callable(outputs, batch) -> one loss per row."
        )
    return target


def loss_of_numbers(model: Any) -> str | None:
    """Return the name of the loss of a model that predicts numbers; None for other models."""
    named = LOSS_TYPES.get(getattr(model, "loss_type", None)) is Target.CLASSES
    return "MSELoss, of a regression head," if named and _problem(model) == REGRESSION else None


def _problem(model: Any) -> str | None:
    """Return the problem type of a model; None if the type of the labels decides it."""
    config = model.config
    return config.problem_type or (REGRESSION if config.num_labels == 1 else None)


def _makes_inputs_of_labels(model: Any) -> bool:
    inside = getattr(model, "module", model)  # DDP's wrapper has no config
    return bool(getattr(getattr(inside, "config", None), "is_encoder_decoder", False))


def _logits(outputs: Any) -> Tensor:
    found = outputs if isinstance(outputs, Mapping) else {}
    return _part(found, "logits", f"the model returned {type(outputs).__name__} without logits.")


def _labels(batch: Mapping[str, Any]) -> Tensor:
    given = ", ".join(map(repr, batch))
    return _part(
        batch, "labels", f"the batch has no 'labels', only {given}. Let the collator help."
    )


def _part(of: Mapping[str, Any], name: str, missing: str) -> Tensor:
    if isinstance(found := of.get(name), Tensor):
        return found
    raise LossError(f"{missing} Or pass losses=callable(outputs, batch) -> one loss per row.")
