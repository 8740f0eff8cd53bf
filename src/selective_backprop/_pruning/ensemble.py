"""One number per example of a data set: the mean over models that were trained for a while."""

import math
import weakref
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, final

import torch
from jaxtyping import Float64
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import BatchSampler, SequentialSampler

from selective_backprop._batches.structure import map_tensors, move_batch
from selective_backprop._core.errors import ConfigurationError, LoaderError, LossError
from selective_backprop._core.isolation import KeptBuffers, eval_mode, kept_random_streams
from selective_backprop._core.options import (
    check_device,
    check_number,
    check_whole,
    find_device,
    settle,
)
from selective_backprop._pipeline.source import Source, open_source

MakeModel: TypeAlias = Callable[[], nn.Module]
Train: TypeAlias = Callable[[nn.Module, int], float | None]
Progress: TypeAlias = Callable[[int, int], None]
Measure: TypeAlias = Callable[[nn.Module, Any, int], Tensor]


@final
@dataclass(frozen=True, eq=False)
class ExampleScores:
    """The score that an ensemble of models gives each example of a data set.

    Attributes:
        scores: the mean over the models, on the CPU.
        spread: the standard deviation between the models; 0 if there is one model.
        source: where the scores come from, in a few words.
        cost: what they cost, in passes of traditional training over the data set (three forwards
            per example): training, as far as it was charged, and scoring.
        uncharged: whether `cost` lacks the training of any of the models.
    """

    scores: Float64[Tensor, " example"]
    spread: Float64[Tensor, " example"]
    source: str
    cost: float
    uncharged: bool


@dataclass(frozen=True)
class Ensemble:
    """Models that are made and trained, and then score every example of a data set.

    Args:
        loader: of the data set, in order and without augmentation.
        make_model: returns a new model.
        train: trains the model it is given, with the seed it is given; may return how many
            passes of traditional training it spent.
        models: how many; at least 1.
        device: where batches are moved to; None for each model's own device.
        progress: called with how many batches are scored and how many there are, over all models.

    Raises:
        ConfigurationError: if `make_model` is a model, or a value is out of its range.
    """

    loader: Any
    make_model: MakeModel
    train: Train
    models: int
    device: torch.device | str | int | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        settle(self, check_whole, "models")
        settle(self, check_device, "device")
        if isinstance(self.make_model, nn.Module):
            raise ConfigurationError(
                f"make_model is a model ({type(self.make_model).__name__}); each one is trained "
                "from the start, so pass a callable that makes a new one: make_model=lambda: Net()"
            )

    def score(self, name: str, measure: Measure, passes: float) -> ExampleScores:
        """Train the models one after the other and average their scores of each example.

        Args:
            name: the score's name.
            measure: `(model, batch, rows) -> [row]`, called without gradients in eval mode.
            passes: what one scoring pass costs, in passes of traditional training.

        Raises:
            ConfigurationError: if no new model is made, or `train` returns anything but a number
                or None.
            LoaderError: if the loader does not go through its data set in order, or augments.
            LossError: if there is not one finite score per example.
        """
        source = _open_in_order(self.loader)
        sample = _load_twice(source)
        # One tensor can serve for both, as neither is written in place.
        mean = squares = torch.zeros(source.examples or 0, dtype=torch.float64)
        spent: list[float | None] = []
        previous = None
        for seed in range(self.models):
            model = self._make(previous)
            previous = weakref.ref(model)  # weak, so that the model can be freed
            if seed == 0:
                self._rehearse(name, model, sample, measure)
            spent.append(_charged(self.train(model, seed)))
            scores = self._pass(name, source, model, measure, seed)
            del model  # frees its memory before the next one is made
            off = scores - mean  # Welford's sums need no model's scores once they are added
            mean = mean + off / (seed + 1)
            squares = squares + off * (scores - mean)
        return ExampleScores(
            mean,
            (squares / max(1, self.models - 1)).sqrt(),
            f"{name}, {self.models} model{'s' * (self.models > 1)}, {_epochs(spent)}",
            math.fsum(cost for cost in spent if cost is not None) + self.models * passes,
            None in spent,
        )

    def _make(self, previous: Callable[[], nn.Module | None] | None) -> nn.Module:
        model = self.make_model()
        if not isinstance(model, nn.Module):
            raise ConfigurationError(
                f"make_model returned {type(model).__name__}; a torch.nn.Module is needed"
            )
        if previous is not None and previous() is model:
            raise ConfigurationError(
                "make_model returned the model that it returned before, trained already; it must "
                "make a new one each time: make_model=lambda: Net()"
            )
        return model

    def _rehearse(
        self, name: str, model: nn.Module, sample: tuple[Any, int], measure: Measure
    ) -> None:
        """Score a few examples before any time goes into training, so that errors come early."""
        if any(is_lazy(tensor) for tensor in chain(model.parameters(), model.buffers())):
            return  # training determines the shapes of lazy parameters
        batch, rows = sample
        where = find_device(model, None)  # training may move the model elsewhere
        with _untouched(model, where):
            moved = batch if where is None else move_batch(batch, where)
            _check_scores(name, _one_per_row(name, measure(model, moved, rows), rows))

    def _pass(
        self, name: str, source: Source, model: nn.Module, measure: Measure, number: int
    ) -> Tensor:
        where = find_device(model, self.device)
        batches = source.length()
        pieces = []
        with _untouched(model, where):
            loaded = zip(_private(source), source.sizes() or (), strict=True)
            for done, (batch, rows) in enumerate(loaded, start=number * batches + 1):
                moved = batch if where is None else move_batch(batch, where)
                pieces.append(_one_per_row(name, measure(model, moved, rows), rows))
                if self.progress is not None:
                    self.progress(done, self.models * batches)
        return _check_scores(name, torch.cat(pieces))


