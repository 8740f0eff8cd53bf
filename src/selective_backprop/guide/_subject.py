"""The subject of an advice: a copy of a training, on which anything may be tried."""

import copy
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from selective_backprop._batches.losses import LossFunction, check_losses, find_losses
from selective_backprop._batches.structure import Layout, count_rows, move_batch
from selective_backprop._core.errors import ConfigurationError, LoaderError, SelectiveBackpropError
from selective_backprop._core.isolation import kept_random_streams, unwrapped
from selective_backprop._core.options import (
    check_pad,
    check_paths,
    check_rate,
    check_whole,
    find_device,
)
from selective_backprop._core.types import LossesOf, OutputsOf, Scores
from selective_backprop._pipeline.resume_point import generators_of
from selective_backprop._pipeline.source import Source, open_source
from selective_backprop.guide._gradients import trained

MOMENTUM = 0.9


@dataclass(frozen=True, eq=False)
class Subject:
    """A copy of a training.

    Attributes:
        model: the copy of the model.
        optimizer: of the copy's parameters.
        losses: returns one loss per example of a batch.
        source: the user's loader.
        layout: how rows lie in a batch.
        device: where batches are moved to; None leaves them where they are.
        batch_size: rows of a training batch.
        window: candidates that a training batch is drawn from.
        examples: candidates of an epoch.
        autocast: the type that training passes are computed in; None for the model's own.
        candidates: a loader of the batches that are scored; None for the user's.
    """

    model: nn.Module
    optimizer: Optimizer
    losses: LossesOf
    source: Source
    layout: Layout
    device: torch.device | None
    batch_size: int
    window: int
    examples: int
    autocast: torch.dtype | None
    candidates: Source | None = None

    @property
    def rate(self) -> float:
        """The share of the candidates that selection keeps."""
        return self.batch_size / self.window

    @property
    def knows_examples(self) -> bool:
        """Whether examples can be selected before they are loaded."""
        return self.source.indexed and self.source.examples is not None

    def loader(self, *, workers: bool = False, scored: bool = False) -> DataLoader[Any]:
        """Return a loader like the user's, or of the batches that are scored.

        It loads in this process unless `workers` is set.
        """
        source = self.candidates if scored and self.candidates is not None else self.source
        clone = source.copy_with(source.indices())
        return clone if workers else without_workers(clone)

    def batches(self) -> Iterator[Any]:
        """Yield an epoch's candidate batches, where the copy is."""
        for batch in self.loader(scored=True):
            yield batch if self.device is None else move_batch(batch, self.device)

    def example_losses(self, batch: Any) -> Scores:
        """Return the loss of each example of a batch, as training computes it.

        Raises:
            LossError: if there is not one loss for each example.
        """
        kind = "cpu" if self.device is None else self.device.type
        casts = nullcontext() if self.autocast is None else torch.autocast(kind, self.autocast)
        with casts:
            return check_losses(self.losses(self.model, batch), None)

    def try_a_step(self) -> int:
        """Train on the loader's first batch, and return how many rows it has.

        Raises:
            LoaderError: if the loader yields no batch.
            LossError: if the batch does not give one loss per example.
            ConfigurationError: if the model cannot run on the batch, or its loss has no gradient.
        """
        batch = next(self.batches(), None)
        if batch is None:
            raise LoaderError("the loader yielded nothing: there is no batch to measure on")
        rows = count_rows(batch, self.layout)
        try:
            losses = check_losses(self.example_losses(batch), rows)
            self.optimizer.zero_grad()
            losses.mean().backward()
            self.optimizer.step()
        except SelectiveBackpropError:
            raise
        except Exception as error:  # the user's model may raise anything
            raise ConfigurationError(
                f"the model cannot be trained on the loader's first batch of {rows} rows: "
                f"{type(error).__name__}: {error}"
            ) from error
        return rows


