"""Note how much a model doubts each label, from outputs that training computes anyway."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._batches.structure import move_tensor
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance, check_whole
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Bool, Float, Float32, Int64, RowIndices
from selective_backprop._pipeline.nonfinite import LateChecks

# What `Doubts` holds of each example: the type, and what stands there before the first look.
COLUMNS: dict[str, tuple[torch.dtype, float]] = {
    "total": (torch.float32, 0),  # weighted sum of its doubts
    "weight": (torch.float32, 0),  # sum of the weights
    "looks": (torch.int32, 0),
    "label": (torch.int32, -1),  # this and the rest are of the last look
    "prediction": (torch.int32, -1),
    "confidence": (torch.float32, torch.nan),
}


class Look(NamedTuple):
    """A model's doubts about the labels of some rows, and its predictions, at one moment.

    Attributes:
        doubts: from −1 (sure of the label) to 1 (sure of another class), as `audit` defines them.
        predictions: the likeliest class of each row.
        confidences: the probability of the predicted class, in [0, 1].
    """

    doubts: Float32[Tensor, " row"]
    predictions: Int64[Tensor, " row"]
    confidences: Float32[Tensor, " row"]

    @property
    def known(self) -> Bool[Tensor, " row"]:
        """True for each row with a label and finite outputs; other doubts mean nothing."""
        return self.doubts.isfinite() & self.confidences.isfinite()


def look_at(outputs: Float[Tensor, "row class"], labels: Int64[Tensor, " row"]) -> Look:
    """Return a model's predictions and its doubts about labels, without waiting for the GPU.

    Args:
        outputs: logits; they are read without gradients.
        labels: class numbers from 0, on the outputs' device; others, such as -100, are no label.
    """
    check_instance("outputs", outputs, Tensor, "model(inputs)")
    check_instance("labels", labels, Tensor, "targets")
    if outputs.ndim != 2 or outputs.shape[1] < 2 or labels.shape != outputs.shape[:1]:
        raise ConfigurationError(
            f"outputs of shape {tuple(outputs.shape)} and labels of shape {tuple(labels.shape)}: "
            "expected [row, class] with at least two classes, and [row]. For one logit z per row "
            "write torch.stack([torch.zeros_like(z), z], 1). For tasks other than classification, "
            "collect losses and give them to audit"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise ConfigurationError(
            f"labels of {labels.dtype}: class numbers are needed. For one-hot or mixed labels "
            "write labels.argmax(1)"
        )
    with torch.no_grad():
        logits, labels = outputs.float(), labels.long()
        labelled = (labels >= 0) & (labels < logits.shape[1])
        labels = labels.where(labelled, 0)
        own = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
        other, likeliest = logits.scatter(1, labels.unsqueeze(1), -torch.inf).max(1)
        predictions = torch.where(other > own, likeliest, labels)
        confidences = torch.exp(torch.maximum(own, other) - logits.logsumexp(1))
        # For the probabilities p and q of two classes, (p - q) / (p + q) depends only on the
        # difference d of their logits: it is tanh(d / 2).
        doubts = torch.tanh((other - own) / 2).where(labelled, torch.nan)
        return Look(doubts, predictions, confidences)


class Doubts:
    """Note, during training, how much a classifier doubts the label of each example.

    At each batch, call `note` with the outputs that your loop computes anyway. It does not wait for
    the GPU. After training, `audit(doubts)` ranks the examples. An example takes 24 bytes.

    Args:
        examples: number of examples in the data set, at least 1.
    """

    def __init__(self, examples: int) -> None:
        self.examples = int(check_whole("examples", examples))
        self._late = LateChecks()
        with torch.inference_mode(False):  # or training could not note into them later
            self._columns = {
                name: torch.full((self.examples,), unknown, dtype=kind)
                for name, (kind, unknown) in COLUMNS.items()
            }

    def note(
        self,
        indices: RowIndices,
        outputs: Float[Tensor, "row class"],
        labels: Int64[Tensor, " row"],
    ) -> None:
        """Note how much the model doubts each label of a batch.

        Rows with a negative label, such as -100, or with outputs that are not finite are skipped.

        Args:
            indices: the rows' indices in the data set, such as `selection.indices`, on any device.
                If a batch holds an example several times, `audit` gives these rows equal weights.
            outputs: logits of the rows.
            labels: the rows' class numbers, from 0.

        Raises:
            ConfigurationError: if one of these is of another kind; on a GPU, perhaps a call later.
        """
        check_instance("indices", indices, Tensor, "selection.indices")
        check_instance("outputs", outputs, Tensor, "model(inputs)")
        check_instance("labels", labels, Tensor, "targets")
        whole = not (indices.is_floating_point() or indices.is_complex())
        if indices.shape != labels.shape or not whole or indices.dtype is torch.bool:
            raise ConfigurationError(
                f"indices of {indices.dtype} and shape {tuple(indices.shape)} for labels of shape "
                f"{tuple(labels.shape)}: for each row, one index in the data set is needed, and "
                "indices are whole numbers"
            )
        device = outputs.device
        rows, labels = (move_tensor(each, device) for each in (indices, labels))
        look, rows, labels = look_at(outputs, labels), rows.long(), labels.long()
        classes = outputs.shape[1]
        fit = (rows >= 0) & (rows < self.examples) & (labels < classes)
        self._late.add(
            fit.all(),
            lambda: ConfigurationError(
                f"indices from {indices.min()} to {indices.max()} and labels up to {labels.max()}, "
                f"but Doubts({self.examples}) and outputs of {classes} classes: indices from 0 to "
                f"{self.examples - 1} and class numbers from 0 to {classes - 1} are needed. If a "
                "row has no label, give it the label -100"
            ),
        )
        rows = rows.clamp(0, self.examples - 1)  # or a GPU would fail before the check is read
        with torch.inference_mode(False):
            self._columns = {name: column.to(device) for name, column in self._columns.items()}
        columns, known = self._columns, look.known & fit
        weights = (columns["looks"][rows] + 1).float() * known
        columns["total"].index_add_(0, rows, weights * look.doubts.where(known, 0.0))
        columns["weight"].index_add_(0, rows, weights)
        columns["looks"].index_add_(0, rows, known.int())
        # Indexing by a mask would make the host wait for the device; `where` does not.
        last = {"label": labels, "prediction": look.predictions, "confidence": look.confidences}
        for name, each in last.items():
            column = columns[name]
            column[rows] = each.to(column.dtype).where(known, column[rows])

    def on_host(self) -> dict[str, Tensor]:
        """Wait for the device, and return what was noted as tensors `[example]` on the CPU."""
        self._late.wait()
        return {name: column.to("cpu", copy=True) for name, column in self._columns.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what was noted, to continue in another process."""
        return self.on_host()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; refuse a state of a data set of another size."""
        saved = zip(COLUMNS.items(), Saved(state).fields(*COLUMNS), strict=True)
        self._columns = {
            name: column.tensor(kind, shape=(self.examples,), nan=True).clone()
            for (name, (kind, _)), column in saved
        }
