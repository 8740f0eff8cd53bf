"""Single examples of each run, for the page: those that were trained on most and least often."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selective_backprop.lab.records.example_history import EXTREMES, ExampleHistory, extremes
from selective_backprop.lab.report.example_histories import (
    GroupHistories,
    class_of,
    examined,
    faces,
)


@dataclass(frozen=True)
class Card:
    """One example, as one run saw it."""

    index: int
    label: str
    clean: str | None  # the label before it was flipped
    prediction: str  # when it was last seen
    is_wrong: bool
    selected: int  # how often it was trained on


@dataclass(frozen=True)
class RunExamples:
    """The examples of one run."""

    name: str
    most: list[Card]
    least: list[Card]
    even: bool  # all were trained on equally often
    passes: float  # how often an example came up


@dataclass(frozen=True)
class Gallery:
    """Single examples of each run, with faces that the runs share."""

    runs: list[RunExamples]
    first: RunExamples  # that of the strategy which treats examples most differently
    images: dict[int, str]  # as addresses that hold them
    texts: dict[int, str]


def gallery(kept: Sequence[GroupHistories]) -> Gallery:
    """Return single examples of each run; of many runs, of the first seed of each group."""
    seen = examined(kept)
    runs = []
    for own, run, history in seen:
        orders = extremes(history.selected, history.loss_mean)
        count = min(EXTREMES, len(history) // 2)  # of few examples, none stands on both sides
        most, least = (
            [_card(history, index) for index in orders[side][:count].tolist()]
            for side in ("most", "least")
        )
        runs.append(
            RunExamples(
                name=f"{own.group.label}, seed {run.header.seed}",
                most=most,
                least=least,
                even=len(np.unique(history.selected)) == 1,
                passes=round(history.passes, 2),
            )
        )
    most_different = int(np.argmax([np.var(history.selected) for _, _, history in seen]))
    shown = {card.index for own in runs for card in (*own.most, *own.least)}
    images, texts = faces([history for _, _, history in seen], shown)
    return Gallery(runs, runs[most_different], images, texts)


def _card(history: ExampleHistory, index: int) -> Card:
    label, prediction = int(history.label[index]), int(history.prediction[index])
    clean = label if history.label_clean is None else int(history.label_clean[index])
    confidence = float(history.confidence[index])
    sure = f" ({100 * confidence:.0f}\u00a0%)" if np.isfinite(confidence) else ""
    return Card(
        index=index,
        label=class_of(history, label),
        clean=None if clean == label else class_of(history, clean),
        prediction="never seen"
        if prediction < 0
        else f"predicted {class_of(history, prediction)}{sure}",
        is_wrong=prediction not in {label, -1},
        selected=int(history.selected[index]),
    )
