"""What a model thought of each example whenever it looked: how much it doubted the label."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_whole
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import RowIndices


class Look(NamedTuple):
    """What a model thought of some examples at one moment.

    Attributes:
        doubts: between the label and the likeliest other class alone, the probability of that
            class minus that of the label: from −1, sure of the label, to 1, sure of the other.
        predictions: the likeliest class.
        confidences: its probability.
    """

    doubts: Float32[Tensor, " row"]
    predictions: Int64[Tensor, " row"]
    confidences: Float32[Tensor, " row"]

    @property
    def known(self) -> Bool[Tensor, " row"]:
        """Which rows tell anything: of outputs that are not finite, the numbers are none."""
        return self.doubts.isfinite() & self.confidences.isfinite()


def look_at(outputs: Float[Tensor, "row class"], labels: Int64[Tensor, " row"]) -> Look:
    """Return what a model thought of examples, without waiting for their device.

    Args:
        outputs: logits; gradients are left alone.
        labels: class numbers from 0, on the same device.

    Raises:
        ConfigurationError: if these are no outputs and labels of a classification.
    """
    if outputs.ndim != 2 or outputs.shape[1] < 2 or labels.shape != outputs.shape[:1]:
        raise ConfigurationError(
            f"outputs of shape {tuple(outputs.shape)} and labels of shape {tuple(labels.shape)}: "
            "expected [row, class] with at least two classes, and [row]. For one logit z a row "
            "write torch.stack([torch.zeros_like(z), z], 1); for what is no classification collect "
            "losses, and give them to audit"
        )
    if labels.is_floating_point():
        raise ConfigurationError(
            f"labels of {labels.dtype}: class numbers are needed; of one-hot or mixed labels take "
            "labels.argmax(1)"
        )
    with torch.no_grad():
        logits, column = outputs.detach().float(), labels.long().unsqueeze(1)
        own = logits.gather(1, column).squeeze(1)
        other, likeliest = logits.scatter(1, column, -torch.inf).max(1)
        predictions = torch.where(other > own, likeliest, labels.long())
        confidences = torch.exp(torch.maximum(own, other) - logits.logsumexp(1))
        # (p - q) / (p + q) of two classes is that of their logits' difference alone.
        return Look(torch.tanh((other - own) / 2), predictions, confidences)


class Doubts:
    """Note, during training, how much a classifier doubts the label of each example.

    Call `note` with what the loop has computed anyway, as often as it comes up; no pass is made
    for it, and nothing waits for a GPU. Then `audit(doubts)` ranks the examples. The k-th look at
    an example weighs k times as much as the first, at which the model knew little. Takes 24 bytes
    an example, on the device of the outputs.

    Args:
        examples: examples in the data set.

    Raises:
        ConfigurationError: if there are none.

    Example:
        >>> import torch, selective_backprop as sb
        >>> doubts = sb.guide.Doubts(3)
        >>> outputs = torch.tensor([[4.0, 0.0], [0.0, 4.0], [0.0, 4.0]])
        >>> doubts.note(torch.arange(3), outputs, torch.tensor([0, 0, 1]))
        >>> sb.guide.audit(doubts).top(1 / 3).tolist()
        [1]
    """

    def __init__(self, examples: int) -> None:
        self.examples = int(check_whole("examples", examples))
        self._columns: dict[str, Tensor] = {}

    def note(
        self,
        indices: RowIndices,
        outputs: Float[Tensor, "row class"],
        labels: Int64[Tensor, " row"],
    ) -> None:
        """Note what the model thought of the rows of a batch.

        Of rows whose outputs are not finite, nothing is noted.

        Args:
            indices: of the rows in the data set, such as `selection.indices`, on any device. Rows
                of the same example in one batch weigh the same.
            outputs: logits of the rows.
            labels: their class numbers, from 0.

        Raises:
            ConfigurationError: if these are no outputs and labels of a classification, or not one
                index for each.
        """
        if indices.shape != labels.shape:
            raise ConfigurationError(
                f"{tuple(indices.shape)} indices for labels of shape {tuple(labels.shape)}: one "
                "index in the data set is needed for each row"
            )
        device = outputs.device
        # Towards the host, what does not block may be read before it is there.
        rows, labels = (each.to(device, non_blocking=outputs.is_cuda) for each in (indices, labels))
        look = look_at(outputs, labels)
        columns, known = self._on(device), look.known
        weights = (columns["looks"][rows] + 1.0) * known
        columns["total"].index_add_(0, rows, weights * look.doubts.where(known, 0.0))
        columns["weight"].index_add_(0, rows, weights)
        columns["looks"].index_add_(0, rows, known.int())
        columns["label"][rows] = labels.int()
        # To take the known rows alone, the host would have to wait for the device.
        for name, last in (("prediction", look.predictions), ("confidence", look.confidences)):
            column = columns[name]
            column[rows] = last.to(column.dtype).where(known, column[rows])

    def on_host(self) -> dict[str, Tensor]:
        """Return what was noted, one tensor `[example]` each on the CPU; waits for the device.

        Returns:
            `total`, the weighted sum of the doubts of all looks; `weight`, the sum of the weights;
            `looks`, how many there were; and of the last look `label`, `prediction` (−1 if there
            was none) and `confidence` (NaN if none).
        """
        columns = self._columns or _empty(self.examples)
        return {name: column.to("cpu", copy=True) for name, column in columns.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what was noted, to go on in another process."""
        return {"examples": self.examples, "columns": self.on_host()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`.

        Raises:
            ConfigurationError: if the state is of another data set's size, or damaged; what was
                noted then stays.
        """
        examples, columns = Saved(state).fields("examples", "columns")
        if examples.whole() != self.examples:
            raise ConfigurationError(
                f"the state is of a data set of {state['examples']} examples, this one has "
                f"{self.examples}"
            )
        empty = _empty(self.examples)
        self._columns = {
            name: column.tensor(like.dtype, shape=tuple(like.shape), nan=True).clone()
            for (name, like), column in zip(empty.items(), columns.fields(*empty), strict=True)
        }

    def _on(self, device: torch.device) -> dict[str, Tensor]:
        """Return the columns, which follow the outputs to their device."""
        columns = self._columns or _empty(self.examples)
        self._columns = {name: column.to(device) for name, column in columns.items()}
        return self._columns


def _empty(examples: int) -> dict[str, Tensor]:
    return {
        "total": torch.zeros(examples),
        "weight": torch.zeros(examples),
        "looks": torch.zeros(examples, dtype=torch.int32),
        "label": torch.full((examples,), -1, dtype=torch.int32),
        "prediction": torch.full((examples,), -1, dtype=torch.int32),
        "confidence": torch.full((examples,), torch.nan),
    }
