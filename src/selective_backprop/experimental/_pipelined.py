"""Score with a copy of the model while training goes on, on a CUDA stream of its own."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from selective_backprop._batches.structure import list_leaves
from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._core.options import check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.experimental._approximate import (
    Check,
    CheckedScorer,
    check_wrapper,
    model_of,
)
from selective_backprop.scorers._abstract import AbstractScorer, Needs, RunningScorer, start_scorer


@final
@dataclass(frozen=True)
class Pipelined(AbstractScorer):
    """Experimental: score candidates with a copy of the model while training goes on.

    Batches are scored ahead of training, on a second CUDA stream. The work stays the same, so you
    save time only if a part of the GPU would otherwise be idle. The copy takes the model's weights
    once in `every` scored batches, so scores lag behind training by fewer than `every + ahead`
    batches. Speed does not change which weights score a batch. Memory holds the weights three
    times: in the model and two copies.

    In a `SelectiveStep`, which sees one batch at a time, use the scorer without `Pipelined`.

    Args:
        scorer: the scorer that uses the copy, such as `Forward()`.
        every: number of scored batches from one update of the copy to the next, at least 1. If
            `every` is less than `ahead`, an update may wait for batches that are being scored.
        ahead: number of candidate batches that are scored ahead, at least 1. None scores as many as
            one training batch is selected from.
        check: when to compare the scores with those of the model itself, with the weights that it
            has when the scores are used; None for never. The compared batches are spread over
            `every` scored batches, or follow each other if `every` is lower than their number.

    Raises:
        ConfigurationError: if a value is out of its range, or if `scorer` remembers scores or has a
            model of its own. When training starts: if there is no model, or if it is not on CUDA.
    """

    scorer: AbstractScorer
    every: int
    ahead: int | None = None
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)
        settle(self, check_whole, "every")
        settle(self, check_whole, "ahead", optional=True)

    @property
    def needs(self) -> Needs:
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer; the copy is made at the first scored batch."""
        model = model_of(self, context)
        device = context.device or next((p.device for p in model.parameters()), torch.device("cpu"))
        if device.type != "cuda":
            raise ConfigurationError(
                f"Pipelined scores on a CUDA stream, but the model is on {device}. Use "
                f"{self.scorer!r} without Pipelined"
            )
        opened = partial(StreamBackend, self.scorer, context, model, device)
        return start_ahead(self, context, opened)


def start_ahead(spec: Any, context: Context, open_backend: Callable[[], Any]) -> RunningScorer:
    """Start a scorer with the fields of `Pipelined`; the backend opens at the first batch."""
    model, every, ahead = model_of(spec, context), int(spec.every), spec.ahead
    if ahead is None:
        window = context.window or context.batch_size / (context.rate or 1.0)
        ahead = max(1, math.ceil(window / context.batch_size))

    kept, check = start_scorer(spec.scorer, context), spec.check
    cheap = _RunningPipelined(open_backend, model, kept, every, int(ahead))
    if check is None:
        return cheap
    return CheckedScorer(
        cheap,
        start_scorer(spec.scorer, context),
        check,
        context.rate,
        name=type(spec).__name__,
        advice=f"Use a smaller every={' or ahead=' if ahead else ''}",
        stride=math.ceil(every / check.batches),
    )


