"""All that adapters need of the package beyond its public names.

An adapter imports the public names and this module, and nothing else of the package. To write one:

1. In `integrations/_<framework>/__init__.py`, call `require`. The adapter's public names go into
   `integrations/<framework>.py`.
2. When the user's objects are put together, `check_strategy`, and `refuse` what cannot work.
3. Wrap the user's loader in `SelectiveLoader(..., with_selection=True)`, and hand its batches to
   the framework. With several processes, `deal_out` gives each its own part of the examples.
4. Call `loader.set_epoch(loader.next_epoch)` before each epoch. After a training step, pass its
   losses to `loader.record`, with the batch's selection, whose weights multiply the losses.
5. Put `loader.state_dict()`, `save_streams` and what else the framework does not save into a
   `StateFile`. `seal` batches that were fetched ahead. Read it all through `Saved`, then change.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import data
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop._batches import losses as _losses
from selective_backprop._batches import structure
from selective_backprop._batches.losses import check_losses
from selective_backprop._batches.serialization import seal, unseal
from selective_backprop._batches.structure import map_tensors, move_batch
from selective_backprop._core.errors import installing, refuse, warn
from selective_backprop._core.files import replacing
from selective_backprop._core.isolation import RandomStreams, kept_random_streams
from selective_backprop._core.options import Padding, check_pad, check_whole, choose
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import NO_TARGET
from selective_backprop._distributed.group import find_ranks
from selective_backprop._loader.candidate_scheduler import end_of
from selective_backprop._loader.messages import warn_of_loss
from selective_backprop._loader.weighted_loss import WeighingLoss
from selective_backprop._pipeline.rows import kept_streams
from selective_backprop._pipeline.source import open_source, unstarted
from selective_backprop._rollouts.rewards import check_band
from selective_backprop.scorers._abstract import scorer_parts
from selective_backprop.strategies._auto import entropies
from selective_backprop.strategies._auto.entropies import check_entropies
from selective_backprop.strategies._strategy import (
    check_loss,
    check_strategy,
    has_collective_forward,
)

# What is defined below; values, and what changes them; what refuses a wrong value; what finds one.
__all__ = ["GivenLoss", "StateFile", "check_options", "deal_out", "drawing", "first_batch"]
__all__ += ["join_rows", "known_length", "read_streams", "require", "save_streams"]
__all__ += ["unpack_selected"]
__all__ += ["NO_TARGET", "Padding", "Saved", "WeighingLoss", "kept_random_streams", "map_tensors"]
__all__ += ["move_batch", "seal", "unseal", "warn"]
__all__ += ["check_band", "check_entropies", "check_loss", "check_losses", "check_strategy"]
__all__ += ["check_whole", "has_collective_forward", "open_source", "refuse"]
__all__ += ["end_of", "find_ranks", "scorer_parts"]

CPU = torch.device("cpu")
INSTEAD = "Start a new training, or load only the model's weights."


def require(framework: str, needed: str) -> None:
    """Refuse a framework that is missing or too old; an extra of this package has its name."""
    advice = f"Install it: {installing(framework)}."
    try:
        found = version(framework)
    except PackageNotFoundError:
        raise ModuleNotFoundError(
            f"the adapter for {framework} needs {framework} {needed} or newer, which is not "
            f"installed. {advice}",
            name=framework,
        ) from None
    # Compared as numbers, 4.9 is before 4.57.
    installed, least = (
        [int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:3]]
        for text in (found, needed)
    )
    if installed < least:
        raise sb.ConfigurationError(
            f"{framework} {found} is installed, but its adapter needs {needed} or newer. {advice}"
        )


def check_options(
    pad: Mapping[str, float] | None, nonfinite: sb.NonFinite | str
) -> tuple[dict[str, float], sb.NonFinite]:
    """Return these options of `SelectiveLoader`, for adapters that build it only in training."""
    return check_pad(pad), choose("nonfinite", nonfinite, sb.NonFinite)


def known_length(loader: Any) -> int | None:
    """Return a loader's number of batches in the coming epoch, or None if it is unknown."""
    if isinstance(loader, DataLoader):
        loader = copy.copy(loader)  # a stream's loader remembers that its length was asked for
    try:
        return len(loader)
    except TypeError:
        return None


def first_batch(loader: DataLoader[Any]) -> Any:
    """Return a batch as the loader yields it; loader and random streams are unchanged."""
    with kept_streams(loader, None):
        return next(iter(unstarted(loader)))


def join_rows(
    batches: Sequence[Any], pad: Mapping[str, float], rows: Sequence[Tensor] | None = None
) -> Any:
    """Return one batch of the given rows of each batch, or of all rows, padded on the right."""
    return structure.join_rows(batches, structure.Layout(pad=pad), rows)


