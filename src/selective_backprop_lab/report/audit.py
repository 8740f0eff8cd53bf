"""Rank, list and show training examples that look mislabelled, from the records of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Template

import selective_backprop as sb
from selective_backprop_lab.analysis.comparison import read_histories, read_same_data
from selective_backprop_lab.analysis.tables import Column, Table
from selective_backprop_lab.records.example_history import ExampleHistory
from selective_backprop_lab.records.files import inside, replacing
from selective_backprop_lab.records.frame import each_run
from selective_backprop_lab.report.report import portraits

_PAGE = Template(
    Path(__file__).with_name("suspects.html.j2").read_text(encoding="utf-8"), autoescape=True
)


@dataclass(frozen=True, eq=False)
class Audit:
    """What all runs on the same data together say about the examples."""

    suspects: sb.guide.Suspects  # the examples, ranked
    runs: pd.DataFrame  # one row for each run, at least one
    histories: tuple[ExampleHistory, ...]  # the histories of the examples, one for each run
    problems: tuple[str, ...]  # sentences on what could not be used, and what to do about it

    def mean(self, field: str) -> np.ndarray:
        """Return the mean over runs of a field, `[example]`; NaN if no run has a value."""
        values = [getattr(each, field) for each in self.histories]
        return pd.DataFrame(values, dtype=np.float64).mean().to_numpy()

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return the most suspicious examples as texts to show."""
        found, names = self.suspects, self.histories[0].class_name
        labels, predictions, sure = found.labels, found.predictions, found.confidences
        assert labels is not None and predictions is not None and sure is not None
        count = min(count, len(found))
        likely = found.likely(count)
        return [
            {
                "rank": i + 1,
                "index": int(found.indices[i]),
                "suspicion": f"{found.suspicion[i]:.3f}",
                "looks": int(found.looks[i]),
                "label": names[labels[i]],
                "prediction": "–" if predictions[i] < 0 else names[predictions[i]],
                "confidence": "–" if np.isnan(sure[i]) else f"{sure[i]:.0%}",
                "likely": likely[i],
            }
            for i in range(count)
        ]


def audit_runs(places: Sequence[Path]) -> Audit:
    """Audit runs that trained on the same data, the most frequent; what is left out is named."""
    runs, problems = read_same_data(places)
    histories, unread = read_histories(runs)
    problems += unread
    seen: list[tuple[Any, ExampleHistory]] = []
    for run in each_run(runs):
        history = histories.get(Path(run.folder, run.run))
        if history is None:
            problems.append(
                f"{run.run}: nothing is known of its examples. Only train and compare record them, "
                "when a run ends. To continue a run of train, add --resume; to repeat a run, add "
                f"--again. It was made by: {run.command}"
            )
        else:
            seen.append((run, history))
    if not seen:
        wrong = "".join(f"\n  {problem}" for problem in problems)
        raise sb.RecordError(f"no run has examples that can be audited.{wrong}")
    usual = mode(history.label.tobytes() for _, history in seen)
    kept = [(run, history) for run, history in seen if history.label.tobytes() == usual]
    problems += [
        f"{run.run}: its examples have other labels than in {kept[0][0].run}, so it is left out. "
        "To audit it, name only this record."
        for run, history in seen
        if history.label.tobytes() != usual
    ]
    own = tuple(history for _, history in kept)
    return Audit(together(own), runs.loc[[run.Index for run, _ in kept]], own, tuple(problems))


def together(histories: Sequence[ExampleHistory]) -> sb.guide.Suspects:
    """Rank examples by all looks of several runs; predictions are those of the surest run."""
    first = histories[0]
    totals, looks = np.zeros(len(first)), np.zeros(len(first), np.int64)
    predictions, confidences = np.full(len(first), -1), np.full(len(first), np.nan)
    for each in histories:
        known = np.isfinite(each.doubt)
        totals += np.where(known, each.doubt, 0.0) * each.looks  # a run's weight is its looks
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


def top_table(found: Audit, count: int) -> Table:
    """Return the most suspicious examples as a table for the terminal."""
    rows = found.rows(count)
    left = {"label", "prediction", "likely"}
    columns = [Column(name, left=name in left) for name in rows[0]]
    return Table(columns, [[str(cell) for cell in row.values()] for row in rows])


def write_list(found: Audit, folder: Path, count: int) -> list[Path]:
    """Write `suspects.csv`, and a page and a folder of the suspects with recorded pictures."""
    suspects, listed = found.suspects, found.suspects.indices[:count]
    pictures = portraits(found.histories)
    names = {index: f"suspects/{index:06}.png" for index in listed.tolist() if index in pictures}
    if names:
        inside(folder, "suspects").mkdir(exist_ok=True)
    for index, name in names.items():
        with replacing(folder / name) as file:
            pictures[index].save(file, "PNG")
    times = sum(each.selected[listed].astype(np.int64) for each in found.histories)
    extra: dict[str, Sequence[object]] = {
        "mean_loss": [f"{each:.4f}" for each in found.mean("loss_mean")[listed]],
        "times_trained": np.asarray(times).tolist(),
    }
    if names:
        extra["picture"] = [names.get(index, "") for index in listed.tolist()]
    table, page = folder / "suspects.csv", folder / "suspects.html"
    names_of_classes = found.histories[0].class_name
    suspects.write_csv(table, limit=count, class_names=names_of_classes, extra=extra)
    items = [
        row | {"picture": names[row["index"]]} for row in found.rows(count) if row["index"] in names
    ]
    if not items:
        return [table]
    text = _PAGE.render(items=items, examples=suspects.examples, listed=len(listed))
    with replacing(page) as file:
        file.write(text.encode())
    return [table, page]
