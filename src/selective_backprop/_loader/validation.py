"""What a door refuses before training starts."""

import sys
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from numbers import Real
from typing import Any

import torch
from torch import nn

from selective_backprop._batches.losses import find_outputs, no_plain_cross_entropy
from selective_backprop._core.errors import ConfigurationError, LoaderError, warn
from selective_backprop._core.options import check_device, check_whole
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.stats import Stats
from selective_backprop._distributed.group import Alone, Ranks
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.source import Source
from selective_backprop._sampling.draws import Draw
from selective_backprop.selectors import Terms
from selective_backprop.strategies import Strategy

MOST_CANDIDATES = 2**53  # of a window: beyond, a float no longer counts them one by one


def check_strategy(strategy: Any) -> Strategy:
    """Return the strategy if it is one.

    Raises:
        ConfigurationError: if it is not; a function that was not called is the usual slip.
    """
    if isinstance(strategy, Strategy):
        return strategy
    hint = "Strategy(name, scorer, selector, schedule)"
    if callable(strategy):
        hint = f"{getattr(strategy, '__name__', 'it')}(...), called"
    raise ConfigurationError(f"a strategy is needed, got {strategy!r}; write {hint}")


def check_fit(strategy: Strategy, source: Source, losses: Any, outputs: Any) -> None:
    """Refuse a strategy that cannot work with this loader.

    Raises:
        LoaderError: if examples must be known by index and are not.
        ConfigurationError: if outputs are not to be had.
    """
    needs, terms = strategy.needs, strategy.selector.terms
    draws_early = not terms.keeps_everything and (needs is None or not needs.passes)
    by_index = needs is not None and (needs.indices or needs.remembers)
    if not source.indexed and (draws_early or by_index):
        why = "selects examples by index before they are loaded"
        if not draws_early:
            why = "knows examples by index"
        raise LoaderError(
            f"{strategy.name} {why}, and this loader "
            "yields them as a stream (an iterable data set, batch_size=None or in_order=False). "
            "Give the strategy a scorer that needs no index, or the loader a map-style data set."
        )
    remembers = needs is not None and needs.remembers
    regroups = draws_early or strategy.subset is not None or remembers
    if regroups and source.own_batches:
        warn(
            f"{strategy.name} draws before loading and regroups what the batch sampler "
            f"({source.kind}) grouped; batches will mix its groups",
        )
    if needs is None:
        return
    if needs.outputs and find_outputs(losses, outputs) is None:
        raise ConfigurationError(
            f"{strategy.name} needs the model's outputs, and losses= gives losses alone. Pass "
            "outputs=callable(model, batch) -> (outputs, targets)."
        )


def warn_of_loss(strategy: Strategy, loss_fn: Any) -> None:
    """Warn of a loss that a strategy would misread."""
    why = no_plain_cross_entropy(loss_fn) if strategy.selector.terms.confidence else None
    if why is not None:
        warn(
            f"{strategy.name} takes exp(-loss) for the probability of the true class, and the loss "
            f"{why}: it is no plain cross-entropy, and what seems learned may not be. Train on "
            "it and record plain ones (with_selection=True, loader.record), or take another "
            "strategy, such as recorded_sb",
        )


def check_use(strategy: Strategy) -> None:
    """Refuse a strategy whose weights, or the losses that it lives on, would be lost.

    Raises:
        ConfigurationError: if there are such; it says what to write.
    """
    needs, reweights = strategy.needs, strategy.selector.terms.reweights
    records = needs is not None and needs.recordings
    if not reweights and not records:
        return
    does = [
        *(["reweights examples"] if reweights else []),
        *(["selects by losses that training records"] if records else []),
    ]
    by_hand = [
        *(["train on (selection.weights * losses).mean()"] if reweights else []),
        *(["call loader.record(selection, losses) for each batch"] if records else []),
    ]
    raise ConfigurationError(
        f"{strategy.name} {' and '.join(does)}: take the loss from the loader before the loop, "
        f"loss_fn = loader.loss_fn; or pass with_selection=True, {' and '.join(by_hand)}"
    )


