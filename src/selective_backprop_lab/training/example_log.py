"""Follow every training example of a run, from the passes that training makes anyway.

Passes are only stored when they happen. They are counted later, many batches at once, while the
run's clock is stopped. So the run takes hardly longer, and the host seldom waits for a GPU.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData, thumbnails
from selective_backprop_lab.records.example_history import (
    DOUBTED,
    EXTREMES,
    ExampleHistory,
    extremes,
)
from selective_backprop_lab.shapes import Float, Float32, Int64

_HELD = 2**20  # how many logits may wait to be counted
# Columns of `ExampleHistory`, and sums for its means, with the first value of each.
_COLUMNS = {
    "prediction": np.int64(-1),
    "confidence": np.float32(np.nan),
    "selected": np.int32(0),
    "scored": np.int32(0),
    "loss_last": np.float32(np.nan),
    "looks": np.int32(0),
    "loss_sum": np.float64(0.0),
    "doubt_sum": np.float64(0.0),
}


class _Pass(NamedTuple):
    trained: bool
    indices: Tensor
    logits: Tensor | None  # None if another model scored


class ExampleLog:
    """Store what the passes of a run show of each training example with the given labels."""

    def __init__(self, labels: Int64[Tensor, " example"]) -> None:
        self._labels = labels.cpu()
        self.columns = {name: np.full(len(labels), first) for name, first in _COLUMNS.items()}
        self._waiting: list[_Pass] = []
        self._held = 0

    def note(
        self, indices: Tensor, logits: Float[Tensor, "row class"] | None, *, trained: bool
    ) -> None:
        """Note a batch that is trained on, or scored; without logits if another model scores it."""
        self._waiting.append(_Pass(trained, indices, None if logits is None else logits.detach()))
        self._held += (indices if logits is None else logits).numel()

    @property
    def is_full(self) -> bool:
        """Whether enough logits wait to be counted."""
        return self._held >= _HELD

    def flush(self) -> None:
        """Count what was stored. This waits for the device, so stop the run's clock first."""
        passes, self._waiting, self._held = self._waiting, [], 0
        for name, trained in (("selected", True), ("scored", False)):
            for each in passes:
                if each.trained is trained:
                    np.add.at(self.columns[name], each.indices.cpu().numpy(), 1)
        if with_logits := [each for each in passes if each.logits is not None]:
            self._read(with_logits)

    def history(self, data: LabData, *, passes: float) -> ExampleHistory:
        """Return the history of the examples of `data`, which came up `passes` times each."""
        self.flush()
        ends = extremes(self.columns["selected"], self.loss_mean)
        doubted = np.argsort(-self.doubt, kind="stable")[:DOUBTED]  # NaN comes last
        pictured = np.unique([*ends["most"][:EXTREMES], *ends["least"][:EXTREMES], *doubted])
        clean = data.train_clean_labels
        columns: dict[str, Any] = {
            name: column for name, column in self.columns.items() if not name.endswith("_sum")
        }
        return ExampleHistory(
            passes=passes,
            class_name=data.class_names,
            label=data.train_labels.cpu().numpy(),
            label_clean=clean.cpu().numpy() if clean is not None and data.flipped.any() else None,
            loss_mean=self.loss_mean,
            doubt=self.doubt,
            portrait_index=pictured,
            portrait_image=thumbnails(data, pictured) if data.is_images else None,
            **columns,
        )

    @property
    def loss_mean(self) -> Float32[np.ndarray, " example"]:
        """The mean of all losses seen; NaN if none was seen."""
        return _divided(self.columns["loss_sum"], self.columns["looks"])

    @property
    def doubt(self) -> Float32[np.ndarray, " example"]:
        """The mean doubt about the label; the k-th look has weight k. NaN if never seen."""
        looks = self.columns["looks"].astype(np.float64)
        return _divided(self.columns["doubt_sum"], looks * (looks + 1) / 2)

    def state_dict(self) -> dict[str, Any]:
        """Return all that was seen."""
        self.flush()
        return {name: torch.from_numpy(array).clone() for name, array in self.columns.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state_dict()`."""
        self.columns = {name: tensor.numpy().copy() for name, tensor in state.items()}

    def _read(self, passes: list[_Pass]) -> None:
        columns = self.columns
        logits = torch.cat([each.logits for each in passes if each.logits is not None]).float()
        rows = torch.cat([each.indices.cpu() for each in passes])
        labels = self._labels[rows].to(logits.device)
        logs = logits.log_softmax(1)
        losses = -logs.gather(1, labels.unsqueeze(1)).squeeze(1).cpu().numpy()
        best, prediction = (found.cpu().numpy() for found in logs.max(1))
        index = rows.numpy()
        # If an example occurs twice, NumPy keeps the last entry.
        columns["loss_last"][index] = losses
        look = sb.guide.look_at(logits, labels)
        known = look.known.cpu().numpy()
        informed, doubts = index[known], look.doubts.cpu().numpy()[known]
        columns["prediction"][informed] = prediction[known]
        columns["confidence"][informed] = np.exp(best[known])
        np.add.at(columns["loss_sum"], informed, losses[known])
        import pandas as pd  # slow

        again = pd.Series(informed).groupby(informed).cumcount().to_numpy()
        weights = columns["looks"][informed] + again + 1
        np.add.at(columns["doubt_sum"], informed, weights * doubts)
        np.add.at(columns["looks"], informed, 1)


def _divided(total: np.ndarray, count: np.ndarray) -> Float32[np.ndarray, " example"]:
    # NaN if the count is 0.
    with np.errstate(invalid="ignore"):
        return (total / count).astype(np.float32)
