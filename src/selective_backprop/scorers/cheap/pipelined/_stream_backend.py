"""Score on a second CUDA stream, of the same device or another, beside the training's own."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor, nn

from selective_backprop._batches.losses import ExampleLosses
from selective_backprop._batches.structure import map_leaves, move_batch
from selective_backprop._core.types import LossesOf, RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import AbstractScorer, start_scorer
from selective_backprop.scorers.cheap._wrappers import (
    cloned,
    copy_model,
    overwrite,
    tensors_of,
    update,
)


@final
class StreamBackend:
    """A copy of the model that scores on a stream of its own. The host never waits.

    The training's stream gives weights to a second copy, from which the first one takes them
    when its stream comes to that: so training waits for a copy of the weights to be made, but
    never for the batches that are being scored.

    What moves between two devices moves on streams that have nothing else to do there, since
    such a copy makes the current streams of both wait for each other.

    Args:
        scorer: scores with the copy.
        context: of the training.
        model: the model to copy, without a wrapper.
        home: the device of the training.
        away: the device that scores; may be the same.

    Raises:
        ConfigurationError: if the model cannot be copied.
    """

    def __init__(
        self,
        scorer: AbstractScorer,
        context: Context,
        model: nn.Module,
        *,
        home: torch.device,
        away: torch.device,
    ) -> None:
        self._model = model
        self._home = home
        self._away = away
        self._devices = [home] if home == away else [home, away]
        twin = copy_model(model)
        self._twin = twin if home == away else twin.to(away)
        self._staged = copy.deepcopy(self._twin)
        self._side = torch.cuda.Stream(away)
        self._taken = torch.cuda.Event()  # when the staged weights may be written over
        # Freed while the stream still works with them, their memory is not given away before.
        for part in (self._twin, self._staged):
            _keep_for(self._side, list(tensors_of(part).values()))
        losses = context.losses if home == away else _losses_on(away, context.losses)
        self._inner = start_scorer(
            scorer, replace(context, model=self._twin, losses=losses, device=away, checks=False)
        )

    def begin(self, batch: Any, indices: RowIndices | None, *, renew: bool) -> Callable[[], Scores]:
        """Enqueue the pass, behind all that the training has enqueued so far."""
        if renew:
            for device in self._devices:
                torch.cuda.current_stream(device).wait_event(self._taken)
            update(self._staged, self._model)
        if self._home != self._away:
            batch = move_batch(batch, self._away)
            indices = None if indices is None else indices.to(self._away, non_blocking=True)
        for device in self._devices:
            self._side.wait_stream(torch.cuda.current_stream(device))
        map_leaves(lambda path, leaf: _keep_for(self._side, leaf), batch)
        _keep_for(self._side, indices)
        with torch.cuda.stream(self._side):
            if renew:
                update(self._twin, self._staged)
                self._taken.record(self._side)
            scores = self._inner.score(batch, indices)
            done = self._side.record_event()

        def wait() -> Scores:
            for device in self._devices:
                stream = torch.cuda.current_stream(device)
                stream.wait_event(done)
                if scores.device == device:
                    _keep_for(stream, scores)
            return scores.to(self._home, non_blocking=True) if scores.is_cuda else scores

        return wait

    def weights(self) -> dict[str, Tensor]:
        """Return those of the copy, when all that was begun is scored."""
        self._join()
        return cloned(tensors_of(self._twin))

    def state_dict(self) -> dict[str, Any]:
        """Return what the scorer within must remember."""
        self._join()
        return self._inner.state_dict()

    def resume(self, weights: dict[str, Tensor] | None, state: dict[str, Any] | None) -> None:
        """Go on, on the current streams: the first pass waits for them."""
        if weights is not None:
            overwrite(tensors_of(self._twin), weights)
        if state is not None:
            self._inner.load_state_dict(state)

    def _join(self) -> None:
        """Let the current streams wait for the one that scores."""
        for device in self._devices:
            torch.cuda.current_stream(device).wait_stream(self._side)


def _losses_on(device: torch.device, losses: LossesOf | None) -> LossesOf | None:
    """Return losses whose function has its tensors, such as weights of classes, on a device."""
    if isinstance(losses, ExampleLosses) and isinstance(losses.loss_fn, nn.Module):
        return replace(losses, loss_fn=copy.deepcopy(losses.loss_fn).to(device))
    return losses


def _keep_for(stream: torch.cuda.Stream, leaf: Any) -> Any:
    """Have the memory of a leaf's tensors not reused before the stream has come this far."""
    # lists of numbers and packed sequences are leaves of several tensors
    for part in leaf if isinstance(leaf, (list, tuple)) else [leaf]:
        if isinstance(part, Tensor) and part.is_cuda:
            part.record_stream(stream)
    return leaf