def check_length(strategy: Strategy, source: Source, epochs: float | None, progress: Any) -> None:
    """Refuse a training whose length is impossible, or unknown where it matters.

    Raises:
        ConfigurationError: if it is.
    """
    if epochs is not None and progress is not None:
        raise ConfigurationError("give epochs= or progress=, not both: one is the other's rival")
    strategy.schedule.check_length(epochs, source.batches)
    fractions = strategy.schedule.uses_fractions or strategy.selector.terms.paced
    if fractions and progress is None:
        if epochs is None:
            raise ConfigurationError(
                f"{strategy.name} changes at fractions of training, and its length is not "
                "known: pass epochs= (or progress=, where something else ends training)"
            )
        if source.batches is None:
            raise ConfigurationError(
                f"{strategy.name} changes at fractions of training, and the loader does not "
                "know its length: pass progress=callable() -> fraction of training done"
            )


def full_batch(source: Source, batch_size: int | None, terms: Terms) -> int | None:
    """Return the rows of a full training batch; None if batches are passed on as they come.

    Raises:
        ConfigurationError: if it is not known and selection needs it.
    """
    if batch_size is not None:
        return int(check_whole("batch_size", batch_size))
    if source.batch_size is None and not terms.keeps_everything:
        raise ConfigurationError(
            "the loader does not say how many examples are in its batches; pass batch_size= for "
            "the training batches"
        )
    return source.batch_size


def full_window(batch: int, terms: Terms) -> int:
    """Return the candidates from which a full training batch is drawn.

    Warns where whole numbers cannot come within 1 % of the rate.

    Raises:
        ConfigurationError: if there are more than any training has.
    """
    if not batch / terms.rate < MOST_CANDIDATES:
        raise ConfigurationError(
            f"rate={terms.rate:g}: a batch of {batch} would be drawn from {batch / terms.rate:g} "
            "candidates; keep a larger share"
        )
    window = max(batch, round(batch / terms.rate))
    if terms.draw is Draw.EXACT and abs(batch / window / terms.rate - 1) > 0.01:
        warn(
            f"a batch of {batch} from a window of {window} candidates keeps "
            f"{batch / window:.4f} of them, not {terms.rate:.4f}",
        )
    return window


def find_device(
    model: nn.Module | None, device: torch.device | str | int | None
) -> torch.device | None:
    """Return where batches are moved to: the model's device, if it has one.

    Raises:
        ConfigurationError: if the model's parameters are on several devices or on the meta
            device, or there is no such device.
    """
    if isinstance(model, nn.Module):
        _check_numbers(model)
    if device is not None:
        return check_device("device", device)
    if not isinstance(model, nn.Module):
        return None
    devices = {tensor.device for tensor in model.parameters()}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ConfigurationError(
            f"the model's parameters are on {names}; pass device= to say where its inputs go"
        )
    return next(iter(devices), None)


def _check_numbers(model: nn.Module) -> None:
    """Refuse a model on the meta device."""
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_meta:
            raise ConfigurationError(
                f"the model's {name!r} is on the meta device, where tensors hold no numbers. Build "
                "the model on a real device, or call model.to_empty(device=...) and load or "
                "initialise its weights before it is wrapped"
            )


def check_paths(option: str, paths: Collection[str]) -> frozenset[str]:
    """Return a set of paths within a batch.

    Raises:
        ConfigurationError: if it is a single string, whose letters would be taken for paths.
    """
    if isinstance(paths, str):
        raise ConfigurationError(f"{option}={paths!r}: a set of paths is needed, {{{paths!r}}}")
    return frozenset(paths)


def check_pad(pad: Mapping[str, float] | None) -> dict[str, float]:
    """Return the padding value of each path.

    Raises:
        ConfigurationError: if there is a value that is no number, or no path to it.
    """
    if not isinstance(pad, Mapping | None):
        raise ConfigurationError(f'pad={pad!r:.60}: write a value by path, such as {{"0": 0}}')
    for path, value in (pad or {}).items():
        if not isinstance(value, Real) and getattr(value, "ndim", None) != 0:
            raise ConfigurationError(f"pad={{{path!r}: {value!r:.60}}}: the value must be a number")
    return dict(pad or {})


