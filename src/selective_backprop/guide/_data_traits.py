"""What training data are made up of: copies, near-copies, classes and wrong labels."""

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Subset

from selective_backprop._batches.keys import list_keys
from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.errors import LoaderError
from selective_backprop._core.options import check_number
from selective_backprop._core.types import Int64
from selective_backprop._pipeline.source import Source, open_source
from selective_backprop.guide._resemblance import (
    LEAST_DESCRIBED,
    as_numbers,
    describe_images,
    describe_numbers,
    hash_rows,
    is_image,
    share_alike,
    share_repeated,
    standardised,
)
from selective_backprop.guide._subject import kept_streams, without_workers
from selective_backprop.guide._wrong_labels import LEAST_EXAMPLES, estimate_wrong_labels

HASHED, DESCRIBED, CLASSIFIED = 1_000_000, 100_000, 10_000  # examples that are looked at, at most
NUMBERS = 2**24  # of inputs that are no images, kept to be compared: 64 MB
A_SECOND = 400  # examples, at most, that labels are judged by for each second that there is
READING = 0.5  # share of the seconds that reading may take
TARGETS = ("labels", "label", "targets", "target", "y")
RARE = 3  # classes
MANY = 0.03  # share of copies, or of wrong labels, that is more than is found where there are none
SKEWED = 0.8  # of the classes: there are no more in effect, where some are rare