class _RunningPipelined(RunningScorer):
    def __init__(
        self, open_backend: Any, model: nn.Module, kept: RunningScorer, every: int, ahead: int
    ) -> None:
        self._open, self._model = open_backend, model
        self._every, self._ahead, self._begun = every, ahead, 0
        self._backend: Any = None
        self._weights: dict[str, Tensor] | None = None  # until there is a backend, like `kept`,
        self._kept = kept  # which holds the scorer's state

    @property
    def ahead(self) -> int:
        return self._ahead

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self.begin(batch, indices)()

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        if self._backend is None:
            backend = self._open()
            backend.resume(self._weights, self._kept.state_dict())
            self._backend = backend
        wait = self._backend.begin(batch, indices, renew=self._begun % self._every == 0)
        self._begun += 1
        return wait

    def state_dict(self) -> dict[str, Any]:
        # Batches that are being scored are not part of the state: they are begun anew, or dropped.
        weights, scorer = self._weights, (self._backend or self._kept).state_dict()
        if self._backend is not None:
            weights = self._backend.weights() if self._begun % self._every else None
        return {"begun": self._begun, "copy": weights, "scorer": scorer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        begun, weights, scorer = Saved(state).fields("begun", "copy", "scorer")
        count = begun.whole()
        kept = None
        if count % self._every or weights.value is not None:  # else a new copy is due
            kept = weights.tensors(tensors_of(self._model))
        with scorer.inside():
            self._kept.load_state_dict(scorer.value)
        self._begun, self._weights, self._backend = count, kept, None


@final
class StreamBackend:
    """A copy of the model that scores on a CUDA stream of its own. The host never waits.

    The stream of training writes weights to a second copy. The stream that scores takes them from
    there when it gets to it. So training waits until the weights are copied once, but never for
    batches that are being scored.
    """

    def __init__(
        self, scorer: AbstractScorer, context: Context, model: nn.Module, device: torch.device
    ) -> None:
        self._model, self._device = model, device
        self._twin = copy_model(model)
        self._staged = copy.deepcopy(self._twin)
        self._side = torch.cuda.Stream(device)
        self._taken = torch.cuda.Event()  # when the staged weights may be written over
        # If these are freed while the stream works with them, their memory is kept until it ends.
        for part in (self._twin, self._staged):
            _keep_for(self._side, list(tensors_of(part).values()))
        self._inner = start_scorer(scorer, replace(context, model=self._twin))

    @property
    def _current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._device)

    def begin(self, batch: Any, indices: RowIndices | None, *, renew: bool) -> Callable[[], Scores]:
        """Enqueue the pass after everything that training has enqueued so far."""
        if renew:
            self._current.wait_event(self._taken)
            update(self._staged, self._model)
        self._side.wait_stream(self._current)
        for leaf in list_leaves(batch):
            _keep_for(self._side, leaf)
        _keep_for(self._side, indices)
        with torch.cuda.stream(self._side):
            if renew:
                update(self._twin, self._staged)
                self._taken.record(self._side)
            scores = self._inner.score(batch, indices)
            done = self._side.record_event()

        def wait() -> Scores:
            self._current.wait_event(done)
            return _keep_for(self._current, scores)

        return wait

    def weights(self) -> dict[str, Tensor]:
        """Return the copy's weights, once all begun batches are scored."""
        self._current.wait_stream(self._side)
        return cloned(tensors_of(self._twin))

    def state_dict(self) -> dict[str, Any]:
        """Return the inner scorer's state, once all begun batches are scored."""
        self._current.wait_stream(self._side)
        return self._inner.state_dict()

    def resume(self, weights: dict[str, Tensor] | None, state: dict[str, Any]) -> None:
        """Load weights and state on the current stream; the first pass waits for this stream."""
        if weights is not None:
            overwrite(tensors_of(self._twin), weights)
        self._inner.load_state_dict(state)


def _keep_for(stream: torch.cuda.Stream, leaf: Any) -> Any:
    """Keep the memory of a leaf's tensors from reuse until the stream has come this far."""
    # lists of numbers and packed sequences are leaves of several tensors
    for part in leaf if isinstance(leaf, (list, tuple)) else [leaf]:
        if isinstance(part, Tensor) and part.is_cuda:
            part.record_stream(stream)
    return leaf


def copy_model(model: nn.Module) -> nn.Module:
    """Return a copy of a model, without gradients; refuse a model that cannot be copied."""
    try:
        return copy.deepcopy(model).requires_grad_(False)
    except (RuntimeError, TypeError) as error:
        raise ConfigurationError(
            f"the model ({type(model).__name__}) cannot be copied with copy.deepcopy: {error}"
        ) from error


def update(twin: nn.Module, model: nn.Module) -> None:
    """Give a copy of a model its parameters, buffers and modes, without allocating anything."""
    overwrite(tensors_of(twin), tensors_of(model))
    for mine, theirs in zip(twin.modules(), model.modules(), strict=True):
        if mine.training != theirs.training:  # setting an attribute of a module is slow
            mine.training = theirs.training


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers by name; a shared one is there once."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


@torch.no_grad()
def overwrite(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Copy the values of `theirs` into `mine`; refuse tensors of other names or shapes."""
    shapes = [{name: tuple(t.shape) for name, t in tensors.items()} for tensors in (mine, theirs)]
    if shapes[0] != shapes[1]:
        changed = sorted(dict(shapes[0].items() ^ shapes[1].items()))
        raise LoaderError(
            f"{', '.join(changed[:5])} ({len(changed)} in all) changed since the model was copied; "
            "its parameters and buffers must keep their names and shapes. Make the loader anew"
        )
    if mine:
        torch._foreach_copy_(list(mine.values()), [theirs[name] for name in mine])


def cloned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors, for a saved state."""
    return {name: tensor.clone() for name, tensor in tensors.items()}