def must_see_alike(
    strategy: Strategy, model: nn.Module | None, nonfinite: NonFinite, ranks: Ranks
) -> bool:
    """Return whether all ranks must score equally many candidates between two training steps.

    They must where the forward pass that scores is a collective, as with parameters that FSDP
    shards: it waits until every rank is in it.

    Raises:
        ConfigurationError: if they must, and this strategy does not see to it.
    """
    needs = strategy.needs
    if isinstance(ranks, Alone) or needs is None or not strategy.scores:
        return False
    parts = list(scorer_parts(strategy.scorer))
    why = _waits_for_ranks(model, parts) if needs.model else None
    if why is None:
        return False
    refusals = {
        "draws a number of rows that varies from rank to rank; use draw='exact'": (
            strategy.selector.terms.draw is not Draw.EXACT
        ),
        "opens and shuts a gate on each rank by itself; use a schedule without one": (
            strategy.schedule.gate is not None
        ),
        "scores those examples alone of which it remembers no score; use one that scores all or "
        "none": needs.remembers,
        "leaves out rows by nonfinite='skip'; use 'raise' or 'select'": (
            nonfinite is NonFinite.SKIP
        ),
        "does not score by one whole forward pass of the model (Needs(plain_forward=True)); use "
        "Forward()": not needs.plain_forward,
    }
    for what, applies in refusals.items():
        if applies:
            raise ConfigurationError(
                f"{why}, so all ranks must score equally many batches. {strategy.name} {what}."
            )
    return True


def scorer_parts(scorer: object) -> Iterator[object]:
    """Yield a scorer and those that it wraps."""
    while scorer is not None:
        yield scorer
        scorer = getattr(scorer, "scorer", None) or getattr(scorer, "rescore", None)


def _waits_for_ranks(model: nn.Module | None, scorers: list[object]) -> str | None:
    """Return why a forward pass of the model waits for the other ranks; None if it does not."""
    if not isinstance(model, nn.Module):
        return None
    fsdp = sys.modules.get("torch.distributed.fsdp")  # seconds to import; wrapping a model does
    sharded = () if fsdp is None else (fsdp.FSDPModule, fsdp.FullyShardedDataParallel)
    if any(isinstance(part, sharded) for part in model.modules()):
        return "FSDP gathers the model's parameters from all ranks in each forward pass"
    synced = any(isinstance(part, nn.SyncBatchNorm) for part in model.modules())
    if synced and any(getattr(scorer, "training", False) for scorer in scorers):
        return "SyncBatchNorm in training mode gathers statistics from all ranks"
    return None


def warn_of_no_batch(stats: Stats, came: int) -> None:
    """Warn of an epoch that yielded no training batch.

    Args:
        stats: as of its end.
        came: candidates that came up in it.
    """
    warn(
        f"epoch {stats.epoch} yielded no training batch: of {came} candidates {stats.waiting} wait "
        f"for a full window or batch. {stats.ties:.0%} of the recent scores are ties, which are "
        "never above one another.",
    )


def check_state(kind: str, state: Any, version: int, built: Mapping[str, Any]) -> None:
    """Refuse a saved state that is not of a loader or step like this one.

    Args:
        kind: `"loader"` or `"step"`.
        state: what was saved.
        version: of states that can be read.
        built: what it was built with.

    Raises:
        ConfigurationError: if it is not; the difference is named.
    """
    found = state.get("version") if isinstance(state, Mapping) else None
    if not isinstance(found, int) or "built" not in state:
        raise ConfigurationError(
            f"a state is needed that Selective{kind.capitalize()}.state_dict() returned, got "
            f"{state!r:.60}"
        )
    if found != version:
        raise ConfigurationError(
            f"the state has version {found}; this release reads {version}. Go on with the release "
            "that saved it, or begin anew."
        )
    for name, found in zip(built, Saved(state["built"], '["built"]').fields(*built), strict=True):
        if type(found.value) is not type(built[name]) or found.value != built[name]:
            raise ConfigurationError(
                f"the state is of a {kind} with {name}={found.value}, this one has "
                f"{name}={built[name]}. Build the {kind} as it was."
            )
