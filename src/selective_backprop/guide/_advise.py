"""Advise whether to train with `auto`, by copies, classes and wrong labels in the training data."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot, relu
from torch.utils.data import BatchSampler, DataLoader, Dataset

from selective_backprop._batches.losses import LossFunction, is_no_cross_entropy, label_smoothing
from selective_backprop._core.errors import LoaderError
from selective_backprop._core.options import check_number, check_whole
from selective_backprop._core.types import Float, Float64, Int64
from selective_backprop._loader.weighted_loss import WeighingLoss
from selective_backprop._pipeline.index_sampler import list_keys
from selective_backprop._pipeline.rows import kept_streams
from selective_backprop._pipeline.source import Source, open_source
from selective_backprop.guide import _row_contents as contents

MOST, CLASSIFIED = 100_000, 10_000  # most examples to search for copies, and for wrong labels
LOOKED_AT = 16  # examples at least, to find out which numbers are positions in the data set
READING = 0.5  # share of `seconds` that reading may take
MANY = 0.03  # share of copies or wrong labels; in data without any, less than this is found
SKEWED = 0.8  # share of the classes; if fewer classes are effective, some count as rare
FEATURES = 1000  # number of random features that wrong labels are estimated from
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)  # of the ridge regression, times the number of examples
SUREST = 0.1  # share of each predicted class that counts as the surest
LEAST_SURE = 500  # surest examples, if a tenth of all would be fewer
MOST_SURE = 0.35  # share of each predicted class, at most
WIDER, HARDLY = 3, 0.05  # among 3 times as many sure ones, 0.05 more may disagree
BY_CHANCE = 0.5  # times the errors of always guessing the largest class; more means not learned
LEAST_EXAMPLES, MOST_CLASSES = 200, 1000
SHORT = 4  # epochs; with wrong labels and no smoothing, `auto` did worse in 4: docs/auto.md
LOADER = "loader = sb.SelectiveLoader(loader, model, {}, sb.auto())"
# With wrong labels `auto` can gain more with it. Elsewhere it only spoils the log-loss.
SMOOTHED = "nn.CrossEntropyLoss(label_smoothing=0.3)"
WrongLabels = tuple[float | None, float | None, float | None]
UNKNOWN: WrongLabels = (None, None, None)
# Why labels, or copies, could not be judged, and what to do.
CHANGED = "Loading changes examples at random: pass data= with a loader that does not."
UNCLASSED = (
    "Targets are not one integer from 0 for each example: pass data= with such targets, as by "
    "labels.argmax(1) or labels.long(). On a regression, auto cannot work: see docs/choose.md."
)
FEW = f"This takes {LEAST_EXAMPLES} examples, several classes, and tensors of one size: pass data=."
HARD = "Classes are hard to tell apart: train plainly, then ask sb.guide.find_label_issues."


@dataclass(frozen=True)
class DataTraits:
    """Copies, classes and wrong labels in a sample of the training data.

    Attributes:
        sample: number of examples in the sample.
        copies: share of examples whose inputs exactly repeat those of an earlier example, in
            [0, 1). None if inputs are not tensors, or if loading changes them at random.
        classes: number of classes; None if targets are not class numbers.
        effective_classes: the exponential of the entropy of the class shares, or None.
        wrong_labels: share of the labels that look wrong, in [0, 1]. None if there are fewer than
            200 examples or more than 1,000 classes, or if classes are too hard to tell apart.
        wrong_labels_error: standard error of `wrong_labels`, which rests on a sample.
        wrong_labels_at_most: a rough upper bound, known even if classes are hard to tell apart.
        unknown: why something is not known, and what to do; empty if all is.
    """

    sample: int
    copies: float | None
    classes: int | None
    effective_classes: float | None
    wrong_labels: float | None
    wrong_labels_error: float | None
    wrong_labels_at_most: float | None
    unknown: str = ""

    @property
    def repetitive(self) -> bool:
        """Whether at least 3 % of the sample are copies."""
        return (self.copies or 0.0) >= MANY

    @property
    def skewed(self) -> bool:
        """Whether some classes are rare: `effective_classes` is below 80 % of `classes`."""
        return self.classes is not None and (self.effective_classes or 0) < SKEWED * self.classes

    @property
    def mislabelled(self) -> bool:
        """Whether `wrong_labels` minus two standard errors is at least 3 %."""
        return (self.wrong_labels or 0.0) - 2 * (self.wrong_labels_error or 0.0) >= MANY

    def __str__(self) -> str:
        said = ["copies unknown" if self.copies is None else f"{self.copies:.0%} are copies"]
        if self.classes is not None:
            said.append(f"{self.classes} classes, effectively {self.effective_classes:.1f}")
        if self.wrong_labels is not None:
            said.append(f"{self.wrong_labels:.0%} of the labels look wrong")
        elif self.wrong_labels_at_most is not None:
            said.append(f"at most {self.wrong_labels_at_most:.0%} of the labels are wrong")
        return "; ".join(said)


def data_traits(data: DataLoader[Any] | Dataset[Any], *, seconds: float = 60.0) -> DataTraits:
    """Measure copies, classes and wrong labels in training data, without a model or a GPU.

    Up to 100,000 examples are searched for copies, and up to 10,000 for wrong labels. Reading stops
    after half of `seconds`. The examples are drawn at random from an epoch; from a stream, the
    first examples are taken. Loader and random generators are left as they were.

    Only exact copies within the sample are counted. The estimate of wrong labels assumes that easy
    examples are mislabelled as often as hard ones, and that near copies do not share a wrong label.

    Args:
        data: the training loader or data set; its examples are as for `find_copies`.
        seconds: about how many seconds the measurement may take, above 0.

    Raises:
        LoaderError: if `data` is neither a loader nor a data set, or yields nothing.
    """
    seconds = check_number("seconds", seconds, "60 is a minute", above=0)
    end = time.perf_counter() + READING * seconds
    given: Any = data
    source = open_source(DataLoader(given, 256) if hasattr(given, "__getitem__") else given)
    hashes, numbers, labels = [], [], []
    rows, pictures, wrong = 0, False, UNKNOWN
    with kept_streams(source.loader, None):
        batches, random, numbering = _draw(source)
        for batch in batches:
            inputs, targets = contents.split_batch(batch)
            inputs = contents.without(contents.tensors_of(inputs), numbering)
            targets = contents.tensors_of(targets and targets[:1])
            count = len(next(iter(inputs or targets), " "))
            fit = [each.shape for each in targets] == [(count,)]
            classes = fit and not targets[0].is_floating_point()
            labels.append(targets[0] if classes else torch.full((count,), -1))
            if inputs:
                hashes += contents.hash_rows(inputs)
                pictures = contents.is_image(inputs[0])
                if rows < CLASSIFIED:
                    numbers.append(contents.as_numbers(inputs))
            rows += count
            if time.perf_counter() > end or rows >= MOST:
                break
    if not rows:
        raise LoaderError("the loader yielded nothing, so there are no data to look at")
    copies = 1 - len(set(hashes)) / rows if hashes and not random else None
    targets = torch.cat(labels)
    values, counts = targets.unique(return_counts=True)
    # If more than half of the targets differ, they are ratings or names.
    if int(values[0]) < 0 or 2 * len(counts) > rows:
        return DataTraits(rows, copies, None, None, *UNKNOWN, CHANGED if random else UNCLASSED)
    if len({part.shape[1] for part in numbers}) == 1:
        table = torch.cat(numbers)
        # The prediction of an example that has a copy among the others would repeat its label.
        once = contents.first_equal(torch.tensor(hashes[: len(table)])).unique()
        table = table[once]
        centred = table - table.mean(0) if pictures else contents.standardised(table)
        wrong = estimate_wrong_labels(centred, targets[once])
    shares = counts.double() / counts.sum()
    effective = float(shares.pow(-shares).prod())
    why = CHANGED if random else "" if wrong[0] is not None else HARD if wrong[2] else FEW
    return DataTraits(rows, copies, len(counts), effective, *wrong, why)


def _draw(source: Source) -> tuple[Iterable[Any], bool, set[int]]:
    """Return batches, drawn at random if possible; whether loading changes examples; numberings."""
    batches, keys = source.loader.batch_sampler, None
    if source.attribute == "batch_sampler" and type(batches) is BatchSampler:
        keys = list_keys(list(islice(batches.sampler, 10 * MOST)))
    if not isinstance(keys, Tensor):
        # The keys are not numbers, or this is a stream, or a custom sampler forms the batches.
        return source.copy_with(source.indices()), False, set()
    keys = keys.unique()
    keys = keys[torch.randperm(len(keys), generator=torch.Generator().manual_seed(0))]
    size = source.batch_size or 1
    drawn = [part.tolist() for part in keys.split(size)]
    first = drawn[: -(-LOOKED_AT // size)]
    loaded = source.copy_with([*first, drawn[0]])
    *once, again = [contents.tensors_of(contents.split_batch(batch)[0]) for batch in loaded]
    pairs = zip(once[0], again, strict=True)
    same = all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs)
    numbering = contents.find_numbering(once, [key for keys in first for key in keys])
    return source.copy_with(drawn), not same, numbering


def estimate_wrong_labels(
    numbers: Float[Tensor, "example number"], labels: Int64[Tensor, " example"]
) -> WrongLabels:
    """Estimate the share of wrong labels, its standard error, and an upper bound.

    A ridge regression on random features predicts each label from all other examples. Among the
    examples with the surest predictions, every label that disagrees with its prediction counts as
    wrong. Wrong labels are assumed to be as frequent in the rest. Only an upper bound is known if
    labels disagree much more often among three times as many examples, or if even the surest
    predictions have more than half of the errors of always guessing the largest class.

    Source:
        Patrini et al. 2017, arXiv:1609.03683, section 4.2, also look where predictions are surest.
    """
    classes, labels = labels.unique(return_inverse=True)
    if not (2 <= len(classes) <= MOST_CLASSES and len(labels) >= LEAST_EXAMPLES):
        return UNKNOWN
    best = _left_out_predictions(_features(numbers), labels).topk(2)
    predictions, leads = best.indices[:, 0], best.values[:, 0] - best.values[:, 1]
    # Ranks within each predicted class; the surest example has rank 0.
    order = leads.argsort(descending=True)
    order = order[predictions[order].argsort(stable=True)]
    counts = predictions.bincount(minlength=len(classes))
    starts = counts.cumsum(0) - counts
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order)) - starts[predictions[order]]
    share = max(SUREST, min(MOST_SURE, LEAST_SURE / len(labels)))

    def disagreeing(share: float) -> tuple[float, int]:
        # Which share of the surest disagrees, weighted by class, and how many they are.
        sure = ranks < (share * counts).ceil()[predictions]
        of_class = predictions[sure].bincount(minlength=len(classes)).clamp(min=1)
        wrong = (predictions != labels)[sure].double()
        wrong = predictions[sure].bincount(wrong, minlength=len(classes)) / of_class
        return float((wrong * counts).sum() / len(labels)), int(sure.sum())

    found, seen = disagreeing(share)
    further, _ = disagreeing(min(1.0, WIDER * share))
    # Counts one more disagreement, so that the error is above 0 even if nothing disagrees.
    odds = (found * seen + 1) / (seen + 2)
    error = math.sqrt(odds * (1 - odds) / seen)
    chance = 1 - float(labels.bincount().max()) / len(labels)
    known = further - found <= HARDLY and found <= BY_CHANCE * chance
    return found if known else None, error, min(1.0, found + 2 * error)


def _features(numbers: Float[Tensor, "example number"]) -> Float64[Tensor, "example feature"]:
    numbers = normalize(numbers.nan_to_num(0.0, 0.0, 0.0))
    generator = torch.Generator().manual_seed(0)
    size = max(10, min(FEATURES, len(numbers) // 4))
    weights = torch.randn(numbers.shape[1], size, generator=generator)
    biases = torch.randn(size, generator=generator) / math.sqrt(max(1, numbers.shape[1]))
    features = relu(numbers @ weights + biases)
    features = (features - features.mean(0)) / features.std(0).clamp(min=1e-6)
    return torch.cat([features, torch.ones(len(features), 1)], 1).double()


def _left_out_predictions(
    features: Float64[Tensor, "example feature"], labels: Int64[Tensor, " example"]
) -> Float64[Tensor, "example class"]:
    """Return each example's class scores from the best ridge regression on all others."""
    wanted = one_hot(labels).double()
    values, vectors = torch.linalg.eigh(features.T @ features)
    turned = features @ vectors
    fitted = turned.T @ wanted
    found, least = wanted, math.inf
    for penalty in PENALTIES:
        shrunk = turned / (values.clamp(min=0) + penalty * len(labels))
        own = (shrunk * turned).sum(1, keepdim=True)  # an example's weight in its own prediction
        scores = (shrunk @ fitted - own * wanted) / (1 - own).clamp(min=1e-9)
        error = float((scores - wanted).square().mean())
        if error < least:
            found, least = scores, error
    return found


