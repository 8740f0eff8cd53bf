"""Auditing runs: which of the examples they trained on look mislabelled, by what they recorded."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

import selective_backprop as sb
from selective_backprop.lab.analysis.loading import survey_data
from selective_backprop.lab.cli.command_line import anew, going_on, logs_examples
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.records.schema import Run


@dataclass(frozen=True, eq=False)
class Audit:
    """What runs of the same data say of its examples together.

    Attributes:
        suspects: the examples, ranked.
        runs: that saw them, with what became of each example in each of them, aligned.
        histories: see `runs`; at least one.
        problems: what could not be used, and what to do about it, a sentence each.
    """

    suspects: sb.guide.Suspects
    runs: tuple[Run, ...]
    histories: tuple[ExampleHistory, ...]
    problems: tuple[str, ...]

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

    @property
    def final_loss(self) -> sb.guide.Suspects:
        """The same examples, ranked by the loss last seen, in the mean over runs."""
        return self._by("loss_last")

    @property
    def mean_loss(self) -> sb.guide.Suspects:
        """The same examples, ranked by the mean of all losses seen."""
        return self._by("loss_mean")

    @property
    def losses(self) -> Float64[np.ndarray, " example"]:
        """The mean of all losses seen of each example; NaN where none was."""
        return self._mean("loss_mean")

    @property
    def times_trained(self) -> Int64[np.ndarray, " example"]:
        """How often each example was trained on, in all runs together."""
        return np.array([each.selected for each in self.histories], np.int64).sum(0)

    def exhibits(
        self, wanted: Int64[np.ndarray, " rank"]
    ) -> tuple[dict[int, np.ndarray], dict[int, str]]:
        """Return the pictures and the texts that were recorded, of those examples that are wanted.

        Both by the examples' indices.
        """
        pictures: dict[int, np.ndarray] = {}
        texts: dict[int, str] = {}
        among = set(wanted.tolist())
        for history in self.histories:
            indices = history.portrait_index.tolist()
            for found, shown in (
                (pictures, history.portrait_image),
                (texts, history.portrait_text),
            ):
                if shown is not None:
                    pairs = zip(indices, shown, strict=True)
                    found.update({index: each for index, each in pairs if index in among})
        return pictures, texts

    def _by(self, name: str) -> sb.guide.Suspects:
        return sb.guide.audit(self._mean(name))

    def _mean(self, name: str) -> Float64[np.ndarray, " example"]:
        losses = np.array([getattr(each, name) for each in self.histories], np.float64)
        seen = (~np.isnan(losses)).sum(0)
        return np.where(seen > 0, np.nansum(losses, 0) / np.maximum(1, seen), np.nan)


def audit_runs(places: Sequence[Path]) -> Audit:
    """Audit runs that trained on the same data, together.

    Places are folders of records, or single records. Of runs of different data, those of the data
    that most of them share are audited. What cannot be used is left out and said.

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


def predicted(number: int, class_names: Sequence[str]) -> str:
    """Return the name of a class; a dash for −1, where there was no prediction."""
    return "–" if number < 0 else class_names[number]


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
    command = run.header.command
    if not logs_examples(command):
        return (
            f"{run.name}: only train and compare record what becomes of examples, and it is a run "
            f"of: {command}"
        )
    if not run.finished:
        return (
            f"{run.name}: the run did not end, and what became of its examples is written when it "
            f"does. To go on with it: {going_on(command)}"
        )
    return f"{run.name}: nothing can be read of its examples. To train it anew: {anew(command)}"