def copy_training(model: nn.Module, optimizer: Optimizer | None) -> tuple[nn.Module, Optimizer]:
    """Return a copy of a model, and a copy of its optimiser that updates the copied model.

    Args:
        model: to be copied; it does not change.
        optimizer: of the model; None for SGD, whose steps cost about as much as others'.

    Raises:
        ConfigurationError: if there is nothing to train, the optimiser is of another model, or
            either cannot be copied.
    """
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"a torch.nn.Module is needed, got {type(model).__name__}")
    model = unwrapped(model)
    if not trained(model):
        raise ConfigurationError(
            f"the model ({type(model).__name__}) has no parameter that requires a gradient, so "
            "that there is no training to advise on"
        )
    together = distributed.is_available() and distributed.is_initialized()
    if together and distributed.get_world_size() > 1:
        raise ConfigurationError(
            "several processes train together; ask for advice in one process, on one rank's "
            "share of the data"
        )
    if optimizer is not None:
        own = {id(parameter) for parameter in model.parameters()}
        moved = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if not moved <= own:
            raise ConfigurationError(
                "the optimiser moves parameters that are not the model's; pass the optimiser of "
                "this model, or None"
            )
    try:
        # In one call, so that the copied optimiser holds the copied model's parameters.
        twin, other = copy.deepcopy((model, optimizer))
    except Exception as error:  # a user's module may raise anything
        raise ConfigurationError(
            f"the model ({type(model).__name__}) cannot be copied with copy.deepcopy: {error}"
        ) from error
    if other is None:
        other = torch.optim.SGD(trained(twin), lr=0.01, momentum=MOMENTUM)
    twin.zero_grad(set_to_none=True)
    return twin, other


def take_subject(
    model: nn.Module,
    loader: DataLoader[Any],
    loss_fn: LossFunction | None,
    *,
    optimizer: Optimizer | None,
    rate: float,
    losses: LossesOf | None = None,
    outputs: OutputsOf | None = None,
    examples: int | None = None,
    autocast: torch.dtype | None = None,
    pad: Mapping[str, float] | None = None,
    whole: Collection[str] = (),
    device: torch.device | str | int | None = None,
    candidates: DataLoader[Any] | None = None,
) -> Subject:
    """Return a copy of a training that has taken a step; see `advise` for its arguments."""
    examples = check_whole("examples", examples, optional=True)
    rate = check_rate("rate", rate)
    source = open_source(loader)
    where = find_device(model, device)
    example_losses = find_losses(loss_fn, losses, outputs)
    layout = Layout(check_paths("whole", whole), check_pad(pad))
    twin, twins_optimizer = copy_training(model, optimizer)
    subject = Subject(
        model=twin,
        optimizer=twins_optimizer,
        losses=example_losses,
        source=source,
        layout=layout,
        device=where,
        # The next three are placeholders until a step has shown how many rows a batch has.
        batch_size=source.batch_size or 1,
        window=1,
        examples=0,
        autocast=autocast,
        candidates=None if candidates is None else open_source(candidates),
    )
    rows = subject.try_a_step()
    size = source.batch_size or rows
    return replace(
        subject,
        batch_size=size,
        window=max(size, round(size / rate)),
        examples=examples or _count(source, size),
    )


def _count(source: Source, batch_size: int) -> int:
    """Return how many candidates an epoch has.

    Raises:
        ConfigurationError: if the loader does not tell.
    """
    sizes = source.sizes()
    if sizes is not None:
        return sum(sizes)
    batches = source.batches
    if batches is not None:
        return batches * batch_size
    if source.examples is not None:
        return source.examples
    raise ConfigurationError(
        "the loader does not say how many examples an epoch has; pass examples=, such as 50_000"
    )


def without_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Let a copy of the user's loader load in this process, and return it."""
    if loader.num_workers:
        # A DataLoader refuses plain assignments to some of its attributes.
        for name in ("num_workers", "timeout", "persistent_workers"):
            object.__setattr__(loader, name, 0)
    return loader


@contextmanager
def kept_streams(loader: DataLoader[Any], device: torch.device | None) -> Generator[None]:
    """Run the body, then put back every random stream that loading or training draws from."""
    held: list[torch.Generator] = []
    for part in (loader, loader.batch_sampler, loader.dataset):
        held += [each for each in generators_of(part) if not any(each is one for one in held)]
    states: list[Tensor] = [each.get_state() for each in held]
    try:
        with kept_random_streams(device):
            yield
    finally:
        for generator, state in zip(held, states, strict=True):
            generator.set_state(state)