@dataclass(frozen=True)
class Advice:
    """Whether to train with `auto`, and why. `print(advice)` shows it in at most four lines.

    Attributes:
        strategy: "auto" if the advice is to train with `auto`, otherwise None.
        verdict: the advice in a sentence.
        reasons: the grounds for the verdict, and what was found in the data.
        code: the lines of code that add `auto` to your training; empty if `strategy` is None.
        traits: what `data_traits` found in the training data.
    """

    strategy: str | None
    verdict: str
    reasons: tuple[str, ...]
    code: tuple[str, ...]
    traits: DataTraits

    def __str__(self) -> str:
        return "\n".join((self.verdict, *self.reasons, *self.code))


def advise(
    loader: DataLoader[Any],
    loss_fn: LossFunction | None,
    *,
    epochs: int | None = None,
    data: DataLoader[Any] | Dataset[Any] | None = None,
    seconds: float = 40.0,
) -> Advice:
    """Advise whether to train with `auto`, based on your data and your loss. Nothing is trained.

    Args:
        loader: the loader of the training data.
        loss_fn: as for `SelectiveLoader`.
        epochs: number of epochs that you plan to train, at least 1; None if unknown.
        data: the loader or data set to search for copies, rare classes and wrong labels; by default
            `loader`. If `loader` augments, pass the training data without augmentation.
        seconds: as for `data_traits`, which looks at the data.

    Raises:
        LoaderError: if `SelectiveLoader` cannot wrap the loader, or the loader yields nothing.
    """
    epochs = check_whole("epochs", epochs, optional=True)
    source, barrier = open_source(loader), None
    if loss_fn is not None:
        loss_fn = WeighingLoss.unwrapped(loss_fn)
    if (other := is_no_cross_entropy(loss_fn)) is not None:
        barrier = f"auto reads confidence from a cross-entropy, and {other} is not one."
    elif not source.indexed or source.examples is None:
        barrier = "auto() knows examples by index, and a stream has none; try auto(stream=True)."
    traits = data_traits(loader if data is None else data, seconds=seconds)
    if barrier is not None:
        verdict = "Do not take auto(): it cannot work on this training."
        elsewhere = "docs/choose.md names strategies for other losses and loaders."
        return Advice(None, verdict, (barrier, elsewhere, f"Data: {traits}."), (), traits)
    smooths = label_smoothing(loss_fn) > 0
    as_made = type(loss_fn) is nn.CrossEntropyLoss and loss_fn.weight is None
    as_made = as_made and (loss_fn.reduction, loss_fn.ignore_index) == ("mean", -100)
    take = SMOOTHED if as_made and not smooths and traits.mislabelled else "loss_fn"
    long = smooths or take == SMOOTHED or epochs is None or epochs > SHORT
    kinds = {
        "labels look wrong": traits.mislabelled and long,
        # If one of two classes is rare, it never gained: docs/pays.md.
        "some classes are rare": traits.skewed and (traits.classes or 0) > 2,
    }
    if what := " and ".join(kind for kind, holds in kinds.items() if holds):
        verdict = f"Try auto: {what}, and on such data it sometimes gains (docs/auto.md)."
        code = (LOADER.format(take), "loss_fn = loader.loss_fn")
        return Advice("auto", verdict, (f"Data: {traits}.",), code, traits)
    verdict = "Do not select: auto gains nothing on data like these."
    why = f"Plain training at the same cost does as well (docs/auto.md). {traits.unknown}".strip()
    if traits.repetitive:
        why += " Many examples are copies: sb.guide.find_copies finds those to leave out."
    if traits.mislabelled:
        why = (
            f"With wrong labels and {SHORT} epochs, auto did worse than plain training "
            "(docs/auto.md): train for longer, or with label smoothing."
        )
    elif traits.wrong_labels is None:
        verdict = "Train without selection: nothing calls for it, and labels could not be judged."
        why = traits.unknown
    return Advice(None, verdict, (why, f"Data: {traits}."), (), traits)