@dataclass(frozen=True)
class DataTraits:
    """What training data are made up of, as far as can be told from a sample.

    Attributes:
        examples: how many there are; None for a stream.
        sample: how many were looked at.
        copies: share of the sample that repeats an earlier example, inputs alone; None if inputs
            are no tensors, or random.
        near_copies: share that repeats another example nearly or exactly, as shifted or brighter
            images do; None likewise, or if there are too few examples.
        classes: how many there are; None if targets are no class numbers, as the next three are.
        class_shares: the share of each class, the largest first.
        effective_classes: the exponential of the classes' entropy: as many classes of equal size
            would be as uncertain.
        rarest: share of the three rarest classes together, or of all but the largest.
        wrong_labels: share of the labels that look wrong; None if there are too few examples, or
            classes are too hard to tell apart.
        wrong_labels_error: standard error of that, from sampling.
        wrong_labels_at_most: what it hardly exceeds, also where it is None for hard classes.
        remarks: why something is None, or less sure.
        seconds: wall seconds that this took.
    """

    examples: int | None
    sample: int
    copies: float | None
    near_copies: float | None
    classes: int | None
    class_shares: tuple[float, ...] | None
    effective_classes: float | None
    rarest: float | None
    wrong_labels: float | None
    wrong_labels_error: float | None
    wrong_labels_at_most: float | None
    remarks: tuple[str, ...]
    seconds: float

    @property
    def repetitive(self) -> bool:
        """Whether clearly more examples are like others than by chance."""
        return max(self.copies or 0.0, self.near_copies or 0.0) >= MANY

    @property
    def skewed(self) -> bool:
        """Whether some classes are clearly rarer than others."""
        return self.classes is not None and (self.effective_classes or 0) < SKEWED * self.classes

    @property
    def mislabelled(self) -> bool:
        """Whether clearly more labels look wrong than by chance."""
        return (self.wrong_labels or 0.0) - 2 * (self.wrong_labels_error or 0.0) >= MANY

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, in sentences."""
        said = []
        if self.copies is not None:
            near = "" if self.near_copies is None else f", {self.near_copies:.1%} nearly or exactly"
            said.append(f"{self.copies:.1%} of the inputs repeat another one exactly{near}.")
        if self.classes is not None:
            few = min(RARE, self.classes - 1)
            rarest = f"{few} rarest have" if few > 1 else "rarest has"
            said.append(
                f"{self.classes} classes are as uncertain as {self.effective_classes:.1f} of equal "
                f"size; the {rarest} {self.rarest:.1%} of the examples."
            )
        if self.wrong_labels is not None:
            said.append(
                f"{self.wrong_labels:.1%} ± {2 * (self.wrong_labels_error or 0):.1%} of the labels "
                "look wrong."
            )
        elif self.wrong_labels_at_most is not None:
            said.append(f"At most {self.wrong_labels_at_most:.0%} of the labels are wrong.")
        return (*said, *self.remarks)

    @property
    def consequences(self) -> tuple[str, ...]:
        """What follows from that for the choice of a strategy, in sentences."""
        said = []
        if self.mislabelled:
            said.append(
                "Labels look wrong: take no rule that favours high losses, since what is "
                "mislabelled keeps one. auto() leaves it out."
            )
        if self.repetitive or self.skewed:
            kinds = ["repetitive"] * self.repetitive + ["skewed"] * self.skewed
            rules = "auto()" if self.mislabelled else "auto() and recorded_sb()"
            said.append(
                f"The data are {' and '.join(kinds)}: what is frequent is soon learned, and there "
                f"skipping can pay. Compare {rules} with traditional training."
            )
        return tuple(said)


def data_traits(data: DataLoader[Any] | Dataset[Any], *, seconds: float = 60.0) -> DataTraits:
    """Measure what training data are made up of, on the CPU and without a model.

    Looks at up to a million examples for copies, 100,000 for near-copies and 10,000 for wrong
    labels, as many of them as can be read in half of the time: a random part of what an epoch
    draws, or the first ones of a stream. Memory is half a gigabyte at most, and a batch. The
    loader, its data set and all random streams stay as they were, but for counters that a data set
    keeps itself.

    Copies are of the sample, so where it is a part of the data there are more. Where examples are
    changed at random as they are loaded, each is loaded with the same random numbers; what draws
    them by the batch hides copies, which are then None. The estimate of wrong labels assumes that
    they are as frequent among easy examples as among hard ones, and independent of each other: a
    wrong label that is copied with its example is not found.

    Args:
        data: what training draws from; batches are `(inputs, targets)`, or mappings with
            `labels`, `label`, `targets`, `target` or `y`.
        seconds: about how long it may take, above 0.

    Raises:
        ConfigurationError: if `seconds` is out of its range.
        LoaderError: if it is neither, or yields nothing.
    """
    seconds = check_number("seconds", seconds, "60 is a minute", above=0)
    begun = time.perf_counter()
    bare = not isinstance(data, DataLoader) and (
        isinstance(data, IterableDataset) or hasattr(data, "__getitem__")
    )
    source = open_source(DataLoader(data, 256) if bare else data)
    sample = _Sample(round(min(CLASSIFIED, max(LEAST_EXAMPLES, A_SECOND * seconds))))
    with kept_streams(source.loader, None):
        for batch in _draw(source, sample):
            sample.add(batch)
            if time.perf_counter() - begun > READING * seconds or sample.rows >= HASHED:
                break
        if not sample.rows:
            raise LoaderError("the loader yielded nothing: there are no data to measure")
        return sample.conclude(source.examples, begun)


class _Sample:
    """What is kept of the examples that were read: of most of them a hash of 8 bytes.

    Args:
        classified: examples, at most, that labels are judged by.
    """

    def __init__(self, classified: int) -> None:
        self.rows = 0
        self.random = False  # whether an example comes in another form each time
        self._classified = classified
        self._hashes: list[Tensor] = []
        self._images: list[Tensor] = []  # described
        self._numbers: list[Tensor] = []
        self._labels: list[Tensor] | None = []
        self._numbered = 0

    def add(self, batch: Any) -> None:
        """Take note of a batch."""
        inputs, targets = _split(batch)
        leaves = _tensors_of(inputs)
        count = len(leaves[0]) if leaves else next(map(len, _tensors_of(targets)), 1)
        self._note_labels(targets, count)
        if leaves:
            self._hashes.append(hash_rows(leaves))
            if is_image(leaves[0]) and self.rows < DESCRIBED:
                self._images.append(describe_images(leaves[0]))
            if self._numbered < self._classified or (
                not self._images and self._numbered * self._numbers[0].shape[1] < NUMBERS
            ):
                self._numbers.append(as_numbers(leaves))
                self._numbered += count
        self.rows += count

    def _note_labels(self, targets: Any, count: int) -> None:
        found = _tensors_of(targets)
        whole = len(found) == 1 and found[0].shape == (count,)
        if not whole or found[0].is_floating_point() or found[0].is_complex():
            self._labels = None
        if self._labels is not None:
            self._labels.append(found[0].long())

    def conclude(self, examples: int | None, begun: float) -> DataTraits:
        """Return what was found."""
        remarks = []
        numbers = torch.cat(self._numbers) if _alike(self._numbers) else None
        copies = near = None
        if self.random:
            remarks.append("Inputs are changed at random as they are loaded, which hides copies.")
        elif not self._hashes:
            remarks.append("Inputs are no tensors, so that nothing is known of copies.")
        else:
            copies = share_repeated(torch.cat(self._hashes))
            described = None if numbers is None else describe_numbers(numbers)
            if self._images:
                described = torch.cat(self._images) if _alike(self._images) else None
            if described is not None and len(described) >= LEAST_DESCRIBED:
                near = max(copies, share_alike(described))
        if examples is not None and self.rows < examples:
            remarks.append(
                f"Of {examples:,} examples {self.rows:,} were looked at; among all there may "
                "be more copies."
            )
        classes = self._count_classes()
        wrong = None
        if classes is None:
            remarks.append("Targets are no class numbers, so that nothing is known of classes.")
        elif numbers is not None and self._labels is not None:
            chosen = numbers[: self._classified]
            chosen = chosen - chosen.mean(0) if self._images else standardised(chosen)
            wrong = estimate_wrong_labels(chosen, torch.cat(self._labels)[: len(chosen)])
            if wrong is not None and wrong.share is None:
                remarks.append(
                    "Classes are too hard to tell apart for an estimate of wrong labels by a quick "
                    "classifier."
                )
        shares = torch.empty(0) if classes is None else classes.double() / classes.sum()
        known = len(shares) > 0
        return DataTraits(
            examples=examples,
            sample=self.rows,
            copies=copies,
            near_copies=near,
            classes=len(shares) if known else None,
            class_shares=tuple(shares.tolist()) if known else None,
            effective_classes=float(torch.special.entr(shares).sum().exp()) if known else None,
            rarest=float(shares[1:][-RARE:].sum()) if known else None,
            wrong_labels=None if wrong is None else wrong.share,
            wrong_labels_error=None if wrong is None else wrong.error,
            wrong_labels_at_most=None if wrong is None else wrong.at_most,
            remarks=tuple(remarks),
            seconds=time.perf_counter() - begun,
        )

    def _count_classes(self) -> Int64[Tensor, " class"] | None:
        """Return how many examples each class has, the largest first; None without classes."""
        if not self._labels:
            return None
        labels = torch.cat(self._labels)
        counts = labels.unique(return_counts=True)[1]
        # Nearly as many as there are examples are numbers, such as ratings or names, not classes.
        if int(labels.min()) < 0 or 2 * len(counts) > len(labels):
            return None
        return counts.sort(descending=True).values


def _alike(parts: list[Tensor]) -> bool:
    return len({part.shape[1] for part in parts}) == 1


def _split(batch: Any) -> tuple[Any, Any]:
    """Return a batch's inputs and targets; None for targets that it does not have."""
    if isinstance(batch, Mapping):
        name = next((each for each in TARGETS if each in batch), None)
        return {key: part for key, part in batch.items() if key != name}, batch.get(name)
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return batch[0], batch[1]
    return batch, None


