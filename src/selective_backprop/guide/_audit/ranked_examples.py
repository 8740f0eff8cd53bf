"""Training examples that look mislabelled, the most suspicious first, and how many of them are."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_number, check_whole
from selective_backprop._core.types import Bool, Float, Float64, Int, Int64
from selective_backprop._sampling.subset import Subset

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
RARE = 0.5  # of the examples that a class would have if all had equally many: fewer make it rare


@dataclass(frozen=True)
class Cut:
    """How many mislabelled examples are among the most suspicious ones.

    Attributes:
        share: the share of the data set that is inspected, from the top of the list.
        inspected: number of inspected examples.
        found: number of mislabelled examples among them.
        precision: `found` as a share of the inspected ones, in [0, 1]; NaN if there are none.
        recall: `found` as a share of all mislabelled ones, in [0, 1]; NaN if there are none.
    """

    share: float
    inspected: int
    found: int
    precision: float
    recall: float


@dataclass(frozen=True, eq=False)
class Suspects:
    """Examples that may be mislabelled, the most suspicious first; arrays of one length.

    Attributes:
        examples: number of examples in the data set. Arrays leave out those that were never looked
            at.
        indices: the examples' indices in the data set.
        suspicion: from −1, sure of the label at every look, to 1, sure of another class. Above 0,
            the model believed another class more than the label. See `audit`.
        looks: how many looks at each example are known.
        labels: as trained on. This and the next two are None if only losses are known.
        predictions: the class that the model last found likeliest; −1 where that is not known.
        confidences: the probability that it gave that class; NaN where that is not known.
        estimated: how many labels, from the top, are estimated to be wrong; None without an
            estimate. With an estimate, no look is added to the suspicion.
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

        The suspicion is the mean doubt over all looks and one added look that is sure of the label.
        The added look matters most where looks are few, because they are little evidence.

        Args:
            doubts: the mean over all looks at each example, in [−1, 1]. An example without looks,
                or whose mean is not finite, is left out.
            looks: how many looks there were at each example.
            labels: as trained on.
            predictions: the class that the model last found likeliest.
            confidences: the probability that it gave that class.
            estimated: how many labels are estimated to be wrong; then no look is added.
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
        """Return how many examples were looked at, and so ranked."""
        return len(self.indices)

    @property
    def suspicious(self) -> int:
        """How many examples, from the top, are suspects.

        This is the estimated number. Without an estimate, it is the number of examples with a
        suspicion above 0.
        """
        return int((self.suspicion > 0).sum()) if self.estimated is None else self.estimated

    def likely(self, count: int | None = None) -> list[str]:
        """Say what the most suspicious examples likely are.

        The model doubts a wrong label about as strongly as it believes right ones, because it knows
        the example's class. If it knows little of a class, it doubts right labels of this class
        less strongly. An example counts as learned if it is not among the `suspicious`.

        Args:
            count: examples, from the top of the list; None for all that are `suspicious`.

        Returns:
            For each example one of

            - "wrong": its mean doubt is above the mean belief (the doubt, negated) in the labels of
              all learned examples;
            - "rare class: 12 of 20 learned": it is not, and the label's class has less than half of
              the mean number of examples per class;
            - "hard": it is not, and the class is not rare;
            - "unknown: 0 of 8 learned": the model has learned nothing of the label's class, so it
              doubts right labels of this class like wrong ones;
            - "", if it is not suspicious.

        Raises:
            ConfigurationError: if the labels are not known, because only losses are.

        Source:
            Northcutt et al. 2021, arXiv:1911.00068, for the comparison with the belief in right
            labels; they compare by class, in probabilities of one model.
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
        added = self.estimated is None  # a look, which is taken out again
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
            share: fraction of the data set to return, in [0, 1]; examples that were never looked at
                are left out. None for all that are `suspicious`.

        Raises:
            ConfigurationError: if the share is out of its range.
        """
        return self.indices[: self.suspicious if share is None else self._count(share)]

    def rest(self, share: float | None = None) -> Subset:
        """Return the data set without `top(share)`, to train on: `sb.pruned(suspects.rest())`.

        Examples that were never looked at are kept.

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
        """Compare the list with known mislabelled examples, at several shares of the data set.

        Args:
            wrong: which examples of the data set are mislabelled.
            shares: shares of the data set, each in [0, 1].

        Raises:
            ConfigurationError: if a share is out of its range, or `wrong` is of another data set.
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
        """Write the list as CSV, one line per example, the most suspicious first.

        If labels are known, the column `likely` holds what `likely()` returns.

        Args:
            path: path of the file.
            limit: how many examples at most; None for all.
            class_names: the names of the labels; without them, numbers are written. An unknown
                prediction is left empty, and so is its confidence.
            extra: further columns by name, one entry per line that is written.

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
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

    def _count(self, share: float) -> int:
        share = check_number("share", share, "0.05 is a twentieth", most=1)
        return round(share * self.examples)
