"""Training examples that look mislabelled, the most suspicious first."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.files import replacing
from selective_backprop._core.options import check_number, check_whole
from selective_backprop._core.types import Float, Float64, Int, Int64
from selective_backprop._sampling.subset import Subset

SHOWN = 10  # suspects whose indices `print` shows
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # a spreadsheet computes what begins with one of these
RARE = 0.5  # of the mean number of examples per class; a class with fewer is rare

Table = Mapping[str, np.ndarray | Sequence[object]]


def write_table(table: Table, path: str | Path) -> None:
    """Write columns of equal length to a file, as CSV or as Parquet.

    Args:
        table: columns by name, as `example_table` returns them; you may add your own.
        path: a `.csv` file has floats of seven digits, empty cells for NaN, and apostrophes before
            texts that look like formulas. A `.parquet` file keeps types; it needs pyarrow.

    Raises:
        ConfigurationError: if the ending or a column's length is wrong, or a package is missing.
    """
    path, lengths = Path(path), {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigurationError(f"all columns need the same length, but these have {lengths}")
    if path.suffix == ".csv":
        _write_csv(table, path)
    elif path.suffix == ".parquet":
        try:
            import pandas as pd

            with replacing(path) as file:
                pd.DataFrame(dict(table)).to_parquet(file, engine="pyarrow", index=False)
        except ImportError as error:
            raise ConfigurationError(
                f"{path} needs pandas and pyarrow ({error}): pip install pandas pyarrow, or write "
                "a name that ends in .csv"
            ) from error
    else:
        raise ConfigurationError(f"path={str(path)!r}: write a name ending in .csv or .parquet")


def _write_csv(table: Table, path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(map(_as_cell, table))
    columns = (np.asarray(column).tolist() for column in table.values())
    writer.writerows(map(_as_cell, row) for row in zip(*columns, strict=True))
    with replacing(path) as file:
        file.write(text.getvalue().encode())


def _as_cell(value: object) -> str:
    if value is None or value != value:  # only NaN differs from itself
        return ""
    cell = f"{value:.7g}" if isinstance(value, float) else str(value)
    if cell.startswith(FORMULA):
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


@dataclass(frozen=True, eq=False)
class Suspects:
    """Examples that the model saw, in arrays of equal length, the most suspicious first.

    `labels`, `predictions` and `confidences` are None if only losses are known.

    Attributes:
        examples: number of examples in the data set.
        indices: the examples' indices in the data set.
        suspicion: from −1 (always sure of the label) to 1 (of another class), as in `audit`.
        looks: how many times the model saw each example, as far as is known.
        labels: the labels that the data set gives, right or wrong.
        predictions: the class that the model last found likeliest; −1 if unknown.
        confidences: the probability that the model gave the predicted class; NaN if unknown.
        estimated: estimated number of wrong labels, or None. If known, no look is made up.
    """

    examples: int
    indices: Int64[np.ndarray, " suspect"]
    suspicion: Float64[np.ndarray, " suspect"]
    looks: Int64[np.ndarray, " suspect"]
    labels: Int64[np.ndarray, " suspect"] | None = None
    predictions: Int64[np.ndarray, " suspect"] | None = None
    confidences: Float64[np.ndarray, " suspect"] | None = None
    estimated: int | None = None

    @classmethod
    def ranked(
        cls,
        doubts: Float[np.ndarray, " example"],
        looks: Int[np.ndarray, " example"],
        *,
        labels: Int[np.ndarray, " example"] | None = None,
        predictions: Int[np.ndarray, " example"] | None = None,
        confidences: Float[np.ndarray, " example"] | None = None,
        estimated: int | None = None,
    ) -> "Suspects":
        """Rank examples by their mean doubts, in [−1, 1]; leave out those without looks or NaN."""
        seen = np.flatnonzero((looks > 0) & np.isfinite(doubts))
        count, added = looks[seen].astype(np.float64), estimated is None
        suspicion = (count * doubts[seen] - added) / (count + added)
        order = np.argsort(-suspicion, kind="stable")  # ties stay in the data set's order
        chosen = seen[order]

        def take(column: np.ndarray | None, kind: type = np.int64) -> Any:
            return None if column is None else column[chosen].astype(kind)

        classes, sure = (take(labels), take(predictions)), take(confidences, np.float64)
        return cls(len(looks), chosen, suspicion[order], take(looks), *classes, sure, estimated)

    def __len__(self) -> int:
        """Return the number of ranked examples: those that the model saw."""
        return len(self.indices)

    def __repr__(self) -> str:
        said = f"{self.suspicious:,} of {len(self):,} labels look wrong to the model"
        if not self.suspicious:
            return said
        first = ", ".join(map(str, self.top()[:SHOWN].tolist()))
        return f"{said}, first those of examples {first}{', …' * (self.suspicious > SHOWN)}"

    @property
    def suspicious(self) -> int:
        """How many examples are suspects: `estimated`, or else those with a suspicion above 0."""
        return int((self.suspicion > 0).sum()) if self.estimated is None else self.estimated

    def likely(self, count: int | None = None) -> list[str]:
        """Say why the model probably doubts each of the most suspicious examples.

        Ranked examples that are not suspects count as learned.

        Args:
            count: how many examples to explain, the most suspicious first; None for all suspects.

        Returns:
            For each example one of these:

            - "wrong": the mean doubt about its label exceeds the mean belief in the labels of
              learned examples (belief is the negated doubt);
            - "unknown: 0 of 8 learned": the model has learned no example of the label's class;
            - "rare class: 12 of 20 learned": it is not "wrong", and the label's class has less than
              half of the mean number of examples per class;
            - "hard": it is not "wrong", and the class is not rare;
            - "": it is not a suspect.

        Source:
            Northcutt et al. 2021, arXiv:1911.00068, compare with the mean belief of each class.
        """
        if self.labels is None:
            raise ConfigurationError(
                "likely() needs the classes of examples, and losses alone do not show them: give "
                "Doubts to audit"
            )
        suspects, seen = self.suspicious, np.bincount(self.labels)
        count = suspects if count is None else min(count, len(self))
        learned = np.bincount(self.labels[suspects:], minlength=len(seen))
        added = self.estimated is None  # the look that `ranked` added, taken out again here
        doubts = (self.suspicion * (self.looks + added) + added) / self.looks
        belief = -doubts[suspects:].mean() if suspects < len(self) else np.inf
        rare = seen < RARE * len(self) / np.count_nonzero(seen)
        said = [""] * count
        for i, label in enumerate(self.labels[: min(count, suspects)]):
            share = f"{learned[label]} of {seen[label]} learned"
            if not learned[label]:
                said[i] = f"unknown: {share}"
            elif doubts[i] > belief:
                said[i] = "wrong"
            else:
                said[i] = f"rare class: {share}" if rare[label] else "hard"
        return said

    def top(self, share: float | None = None) -> Int64[np.ndarray, " top"]:
        """Return the indices of the most suspicious examples among those that the model saw.

        Args:
            share: share of the data set to return, in [0, 1]; None for all suspects.
        """
        if share is None:
            return self.indices[: self.suspicious]
        share = check_number("share", share, "0.05 is a twentieth", most=1)
        return self.indices[: round(share * self.examples)]

    def rest(self, share: float | None = None) -> Subset:
        """Return the data set without `top(share)`, for `sb.pruned`; unseen examples are kept."""
        kept = torch.from_numpy(np.setdiff1d(np.arange(self.examples), found := self.top(share)))
        return Subset(kept, self.examples, source=f"without {len(found)} labels that look wrong")

    def write_csv(
        self,
        path: str | Path,
        *,
        limit: int | None = None,
        class_names: Sequence[str] | None = None,
        extra: Mapping[str, Sequence[object]] | None = None,
    ) -> None:
        """Write the ranked examples as CSV, one line per example, the most suspicious first.

        If labels are known, the column `likely` holds what `likely()` returns.

        Args:
            path: path of the file.
            limit: the largest number of examples to write; None for all.
            class_names: the names of the classes, by class number; None writes the numbers.
            extra: further columns by name, each with one entry per written example.
        """
        limit = check_whole("limit", limit, least=0, optional=True)
        name = (lambda label: label) if class_names is None else class_names.__getitem__
        columns: dict[str, np.ndarray | Sequence[object]] = {
            "rank": range(1, len(self) + 1)[:limit],
            "index": self.indices[:limit],
            "suspicion": self.suspicion[:limit].round(4),
            "looks": self.looks[:limit],
        }
        for title, classes in (("label", self.labels), ("prediction", self.predictions)):
            if classes is not None:
                columns[title] = ["" if each < 0 else name(each) for each in classes[:limit]]
        if self.confidences is not None:
            columns["confidence"] = self.confidences[:limit].round(4)
        if self.labels is not None:
            columns["likely"] = self.likely(len(self) if limit is None else limit)
        _write_csv({**columns, **(extra or {})}, Path(path))