@contextmanager
def _untouched(model: nn.Module, device: torch.device | None) -> Generator[None]:
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(kept_random_streams(device))
        stack.enter_context(eval_mode(model))
        stack.enter_context(KeptBuffers(model).kept())
        yield


def _one_per_row(name: str, scores: Tensor, rows: int) -> Tensor:
    if tuple(scores.shape) != (rows,):
        raise LossError(
            f"{name} has shape {tuple(scores.shape)} for a batch of {rows} examples; one score per "
            "example is needed. Pass outputs=callable(model, batch) -> (outputs, targets), with "
            "one row per example."
        )
    return scores


def _check_scores(name: str, scores: Tensor) -> Tensor:
    """Return the scores in float64 on the CPU, if all are finite."""
    scores = scores.to("cpu").double()
    if not (finite := scores.isfinite()).all():
        first = int((~finite).nonzero()[0])
        raise LossError(
            f"{name} of example {first} is {float(scores[first])} ({int((~finite).sum())} such "
            f"of {len(scores)}): the model's outputs are not finite, or the target is none of its "
            "classes (0 to the number of outputs - 1)"
        )
    return scores


def _open_in_order(loader: Any) -> Source:
    """Open a loader whose batches go through its whole data set in order.

    Raises:
        LoaderError: if they do not; the message says what to write.
    """
    source = open_source(loader)
    grouping = loader.batch_sampler
    sampler = getattr(grouping, "sampler", loader.sampler)
    found = None
    if source.examples is None:
        found = f"a stream ({type(loader.dataset).__name__}), whose examples have no indices"
    elif grouping is None:
        found = "batch_size=None"
    elif type(grouping) is not BatchSampler:
        found = f"batch_sampler={type(grouping).__name__}"
    elif type(sampler) is not SequentialSampler:
        shuffles = " (shuffle=True)" if type(sampler).__name__ == "RandomSampler" else ""
        found = f"{type(sampler).__name__}{shuffles}"
    elif grouping.drop_last and source.examples % grouping.batch_size:
        found = "drop_last=True"
    elif len(sampler) != source.examples:
        found = f"a sampler of {len(sampler)} examples for a data set of {source.examples}"
    elif not source.indexed:
        found = "in_order=False"
    if found is not None:
        raise LoaderError(
            "scores are filed by position in the data set, so the loader must go through all of "
            f"it in order; this one has {found}. Write DataLoader(dataset, batch_size=256), of "
            "the data set without augmentation."
        )
    return source


def _private(source: Source, indices: Any = None) -> Any:
    """Return a copy of the user's loader that does not draw from the user's generator."""
    loader = source.copy_with(source.indices() if indices is None else indices)
    # None makes it draw from the global random stream, which callers restore.
    object.__setattr__(loader, "generator", None)
    return loader


def _load_twice(source: Source) -> tuple[Any, int]:
    """Load up to 16 examples twice, and return a batch of them and its number of examples.

    Raises:
        LoaderError: if the examples differ when they are loaded again.
    """
    rows = min(source.examples or 1, 16)
    size = min(source.batch_size or 1, rows)
    groups = [list(range(start, min(start + size, rows))) for start in range(0, rows, size)]
    with kept_random_streams(None):
        one, other = (list(_private(source, groups)) for _ in range(2))
    leaves: list[list[Tensor]] = [[], []]
    for batches, found in zip((one, other), leaves, strict=True):
        map_tensors(lambda leaf, found=found: found.append(leaf) or leaf, batches)
    if len(leaves[0]) != len(leaves[1]) or not all(map(_same, *leaves)):
        raise LoaderError(
            f"the first {rows} examples differ each time they are loaded: the data set augments "
            "them. Pass a loader of the same examples without augmentation, so that scores are of "
            "the examples and not of chance."
        )
    return one[0], size


def _same(one: Tensor, other: Tensor) -> bool:
    # NaN is not equal to itself.
    return torch.equal(one, other) or torch.equal(one.nan_to_num(), other.nan_to_num())


def _charged(spent: Any) -> float | None:
    """Return the passes of traditional training that `train` reports; None if it reports none.

    Raises:
        ConfigurationError: if it returned anything but a number or None.
    """
    hint = "return the epochs of traditional training that it spent, or None where unknown"
    return check_number("train()", spent, hint, optional=True)


def _epochs(spent: list[float | None]) -> str:
    known = [cost for cost in spent if cost is not None]
    if len(known) < len(spent):
        return "training not charged"
    mean = math.fsum(known) / len(known)
    each = "" if len(known) == 1 else " each" if len(set(known)) == 1 else " on average"
    return f"{mean:.4g} epoch{'s' * (mean != 1)}{each}"
