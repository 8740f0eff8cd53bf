"""What the histories of examples say: how losses are spread, which classes and examples train.

Of several seeds, what is a number of each example or class is averaged; single examples are shown
run by run, since their predictions are a run's own.
"""

import base64
import io
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from selective_backprop.lab.analysis.grouping import Comparison
from selective_backprop.lab.analysis.statistics import Estimate, estimate
from selective_backprop.lab.records.example_history import EXTREMES, ExampleHistory, extremes
from selective_backprop.lab.records.schema import Run

Kept = Mapping[str, Mapping[int, ExampleHistory]]
"""What became of the examples, by the group's label and the seed."""
_MOST_RUNS = 12  # whose examples a page holds with every seed; of more, the first seed of each
_LETTERS = 300  # of a text that is shown


def group_histories(
    comparison: Comparison, histories: Mapping[Path, ExampleHistory]
) -> tuple[Kept, list[Run]]:
    """Return the histories that were kept, and the finished runs without any."""
    kept: dict[str, dict[int, ExampleHistory]] = {}
    without: list[Run] = []
    for group in comparison.groups:
        for run in group.runs:
            if run.path is not None and run.path in histories:
                kept.setdefault(group.label, {})[run.header.seed] = histories[run.path]
            else:
                without.append(run)
    return kept, without


def examined(kept: Kept) -> list[tuple[str, int, ExampleHistory]]:
    """Return label, seed and history of the runs of which a page shows single examples."""
    several = sum(map(len, kept.values())) > _MOST_RUNS
    return [
        (label, seed, history)
        for label, own in kept.items()
        for seed, history in list(own.items())[: 1 if several else None]
    ]


def loss_spread(
    histories: Collection[ExampleHistory],
) -> tuple[Float[np.ndarray, " evaluation"], Float[np.ndarray, "evaluation level"]]:
    """Return each evaluation's share of the run, and the quantiles of losses, as means over seeds.

    Seeds that were evaluated less often than the others, or had nothing to show, are left out.
    """
    most = max(len(history.cdf_progress) for history in histories)
    alike = [history for history in histories if len(history.cdf_progress) == most]
    losses = np.mean([history.cdf_loss.astype(float) for history in alike], axis=0)
    return np.mean([history.cdf_progress for history in alike], axis=0), losses


def class_shares(histories: Collection[ExampleHistory]) -> list[Estimate]:
    """Return for each class how often, per hundred times that it came up, it was trained on.

    An example came up once in each pass over the data, or over what pruning left of it: of a class
    that was pruned away, the share is low.

    Returns:
        In percent, with the interval over seeds; NaN for a class of which there is no example.
    """
    shares = []
    for history in histories:
        classes = len(history.class_name)
        trained = np.bincount(history.label, weights=history.selected, minlength=classes)
        chances = history.passes * np.bincount(history.label, minlength=classes)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares.append(100.0 * trained / chances)
    return [estimate(column) for column in np.transpose(shares).tolist()]


def class_of(history: ExampleHistory, number: int) -> str:
    """Return what a class is called: its name, or its number where names were not kept."""
    known = 0 <= number < len(history.class_name)
    return history.class_name[number] if known else str(number)


def labels_of(history: ExampleHistory, index: int) -> tuple[str, str]:
    """Return an example's label, and what it was before it was flipped, else nothing."""
    label = int(history.label[index])
    clean = label if history.label_clean is None else int(history.label_clean[index])
    return class_of(history, label), "" if clean == label else class_of(history, clean)


def gallery(kept: Kept) -> dict[str, Any]:
    """Return single examples of each run, with the faces that the runs share, for the page."""
    seen = examined(kept)
    runs: list[dict[str, Any]] = []
    for label, seed, history in seen:
        orders = extremes(history.selected, history.loss_mean)
        count = min(EXTREMES, len(history) // 2)  # of few examples, none stands on both sides
        sides = {
            side: [_card(history, index) for index in orders[side][:count].tolist()]
            for side in ("most", "least")
        }
        even = len(np.unique(history.selected)) == 1  # all were trained on equally often
        passes = round(history.passes, 2)
        runs.append({"name": f"{label}, seed {seed}", "even": even, "passes": passes, **sides})
    most_different = int(np.argmax([np.var(history.selected) for *_, history in seen]))
    shown = {card["number"] for own in runs for card in own["most"] + own["least"]}
    images, texts = faces([history for *_, history in seen], shown)
    return {"runs": runs, "first": runs[most_different], "images": images, "texts": texts}


def _card(history: ExampleHistory, index: int) -> dict[str, Any]:
    """Return what the page says of one example in one run."""
    prediction, confidence = int(history.prediction[index]), float(history.confidence[index])
    sure = f" ({100 * confidence:.0f}\u00a0%)" if np.isfinite(confidence) else ""
    label, clean = labels_of(history, index)
    seen = f"predicted {class_of(history, prediction)}{sure}"
    return {
        "number": index,
        "label": label,
        "clean": clean,
        "prediction": "never seen" if prediction < 0 else seen,
        "is_wrong": prediction not in {int(history.label[index]), -1},
        "selected": int(history.selected[index]),
    }


def faces(
    histories: Sequence[ExampleHistory], indices: Collection[int]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return what some examples look like: addresses that hold their images, and their texts."""
    images: dict[int, str] = {}
    texts: dict[int, str] = {}
    for history in histories:
        for place, index in enumerate(history.portrait_index.tolist()):
            if index not in indices or index in images:
                continue
            if history.portrait_image is not None:
                images[index] = _as_png(history.portrait_image[place])
            elif history.portrait_text is not None:
                texts[index] = textwrap.shorten(history.portrait_text[place], _LETTERS)
    return images, texts


def _as_png(image: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(np.squeeze(image)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def widest_classes(shares: Sequence[Sequence[Estimate]], count: int) -> list[int]:
    """Return so many classes in which groups differ most, in the classes' own order."""
    means = np.array([[share.mean for share in own] for own in shares])
    known = np.nan_to_num(means)
    # How much a strategy selects in all is another matter.
    in_all = known.mean(axis=1, keepdims=True)
    relative = known / np.where(in_all > 0, in_all, 1.0)
    spread = relative.max(axis=0) - relative.min(axis=0)
    if len(means) == 1:
        spread = np.where(np.isfinite(means[0]), np.abs(relative[0] - 1.0), 0.0)
    order = np.argsort(-spread, kind="stable")[:count]
    return sorted(order.tolist())