def _tensors_of(part: Any) -> list[Tensor]:
    """Return the tensors, and arrays as such, of a part of a batch that have a row per example."""
    found = []
    for leaf in list_leaves(part):
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf":
            leaf = torch.from_numpy(leaf)
        plain = isinstance(leaf, Tensor) and leaf.layout is torch.strided and not leaf.is_nested
        if plain and leaf.ndim:
            found.append(leaf.detach().cpu())
    return [leaf for leaf in found if len(leaf) == len(found[0])]


def _draw(source: Source, sample: _Sample) -> Iterator[Any]:
    """Yield batches of examples, each once and in a random order if that is possible."""
    batches = source.loader.batch_sampler
    keys = None
    if source.attribute == "batch_sampler" and type(batches) is BatchSampler:
        keys = list_keys(list(islice(batches.sampler, HASHED)))
    if not isinstance(keys, Tensor):
        # Keys that are no numbers, a stream, or a batch sampler that knows what goes together.
        yield from without_workers(source.copy_with(source.indices()))
        return
    keys = keys.unique()
    keys = keys[torch.randperm(len(keys), generator=torch.Generator().manual_seed(0))]
    drawn = [part.tolist() for part in keys.split(source.batch_size or 1)]
    loader = without_workers(source.copy_with(drawn))
    if not _repeats(source, drawn[0], loader.dataset):
        # What loads whole batches takes random numbers for them together.
        object.__setattr__(loader, "dataset", _SameNumbers(loader.dataset))
        batched = hasattr(source.loader.dataset, "__getitems__")
        batched &= type(source.loader.dataset) is not Subset
        if batched or not _repeats(source, drawn[0], loader.dataset):
            object.__setattr__(loader, "dataset", source.loader.dataset)
            sample.random = True
    yield from loader


def _repeats(source: Source, keys: list[int], dataset: Any) -> bool:
    """Return whether a batch is loaded with the same inputs twice."""
    loader = without_workers(source.copy_with([keys, keys]))
    object.__setattr__(loader, "dataset", dataset)
    found = [_tensors_of(_split(batch)[0]) for batch in loader]
    return all(
        torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(*found, strict=True)
    )


class _SameNumbers(Dataset[Any]):
    """A data set whose examples are all loaded with the same random numbers."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        torch.default_generator.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        return self._dataset[index]
