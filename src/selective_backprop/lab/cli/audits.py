"""Auditing runs: which of the examples they trained on look mislabelled, by what they recorded."""

import shlex
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np
from jaxtyping import Float64

import selective_backprop as sb
from selective_backprop.lab.analysis.loading import survey_data
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.records.schema import Run


@dataclass(frozen=True, eq=False)
class Audit:
    """What runs of the same data say of its examples together."""

    suspects: sb.guide.Suspects  # the examples, ranked
    runs: tuple[Run, ...]  # at least one
    histories: tuple[ExampleHistory, ...]  # what became of each example, run by run
    problems: tuple[str, ...]  # what could not be used, and what to do about it, a sentence each

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration of a run, of which the parts that name the data hold for all."""
        return self.runs[0].header.config

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in order of the labels."""
        return self.histories[0].class_name

    @property
    def wrong(self) -> np.ndarray | None:
        """Which labels were flipped on purpose, `[example]`; None where none were."""
        first = self.histories[0]
        return None if first.label_clean is None else first.label != first.label_clean

    def mean(self, field: str) -> Float64[np.ndarray, " example"]:
        """Return the mean over runs of a field of their histories; NaN where it never was."""
        values = np.array([getattr(each, field) for each in self.histories], np.float64)
        seen = (~np.isnan(values)).sum(0)
        return np.where(seen > 0, np.nansum(values, 0) / np.maximum(1, seen), np.nan)

    def ranked_by(self, field: str) -> sb.guide.Suspects:
        """Rank the same examples by the mean of a loss alone."""
        return sb.guide.audit(self.mean(field))

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return the most suspicious examples, as they are shown."""
        found, names = self.suspects, self.class_names
        assert found.labels is not None
        assert found.predictions is not None
        assert found.confidences is not None
        return [
            {
                "rank": i + 1,
                "index": int(found.indices[i]),
                "suspicion": f"{found.suspicion[i]:.3f}",
                "looks": int(found.looks[i]),
                "label": names[found.labels[i]],
                "prediction": "–" if found.predictions[i] < 0 else names[found.predictions[i]],
                "confidence": "–" if np.isnan(c := found.confidences[i]) else f"{c:.0%}",
            }
            for i in range(min(count, len(found)))
        ]


def audit_runs(places: Sequence[Path]) -> Audit:
    """Audit runs that trained on the same data, together.

    Of runs of different data, those of the data that most of them share are audited. What cannot
    be used is left out and said.

    Raises:
        RecordError: if no run is left.
    """
    found = survey_data(places)
    problems = list(found.problems)
    seen: list[tuple[Run, ExampleHistory]] = []
    for run in found.runs:
        history = None if run.path is None else found.histories.get(run.path)
        if history is None:
            problems.append(_why_none(run))
        else:
            seen.append((run, history))
    kept = _of_usual_labels(seen, problems)
    if not kept:
        wrong = "".join(f"\n  {problem}" for problem in problems)
        raise sb.RecordError(f"there is no run whose examples could be audited.{wrong}")
    runs, histories = zip(*kept, strict=True)
    return Audit(together(histories), runs, histories, tuple(problems))


def together(histories: Sequence[ExampleHistory]) -> sb.guide.Suspects:
    """Rank examples by all looks of several runs; the surest of them says what it predicts."""
    first = histories[0]
    totals, looks = np.zeros(len(first)), np.zeros(len(first), np.int64)
    predictions, confidences = np.full(len(first), -1), np.full(len(first), np.nan)
    for each in histories:
        known = np.isfinite(each.doubt)
        totals += np.where(known, each.doubt, 0.0) * each.looks  # a run weighs as many looks
        looks += np.where(known, each.looks, 0)
        surer = each.confidence > np.nan_to_num(confidences, nan=-np.inf)
        predictions = np.where(surer, each.prediction, predictions)
        confidences = np.where(surer, each.confidence, confidences)
    return sb.guide.Suspects.ranked(
        totals / np.maximum(looks, 1),
        looks,
        labels=first.label,
        predictions=predictions,
        confidences=confidences,
    )


def _of_usual_labels(
    seen: Sequence[tuple[Run, ExampleHistory]], problems: list[str]
) -> list[tuple[Run, ExampleHistory]]:
    """Return the runs with the labels that most of them trained on."""
    keys = [zlib.crc32(history.label.tobytes()) for _, history in seen]
    kept = [pair for pair, key in zip(seen, keys, strict=True) if key == mode(keys)]
    for run, _ in seen:
        if all(run is not other for other, _ in kept):
            problems.append(
                f"{run.name}: its examples have other labels than those of {kept[0][0].name}, and "
                "it is left out; name it alone to audit it."
            )
    return kept


def _why_none(run: Run) -> str:
    """Say why nothing is known of a run's examples, and which command would record it."""
    command = run.header.command
    try:
        words = shlex.split(command)
    except ValueError:  # it cannot have been typed
        words = []
    asked = words[1] if len(words) > 1 else ""
    if asked not in {"train", "compare"}:
        return (
            f"{run.name}: only train and compare record what becomes of examples, and it is a run "
            f"of: {command}"
        )
    if run.finished:
        why, option = "nothing can be read of its examples. To train it anew", "--again"
    else:
        why = (
            "the run did not end, and what became of its examples is written when it does. To go "
            "on with it"
        )
        option = "--resume" if asked == "train" else ""
        words = [word for word in words if word != "--again"]  # which begins anew
    if option and option not in words:
        words.append(option)
    return f"{run.name}: {why}: {shlex.join(words)}"
