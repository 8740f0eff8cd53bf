"""Training examples that look mislabelled, the most suspicious first."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.files import replacing
from selective_backprop._core.options import check_number, check_whole
from selective_backprop._core.types import Bool, Float, Float64, Int, Int64
from selective_backprop._sampling.subset import Subset

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
SHOWN = 10  # suspects whose indices `print` shows
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # a spreadsheet computes what begins with one of these
RARE = 0.5  # of the mean number of examples per class; a class with fewer is rare


def write_columns(columns: Mapping[str, Sequence[object]], path: Path) -> None:
    """Write columns by name as CSV; texts that look like formulas get an apostrophe in front."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(map(_as_cell, columns))
    writer.writerows(map(_as_cell, row) for row in zip(*columns.values(), strict=True))
    with replacing(path) as file:
        file.write(text.getvalue().encode())


def _as_cell(value: object) -> str:
    cell = "" if value is None else str(value)
    if cell.startswith(FORMULA):
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


@dataclass(frozen=True)
class Cut:
    """How many mislabelled examples are among the most suspicious ones.

    Attributes:
        share: share of the data set that is inspected, the most suspicious first, in [0, 1].
        inspected: number of inspected examples.
        found: number of mislabelled examples among the inspected ones.
        precision: `found` / `inspected`, in [0, 1]; NaN if no example is inspected.
        recall: `found` / number of all mislabelled examples, in [0, 1]; NaN if none is mislabelled.
    """

    share: float
    inspected: int
    found: int
    precision: float
    recall: float