class GivenLoss:
    """The user's loss function, for a framework that passes outputs and losses by its own ways.

    `losses(model, batch)` returns one loss per example, and `outputs(model, batch)` returns outputs
    and targets. Each is None if the user's functions do not give it.
    """

    def __init__(
        self,
        loss_fn: Callable[..., Any] | None,
        losses: Callable[..., Any] | None,
        strategy: sb.Strategy,
    ) -> None:
        check_loss(strategy, _losses.is_no_cross_entropy(loss_fn))
        self._loss_fn, self._strategy, self._warned = loss_fn, strategy, False
        self._excess = strategy.selector.terms.confidence
        self.outputs, self.losses = _losses.find_outputs(losses, None), None
        if loss_fn is not None or losses is not None:
            average = entropies.ExcessLosses() if self._excess else _losses.average_examples
            self.losses = _losses.find_losses(loss_fn, losses, None, average=average)

    def record(
        self,
        loader: sb.SelectiveLoader,
        selection: sb.Selection,
        losses: Tensor,
        targets: Tensor | None,
        outputs: Tensor | None,
        advice: str,
    ) -> None:
        """Record the losses of a training batch.

        Strategies such as `auto` record plain cross-entropies instead, computed from `outputs`.
        Without outputs, a loss that such a strategy would misread causes a warning with `advice`.
        """
        seen = None
        if outputs is not None:
            seen = outputs.detach(), targets
            if self._loss_fn is not None and self._excess:
                losses = entropies.excess_losses(self._loss_fn, losses, *seen)
        elif not self._warned:
            self._warned = True
            warn_of_loss(self._strategy, self._loss_fn, advice)
        smoothing = _losses.label_smoothing(self._loss_fn)
        weighs = self._loss_fn is not None and _losses.class_weights(self._loss_fn) is not None
        if weighs and loader.ledger is not None:
            seen = None  # class weights shift probabilities, so nothing is estimated from these
        loader.record(selection, losses, seen, targets=targets, smoothing=smoothing)


@dataclass(frozen=True)
class StateFile:
    """A file in a checkpoint, which `torch.load(weights_only=True)` reads."""

    path: Path

    @classmethod
    def of_rank(cls, folder: str | Path, name: str, rank: int, ranks: int) -> "StateFile":
        return cls(Path(folder) / f"{name}-{rank}-of-{ranks}.pt")

    def save(self, state: dict[str, Any]) -> None:
        """Write a state atomically: a file is never left half written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as file:
            torch.save(state, file)

    def load(self) -> dict[str, Any]:
        """Return the saved state, without running any code from the file."""
        if not self.path.is_file():
            there = ", ".join(sorted(file.name for file in self.path.parent.glob("*-of-*.pt")))
            why = f", or by another number of processes ({there} is there)" if there else ""
            raise sb.ConfigurationError(
                f"{self.path} is missing, so selection cannot continue from this checkpoint. It "
                f"was saved without selection{why}. {INSTEAD}"
            )
        try:
            return torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes may make the reader raise anything
            raise sb.ConfigurationError(
                f"{self.path} is damaged, so selection cannot continue from this checkpoint: "
                f"{error}. {INSTEAD}"
            ) from error


def unpack_selected(saved: Saved, device: torch.device, kind: Any = sb.Selection) -> Any:
    """Return a sealed batch and its selection, which is of this kind, on the device."""
    found = unseal(saved, tuple)
    if len(found) != 2 or not isinstance(found[1], kind):
        raise saved.refuse("a batch with its selection")
    return move_batch(found, device)


def save_streams(device: torch.device = CPU) -> dict[str, Any]:
    """Return the states of the random streams, that of a GPU included, as plain data."""
    gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"host": seal(RandomStreams.now()), "cuda": gpu}


def read_streams(saved: Saved, device: torch.device = CPU) -> Callable[[], None]:
    """Return a function that restores the random streams."""
    host, cuda = saved.fields("host", "cuda")
    streams, on_gpu = unseal(host, RandomStreams), device.type == "cuda"
    gpu = cuda.random_state(device) if on_gpu and cuda.value is not None else None

    def put_back() -> None:
        streams.put_back()
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, device)

    return put_back


def drawing(loader: DataLoader[Any], sampler: Any, batches: data.BatchSampler, **more: Any) -> Any:
    """Return a copy of a loader with another sampler, in batches of the same size.

    A loader refuses a new sampler, and a new loader would lose what subclasses add. So the copy's
    attributes are set without the loader's check, and so are the attributes in `more`.
    """
    clone = unstarted(loader)
    grouped = data.BatchSampler(sampler, batches.batch_size, batches.drop_last)
    for name, value in {"sampler": sampler, "batch_sampler": grouped, **more}.items():
        object.__setattr__(clone, name, value)
    return clone


def deal_out(loader: DataLoader[Any], batches: Any, seed: int, **rank: Any) -> DataLoader[Any]:
    """Return a loader of one rank's examples, in an order that all ranks draw from the seed.

    `batches` is the sampler of the loader's batches, and `rank` holds `num_replicas` and `rank` of
    a `DistributedSampler`. Loaders of which ranks might draw different orders are refused.
    """
    if type(batches) is not data.BatchSampler:
        raise sb.LoaderError(
            f"a {type(batches).__name__} groups the loader's batches, and cannot be divided among "
            "several processes. Give the loader a batch_size= and a sampler."
        )
    shuffle = _shuffles(batches.sampler, loader)
    dealt = data.DistributedSampler(loader.dataset, shuffle=shuffle, seed=seed, **rank)
    return drawing(loader, dealt, batches)


def _shuffles(sampler: Any, loader: DataLoader[Any]) -> bool:
    """Return whether torch's own sampler draws all examples in a random order, once each."""
    dataset: Any = loader.dataset
    if type(sampler) is data.SequentialSampler:
        return False
    why = "its order may differ between them"
    if isinstance(sampler, data.RandomSampler):  # Accelerate derives from it
        if not sampler.replacement and sampler.num_samples == len(dataset):
            return True
        often = ", some more than once" if sampler.replacement else ""
        why = f"it draws {sampler.num_samples} of {len(dataset)} examples{often}"
    raise sb.LoaderError(
        f"the sampler ({type(sampler).__name__}) cannot be divided among processes, because {why}. "
        "Use shuffle=True or False, or a DistributedSampler."
    )
