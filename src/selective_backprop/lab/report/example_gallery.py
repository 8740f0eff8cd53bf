"""What the page's script needs to show single examples: portraits, predictions and lives."""

import base64
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.report.inside import Inside, extreme_examples
from selective_backprop.lab.report.styles import Style

_MOST_RUNS = 12  # whose examples a page holds with every seed; of more, the first seed of each arm
_LETTERS = 300  # of a text that is shown


def gallery(insides: Sequence[Inside], look: dict[str, Style]) -> dict[str, Any]:
    """Return single examples of each run, with portraits that the runs share.

    Args:
        insides: arms with their histories, all of one data set.
        look: a style for each arm.

    Returns:
        Plain containers: the classes, the portraits by index, and each run's examples and lives.
    """
    several = sum(len(inside.runs) for inside in insides) > _MOST_RUNS
    runs: list[dict[str, Any]] = []
    portraits: dict[int, dict[str, str]] = {}
    for inside in insides:
        for run, history in inside.runs[:1] if several else inside.runs:
            style = look[inside.arm.label]
            drawn = {"colour": style.colour, "dash": style.dash}
            runs.append(
                {"arm": inside.arm.label, "seed": run.header.seed, **drawn, **_run(history)}
            )
            for index, portrait in _portraits(history):
                portraits.setdefault(index, portrait)
    return {
        "classes": insides[0].histories[0].class_name if insides else (),
        "portraits": portraits,
        "runs": runs,
    }


def _run(history: ExampleHistory) -> dict[str, Any]:
    ends = extreme_examples(history)
    lives = history.life_index.tolist()
    shown = dict.fromkeys([*ends.most.tolist(), *ends.least.tolist(), *lives])
    return {
        "most": ends.most.tolist(),
        "least": ends.least.tolist(),
        "even": ends.even,
        "passes": round(history.passes, 2),
        "examples": {index: _example(history, index) for index in shown},
        "epochs": (history.life_epoch + 1).tolist(),
        "lives": {index: _life(history, row) for row, index in enumerate(lives)},
    }


def _example(history: ExampleHistory, index: int) -> dict[str, Any]:
    found = {
        "label": int(history.label[index]),
        "prediction": int(history.prediction[index]),
        "confidence": _short(history.confidence[index]),
        "selected": int(history.selected[index]),
        "loss": _short(history.loss_mean[index]),
    }
    if history.label_clean is not None and history.label_clean[index] != history.label[index]:
        found["clean"] = int(history.label_clean[index])
    return found


def _life(history: ExampleHistory, row: int) -> dict[str, Any]:
    return {
        "loss": [_short(value) for value in history.life_loss[row]],
        "probability": [_short(100 * value) for value in history.life_probability[row]],
        "selected": history.life_selected[row].tolist(),
    }


def _portraits(history: ExampleHistory) -> Iterable[tuple[int, dict[str, str]]]:
    for place, index in enumerate(history.portrait_index.tolist()):
        if history.portrait_image is not None:
            yield index, {"image": _as_png(history.portrait_image[place])}
        elif history.portrait_text is not None:
            text = history.portrait_text[place]
            yield index, {"text": text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…"}


def _as_png(image: np.ndarray) -> str:
    """Return an image as an address that holds it."""
    file = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(
        file, "PNG", optimize=True
    )
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _short(value: Any) -> float | None:
    """Return a number of three digits, as JSON can hold it."""
    value = float(value)
    return float(f"{value:.3g}") if math.isfinite(value) else None