@dataclass(frozen=True, eq=False)
class Suspects:
    """Examples that may be mislabelled, in arrays of equal length, the most suspicious first.

    Attributes:
        examples: number of examples in the data set. The arrays leave out examples that the model
            never saw.
        indices: the examples' indices in the data set.
        suspicion: from −1 (the model was always sure of the label) to 1 (always sure of another
            class). If above 0, the model believed another class more than the label. See `audit`.
        looks: how many times the model saw each example, as far as is known.
        labels: the labels that the data set gives, right or wrong. `labels`, `predictions` and
            `confidences` are None if only losses are known.
        predictions: the class that the model last found likeliest; −1 if unknown.
        confidences: the probability that the model gave the predicted class; NaN if unknown.
        estimated: estimated number of wrong labels, from `find_label_issues` or, for a ledger, from
            `SelectiveLoader.wrong_labels`; else None. If it is known, `suspicion` leaves out the
            made-up look that `audit` adds.
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
        """Rank the examples of a data set; the arguments are in the data set's order.

        See `audit` for the terms *look* and *doubt*. One made-up look with a doubt of −1 is added
        to each example's looks. The suspicion is the mean doubt over all of these looks. The fewer
        looks an example has, the more the made-up look lowers its suspicion.

        Args:
            doubts: each example's mean doubt over all looks, in [−1, 1]. Examples without looks or
                with a mean that is not finite are left out.
            looks: the number of looks at each example.
            labels: the labels that the data set gives, right or wrong.
            predictions: the class that the model last found likeliest.
            confidences: the probability that the model gave the predicted class.
            estimated: estimated number of wrong labels. With an estimate, no look is added.
        """
        seen = np.flatnonzero((looks > 0) & np.isfinite(doubts))
        count = looks[seen].astype(np.float64)
        added = estimated is None  # a look whose doubt is −1
        suspicion = (count * doubts[seen] - added) / (count + added)
        order = np.argsort(-suspicion, kind="stable")  # ties stay in the data set's order
        chosen = seen[order]
        return cls(
            examples=len(looks),
            indices=chosen.astype(np.int64),
            suspicion=suspicion[order],
            looks=looks[chosen].astype(np.int64),
            labels=None if labels is None else labels[chosen].astype(np.int64),
            predictions=None if predictions is None else predictions[chosen].astype(np.int64),
            confidences=None if confidences is None else confidences[chosen].astype(np.float64),
            estimated=estimated,
        )

    def __len__(self) -> int:
        """Return the number of ranked examples: those that the model saw."""
        return len(self.indices)

    def __repr__(self) -> str:
        """Return how many labels look wrong, and the first indices, in a sentence."""
        said = f"{self.suspicious:,} of {len(self):,} labels look wrong"
        if not self.suspicious:
            return said
        first = ", ".join(map(str, self.top()[:SHOWN].tolist()))
        return f"{said}, first those of examples {first}{', …' * (self.suspicious > SHOWN)}"

    @property
    def suspicious(self) -> int:
        """How many of the ranked examples are suspects, the most suspicious first.

        This is `estimated` if known, else the number of examples with a suspicion above 0.
        """
        return int((self.suspicion > 0).sum()) if self.estimated is None else self.estimated

    def likely(self, count: int | None = None) -> list[str]:
        """Say why the model probably doubts each of the most suspicious examples.

        A model that has learned a class doubts a wrong label about as strongly as it believes right
        labels. If it has learned little of a class, it also doubts right labels of this class, but
        less strongly. All ranked examples that are not suspects count as learned.

        "wrong" is the surest. If many labels are wrong, most suspects of the other kinds can
        be wrong, too, so whoever removes only what is called "wrong" keeps many wrong labels.

        Args:
            count: how many examples to explain, the most suspicious first; None for all suspects.

        Returns:
            For each example one of these; in our trials, the first kinds were wrong most often:

            - "wrong": the mean doubt about its label exceeds the mean belief in the labels of
              learned examples (belief is the negated doubt);
            - "unknown: 0 of 8 learned": the model has learned no example of the label's class, so
              right and wrong labels of this class look alike;
            - "hard": it is not "wrong", and the class is not rare;
            - "rare class: 12 of 20 learned": it is not "wrong", and the label's class has less than
              half of the mean number of examples per class;
            - "": it is not a suspect.

        Raises:
            ConfigurationError: if the labels are unknown because examples were ranked by losses
                alone.

        Source:
            Northcutt et al. 2021, arXiv:1911.00068, also compare each example with the model's mean
            belief in labels, but separately for each class.
        """
        if self.labels is None:
            raise ConfigurationError(
                "likely() needs the classes of examples, and losses alone do not show them: give "
                "Doubts to audit"
            )
        count = self.suspicious if count is None else min(count, len(self))
        learned = np.arange(len(self)) >= self.suspicious
        seen = np.bincount(self.labels)
        of_class = np.bincount(self.labels, learned).astype(np.int64)
        added = self.estimated is None  # the look that `ranked` added, taken out again here
        doubts = (self.suspicion * (self.looks + added) + added) / self.looks
        belief = -doubts[learned].mean() if learned.any() else np.inf
        rare = seen < RARE * len(self) / np.count_nonzero(seen)
        said = []
        for label, doubt, known in zip(
            self.labels[:count].tolist(), doubts[:count], learned[:count], strict=True
        ):
            share = f"{of_class[label]} of {seen[label]} learned"
            if known:
                said.append("")
            elif not of_class[label]:
                said.append(f"unknown: {share}")
            elif doubt > belief:
                said.append("wrong")
            else:
                said.append(f"rare class: {share}" if rare[label] else "hard")
        return said

    def top(self, share: float | None = None) -> Int64[np.ndarray, " top"]:
        """Return the indices of the most suspicious examples.

        Args:
            share: share of the data set to return, in [0, 1]; None for all suspects. Examples that
                the model never saw are not returned.

        Raises:
            ConfigurationError: if the share is out of its range.
        """
        return self.indices[: self.suspicious if share is None else self._count(share)]

    def rest(self, share: float | None = None) -> Subset:
        """Return the data set without `top(share)`; train on it with `sb.pruned(suspects.rest())`.

        Examples that the model never saw are kept.

        Raises:
            ConfigurationError: if the share is out of its range, or nothing would be left.
        """
        kept, found = torch.ones(self.examples, dtype=torch.bool), self.top(share)
        kept[torch.from_numpy(found.copy())] = False
        source = f"without {len(found)} labels that look wrong"
        return Subset(kept.nonzero().flatten(), self.examples, source=source)

    def cuts(
        self, wrong: Bool[np.ndarray, " example"], shares: Sequence[float] = SHARES
    ) -> tuple[Cut, ...]:
        """Count how many of the examples known to be mislabelled are among the most suspicious.

        Args:
            wrong: true for each example of the data set that is mislabelled.
            shares: shares of the data set to inspect, each in [0, 1]; each gives a `Cut`.

        Raises:
            ConfigurationError: if a share is out of its range, or `wrong` does not have one value
                for each example.
        """
        wrong = np.asarray(wrong, dtype=bool)
        if wrong.shape != (self.examples,):
            raise ConfigurationError(
                f"wrong has shape {wrong.shape}, but the data set has {self.examples} examples: "
                "give one truth value for each, in the data set's order"
            )
        hits, total = np.cumsum(wrong[self.indices]), int(wrong.sum())
        cuts = []
        for share in shares:
            inspected = min(self._count(share), len(self))
            found = int(hits[inspected - 1]) if inspected else 0
            precision = found / inspected if inspected else float("nan")
            recall = found / total if total else float("nan")
            cuts.append(Cut(share, inspected, found, precision, recall))
        return tuple(cuts)

    def write_csv(
        self,
        path: str | Path,
        *,
        limit: int | None = None,
        class_names: Sequence[str] | None = None,
        extra: Mapping[str, Sequence[object]] | None = None,
    ) -> None:
        """Write the ranked examples as CSV, one line per example, the most suspicious first.

        If labels are known, the column `likely` holds what `likely()` returns. An apostrophe is put
        in front of text that a spreadsheet would take for a formula: text that begins with =, +, −,
        @ or a line break, unless it is a number.

        Args:
            path: path of the file.
            limit: the largest number of examples to write; None for all.
            class_names: the names of the classes, by class number; without names, the numbers are
                written. Unknown predictions and confidences are left empty.
            extra: further columns by name, each with one entry per written example.

        Raises:
            ConfigurationError: if the limit is not a whole number of at least 0.
        """
        limit = check_whole("limit", limit, least=0, optional=True)
        count = len(self) if limit is None else min(limit, len(self))
        name = (lambda label: label) if class_names is None else class_names.__getitem__
        columns: dict[str, Sequence[object]] = {
            "rank": range(1, count + 1),
            "index": self.indices[:count].tolist(),
            "suspicion": [f"{each:.4f}" for each in self.suspicion[:count]],
            "looks": self.looks[:count].tolist(),
        }
        for title, classes in (("label", self.labels), ("prediction", self.predictions)):
            if classes is not None:
                columns[title] = [
                    "" if each < 0 else name(each) for each in classes[:count].tolist()
                ]
        if self.confidences is not None:
            columns["confidence"] = [
                f"{each:.4f}" if np.isfinite(each) else "" for each in self.confidences[:count]
            ]
        if self.labels is not None:
            columns["likely"] = self.likely(count)
        columns |= dict(extra or {})
        write_columns(columns, Path(path))

    def _count(self, share: float) -> int:
        share = check_number("share", share, "0.05 is a twentieth", most=1)
        return round(share * self.examples)
