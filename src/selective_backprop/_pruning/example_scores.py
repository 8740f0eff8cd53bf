"""EL2N: how wrong models early in training are about each example."""

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import BatchSampler, SequentialSampler

from selective_backprop._batches.losses import LossFunction, apply_to_pair, find_losses
from selective_backprop._batches.structure import are_equal, list_tensors, move_batch
from selective_backprop._core.errors import ConfigurationError, LoaderError, LossError
from selective_backprop._core.isolation import KeptModel, kept_random_streams
from selective_backprop._core.options import check_number, check_whole, find_device
from selective_backprop._core.types import Float32, Float64, LossesOf, OutputsOf
from selective_backprop._pipeline.row_checks import check_order
from selective_backprop._pipeline.source import Source, open_source
from selective_backprop.scorers._forward import error_norms

MakeModel: TypeAlias = Callable[[], nn.Module]
Train: TypeAlias = Callable[[nn.Module, int], float | None]
Measure: TypeAlias = Callable[[nn.Module, Any, int], Tensor]  # of a batch and its number of rows


@final
@dataclass(frozen=True, eq=False)
class ExampleScores:
    """One score per example of a data set, averaged over several models.

    Attributes:
        scores: each example's mean score over the models, on the CPU.
        source: where the scores come from, in a few words.
        cost: of scoring, and what your `train` function returned, in epochs of plain training. An
            epoch counts as three forward passes per example.
    """

    scores: Float64[Tensor, " example"]
    source: str
    cost: float

    def __repr__(self) -> str:
        lowest, highest = self.scores.aminmax()
        return f"{len(self.scores):,} scores from {lowest:.4g} to {highest:.4g} ({self.source})"


def el2n_scores(
    loader: Any,
    make_model: MakeModel,
    train: Train,
    *,
    models: int = 10,
    outputs: OutputsOf | None = None,
) -> ExampleScores:
    """Score every example by how wrong models are about it early in training.

    Your `make_model` and `train` make several models and train them, usually for a few epochs. Then
    each model scores every example once, in eval mode. The score is the L2 norm of a difference:
    predicted minus target class probabilities. It is averaged over the models: 0 if all models are
    sure and right, and √2 if all are sure and wrong.

    The first model scores a few examples before it is trained, so that errors in your code show up
    early. Scoring does not advance the random generators.

    Args:
        loader: a `DataLoader` of the whole data set, in order and without augmentation.
        make_model: returns a new, untrained model.
        train: `train(model, seed)` trains the model in place, for as long as you want. It may
            return its cost, in epochs of plain training, to be included in `ExampleScores.cost`.
        models: number of models to average over, at least 1. `train` gets the seeds 0, 1, 2, …
        outputs: `outputs(model, batch)` returns logits `[example, class]`, and targets: class
            numbers `[example]` or class probabilities `[example, class]`. By default, these are
            `(model(inputs), targets)` for a batch `(inputs, targets)`.

    Returns:
        The scores and their cost. Scoring with one model costs a third of a training epoch.

    Raises:
        LoaderError: if the loader shuffles, leaves examples out or augments.
        ConfigurationError: if an argument, or what it returns, is none of the above.
        LossError: if outputs and targets do not give one finite score per example.

    Source:
        Paul et al. 2021, arXiv:2107.07075, section 2. The paper averages over models, too.
    """
    outputs_of = outputs or of_pair

    def errors(model: nn.Module, batch: Any, rows: int) -> Tensor:
        return error_norms(*outputs_of(model, batch))

    return score_examples("EL2N", errors, 1 / 3, loader, make_model, train, models)


def example_losses(
    loader: Any,
    model: nn.Module,
    loss_fn: LossFunction | None = None,
    *,
    losses: LossesOf | None = None,
    outputs: OutputsOf | None = None,
) -> Float32[Tensor, " example"]:
    """Return a model's loss on every example, from one forward pass over the data set.

    `tail_sft(initial=…)` takes the losses before training, and `rho_loss` those of a model trained
    on other examples. The model runs in eval mode and is not changed.

    Args:
        loader: as for `el2n_scores`.
        model: the model whose losses are returned. Batches are moved to its device.
        loss_fn: your loss. One loss per example is computed, whatever its `reduction`. The loss of
            a text is the mean over its tokens.
        losses: `callable(model, batch)` that returns one loss per example, in place of `loss_fn`.
        outputs: as for `el2n_scores`; `loss_fn` takes what it returns.

    Returns:
        One loss per example, in the data set's order, on the CPU.

    Raises:
        LoaderError, LossError: as by `el2n_scores`.
        ConfigurationError: if neither `loss_fn` nor `losses` is given.
    """
    found = find_losses(loss_fn, losses, outputs, marks=False)
    source = open_in_order(loader)
    load_twice(source)
    each = _measure("the loss", lambda net, batch, _: found(net, batch), model, load_all(source))
    return each.float()


