"""What the histories of examples say: how losses are spread, which classes and examples train.

Of several seeds, what is a number of each example or class is averaged; single examples are shown
of one run, since their predictions are.
"""

import base64
import io
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image

from selective_backprop.lab.analysis.grouping import Comparison, RunGroup
from selective_backprop.lab.analysis.statistics import Estimate, estimate
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.records.schema import Run

_MOST_RUNS = 12  # whose examples a page holds with every seed; of more, the first seed of each
_LETTERS = 300  # of a text that is shown


@dataclass(frozen=True)
class GroupHistories:
    """A group with what became of its examples, run by run, in order of seed."""

    group: RunGroup
    runs: tuple[tuple[Run, ExampleHistory], ...]

    @property
    def histories(self) -> list[ExampleHistory]:
        """The histories alone."""
        return [history for _, history in self.runs]


@dataclass(frozen=True)
class Spread:
    """How the losses last seen of the examples were spread, at some moments of a run."""

    progress: Float[np.ndarray, " evaluation"]  # share of the run
    level: Float[np.ndarray, " level"]  # share of the examples seen by then
    loss: Float[np.ndarray, "evaluation level"]  # that this share does not exceed


def group_histories(
    comparison: Comparison, histories: Mapping[Path, ExampleHistory]
) -> tuple[list[GroupHistories], list[Run]]:
    """Return the groups of which histories were kept, and the finished runs without any."""
    found: list[GroupHistories] = []
    without: list[Run] = []
    for group in comparison.groups:
        runs = []
        for run in group.runs:
            history = None if run.path is None else histories.get(run.path)
            if history is None:
                without.append(run)
            else:
                runs.append((run, history))
        if runs:
            found.append(GroupHistories(group, tuple(runs)))
    return found, without


def examined(kept: Sequence[GroupHistories]) -> list[tuple[GroupHistories, Run, ExampleHistory]]:
    """Return the runs of which a page shows single examples."""
    several = sum(len(own.runs) for own in kept) > _MOST_RUNS
    return [
        (own, run, history)
        for own in kept
        for run, history in (own.runs[:1] if several else own.runs)
    ]


def loss_spread(histories: Sequence[ExampleHistory]) -> Spread:
    """Return how losses were spread at each evaluation, quantile by quantile the mean over seeds.

    Seeds that were evaluated less often than the others, or had nothing to show, are left out.
    """
    most = max(len(history.cdf_progress) for history in histories)
    alike = [history for history in histories if len(history.cdf_progress) == most]
    return Spread(
        progress=np.mean([history.cdf_progress for history in alike], axis=0),
        level=alike[0].cdf_level.astype(float),
        loss=np.mean([history.cdf_loss.astype(float) for history in alike], axis=0),
    )


def class_shares(histories: Sequence[ExampleHistory]) -> list[Estimate]:
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
    """Return the classes in which groups differ most, in the classes' own order.

    Args:
        shares: of each group, one for each class.
        count: how many classes to return, or all if there are fewer.
    """
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
