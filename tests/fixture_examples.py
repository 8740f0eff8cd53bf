"""Histories of examples that never were, for tests, with numbers that can be checked by hand."""

from typing import Any

import numpy as np

from selective_backprop.lab.examples import ExampleHistory


def fixture_history(examples: int = 12, classes: int = 3, **changes: Any) -> ExampleHistory:
    """Make up what became of some examples in 4 epochs: the i-th was trained on i mod 5 times.

    Its loss is i / 10 in the first epoch, and half as much in each that follows; the last epoch
    leaves out every other example. All have portraits, every third has a life.
    """
    index, epochs = np.arange(examples), np.arange(4)
    loss = (index / 10)[:, None] * 0.5 ** epochs[None, :]
    loss[1::2, 3] = np.nan
    last = np.where(index % 2, loss[:, 2], loss[:, 3])
    lives = index[::3]
    selected = index % 5
    fields: dict[str, Any] = {
        "passes": 4.0,
        "class_name": tuple(f"class {number}" for number in range(classes)),
        "label": index % classes,
        "prediction": np.where(index % 4, index % classes, (index + 1) % classes),
        "confidence": np.linspace(0.4, 1.0, examples, dtype=np.float32),
        "selected": selected.astype(np.int32),
        "scored": np.full(examples, 3, np.int32),
        "loss_last": last.astype(np.float32),
        "loss_mean": np.nanmean(loss, 1).astype(np.float32),
        "loss_max": np.nanmax(loss, 1).astype(np.float32),
        "epoch_last": np.where(index % 2, 2, 3).astype(np.int32),
        "looks": np.where(index % 2, 3, 4).astype(np.int32),
        "doubt": np.linspace(-1.0, 1.0, examples, dtype=np.float32),
        "cdf_progress": np.array([0.5, 1.0], np.float32),
        "cdf_known": np.array([examples, examples]),
        "cdf_level": np.array([0.0, 0.5, 1.0], np.float32),
        "cdf_loss": np.array([[0.0, 0.5, 1.1], [0.0, 0.25, 0.9]], np.float32),
        "life_index": lives,
        "life_epoch": epochs.astype(np.int32),
        "life_loss": loss[lives].astype(np.float32),
        "life_probability": np.exp(-loss[lives]).astype(np.float32),
        "life_selected": (selected[lives, None] > epochs[None, :]).astype(np.int32),
        "portrait_index": index,
        "portrait_image": np.arange(examples * 16, dtype=np.uint8).reshape(examples, 4, 4, 1),
    }
    return ExampleHistory(**fields | changes)