def score_examples(
    name: str,
    measure: Measure,
    passes: float,
    loader: Any,
    make_model: MakeModel,
    train: Train,
    models: int,
) -> ExampleScores:
    models = check_whole("models", models)
    source = open_in_order(loader)
    sample = load_twice(source)[:1]
    mean = torch.zeros(source.examples or 0, dtype=torch.float64)
    spent: list[float | None] = []
    previous = None
    for seed in range(models):
        model = make_model if isinstance(make_model, nn.Module) else make_model()
        same = model is make_model or (previous is not None and previous() is model)
        if same or not isinstance(model, nn.Module):
            raise ConfigurationError(
                f"make_model must be a function that makes a new, untrained model each time, such "
                f"as lambda: Net(); it {'gives the same' if same else 'returns a'} "
                f"{type(model).__name__}{' again' * same}"
            )
        previous = weakref.ref(model)  # weak, so that the model can be freed
        lazy = any(is_lazy(tensor) for tensor in chain(model.parameters(), model.buffers()))
        if seed == 0 and not lazy:  # training determines the shapes of lazy parameters
            # Scored before any time goes into training, so that errors come early.
            _measure(name, measure, model, sample)
        hint = "return the cost in epochs of plain training, or None"
        spent.append(check_number("train()", train(model, seed), hint, optional=True))
        scores = _measure(name, measure, model, load_all(source))
        del model  # frees its memory before the next one is made
        mean = mean + (scores - mean) / (seed + 1)
    cost = math.fsum(each or 0.0 for each in spent)
    charged = "training not charged" if None in spent else f"{cost:.4g} epochs of training"
    said = f"{name}, {models} model{'s' * (models > 1)}, {charged}"
    return ExampleScores(mean, said, cost + models * passes)


def _measure(
    name: str, measure: Measure, model: nn.Module, batches: Iterable[tuple[Any, int]]
) -> Float64[Tensor, " example"]:
    pieces, device = [], find_device(model, None)
    kept = KeptModel(model).kept(evaluates=True)
    with torch.no_grad(), kept_random_streams(device), kept:
        for batch, rows in batches:
            piece = measure(model, batch if device is None else move_batch(batch, device), rows)
            if tuple(piece.shape) != (rows,):
                raise LossError(
                    f"{name} has shape {tuple(piece.shape)} for a batch of {rows} examples; one "
                    "score per example is needed. Pass outputs=callable(model, batch) -> "
                    "(outputs, targets), with one row per example."
                )
            pieces.append(piece)
    scores = torch.cat(pieces).to("cpu").double()
    if not (finite := scores.isfinite()).all():
        first = int((~finite).nonzero()[0])
        raise LossError(
            f"{name} of example {first} is {float(scores[first])} (not finite for "
            f"{int((~finite).sum())} of {len(scores)} examples): the model's outputs are not "
            "finite, or the target is none of its classes (0 to the number of outputs - 1)"
        )
    return scores


def open_in_order(loader: Any) -> Source:
    """Open a loader whose batches go through its whole data set in order; refuse others."""
    source = open_source(loader)
    grouping = loader.batch_sampler
    sampler = getattr(grouping, "sampler", loader.sampler)
    ordered = type(grouping) is BatchSampler and type(sampler) is SequentialSampler
    whole = ordered and source.indexed and len(sampler) == source.examples
    drop_last = getattr(grouping, "drop_last", False)
    if not whole or (drop_last and len(sampler) % grouping.batch_size):
        parts = {"dataset": loader.dataset, "sampler": sampler, "batch_sampler": grouping}
        found = ", ".join(f"{option}={type(part).__name__}" for option, part in parts.items())
        count = f" for {len(sampler)} of {source.examples}" if ordered else ""
        raise LoaderError(
            "examples are known by their position in the data set, so the loader must go through "
            f"all of it in order, but it has {found}{count}, {drop_last=}, "
            f"in_order={loader.in_order}. Write DataLoader(dataset, batch_size=256), without "
            "shuffle, and with a data set that does not augment"
        )
    return source


def _private(source: Source, indices: Any) -> Any:
    loader = source.copy_with(indices)
    # None makes it draw from the global random stream, which callers restore.
    object.__setattr__(loader, "generator", None)
    return loader


def load_all(source: Source) -> Iterator[tuple[Any, int]]:
    yield from zip(_private(source, source.indices()), source.sizes() or (), strict=True)


def load_twice(source: Source) -> list[tuple[Any, int]]:
    """Return batches of the first 16 examples and their sizes; refuse what changes or reorders."""
    rows = min(source.examples or 1, 16)
    size = min(source.batch_size or 1, rows)
    groups = [list(range(start, min(start + size, rows))) for start in range(0, rows, size)]
    with kept_random_streams(None):
        one, other = (list(_private(source, groups)) for _ in range(2))
    check_order(one[0], groups[0], source.loader)
    both = list_tensors(one), list_tensors(other)
    if len(both[0]) != len(both[1]) or not all(map(are_equal, *both)):
        raise LoaderError(
            f"the first {rows} examples differ each time they are loaded: the data set augments "
            "them. Pass the same examples without augmentation"
        )
    return [*zip(one, map(len, groups), strict=True)]


def of_pair(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise LossError(
            f"the batch is a {type(batch).__name__}, not a pair (inputs, targets), so the model's "
            "inputs are not known. Pass outputs=callable(model, batch) -> (outputs, targets)."
        )
    return apply_to_pair(model, batch)
