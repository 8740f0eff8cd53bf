"""A selective loader's batches, for a consumer that may fetch one ahead.

Lightning asks a loader for its length once, and uses it for all epochs. If the length is known,
Lightning trains on each batch before it fetches the next, and fetches none after the last. If the
length is unknown, it fetches one batch ahead, to notice the last. In both cases it makes iterators
that it never uses, and iterates anew after a checkpoint. Batches are therefore counted when they
are trained on, not when they are fetched.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor

from selective_backprop._batches.losses import (
    LossFunction,
    check_losses,
    label_smoothing,
)
from selective_backprop._batches.serialization import seal
from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.stats import STATS_RANGES, Stats
from selective_backprop._loader.epoch import Epoch
from selective_backprop._loader.selective_loader import SelectiveLoader
from selective_backprop._loader.validation import warn_of_loss
from selective_backprop._sampling.draws import Selection
from selective_backprop.integrations._saved import unpack_selected
from selective_backprop.strategies._auto.entropies import excess_losses


class Fetched(NamedTuple):
    """A batch that was fetched but not yet trained on, with its selection."""

    batch: Any
    selection: Selection


class Passes:
    """Pass after pass over a selective loader, one for each of Lightning's epochs.

    Args:
        loader: yields each batch with its selection.
        device: the batches' device.
        loss_fn: the loss that the module trains on, or None.
        sized: whether the length of every epoch is known before it begins.

    Attributes:
        current: the batch that is trained on; None between two steps.
        selection: the selection of the current training batch; None before the first batch.
        filed: whether the current training batch's losses went through `loss`.
        idle: whether no batch was fetched from the loader yet.
        before: the loader's counts when the current pass began.
    """

    def __init__(
        self,
        loader: SelectiveLoader,
        device: torch.device,
        loss_fn: LossFunction | None,
        *,
        sized: bool,
    ) -> None:
        self.loader = loader
        self._loss_fn = loss_fn
        self._warned = False
        self.sized = sized
        self.current: Fetched | None = None
        self.selection: Selection | None = None
        self.filed = False
        self.idle = True
        self.before = loader.stats
        self._device = device
        self._running: Epoch | None = None
        self._ahead: deque[Fetched] = deque()
        self._taken = 0
        self._length: int | None = None
        self._ended = False
        needs, terms = loader.strategy.needs, loader.strategy.selector.terms
        self._lives_on_losses = terms.reweights or (needs is not None and needs.recordings)

    def length(self) -> int:
        """Return the number of batches of the current pass; between passes, of the next one.

        Raises:
            TypeError: if the strategy does not know this number before every epoch.
        """
        if not self.sized:
            raise TypeError(
                f"{self.loader.strategy.name} does not know in advance how many batches an epoch "
                "has"
            )
        return self._length if self._length is not None else len(self.loader)

    def batches(self) -> Iterator[Any]:
        """Yield the batches that were fetched but not trained on, then the rest of the pass.

        If the pass is complete, yield the next pass.
        """
        if self._is_complete:
            self._finish()
        for fetched in tuple(self._ahead):
            yield fetched.batch
        while (fetched := self._fetch()) is not None:
            self._ahead.append(fetched)
            yield fetched.batch

    def take(self) -> None:
        """Note that training on the oldest fetched batch starts now.

        Raises:
            LoaderError: if no fetched batch is left: training must be using another loader's.
        """
        if not self._ahead:
            raise LoaderError(
                "Lightning trains on a batch that the LightningLoader did not yield. Return only "
                "the LightningLoader from train_dataloader(), not with others or inside another."
            )
        self.current = self._ahead.popleft()
        self.selection, self.filed = self.current.selection, False
        self._taken += 1

    def loss(self, losses: Tensor, targets: Tensor | None, outputs: Tensor | None) -> Tensor:
        """Return the weighted mean of the current batch's losses, and record the losses.

        Strategies such as `auto` record plain cross-entropies instead, computed from `outputs`.

        Raises:
            LossError: if there is not one loss per row.
        """
        if self.selection is None:
            raise LoaderError("selected_loss() was called before the first batch was trained on")
        losses = check_losses(losses, len(self.selection.weights))
        self.filed = True
        if self.selection.indices is not None:
            self._record(self.selection, losses.detach(), targets, outputs)
        return (self.selection.weights * losses).mean()

    def _record(
        self, selection: Selection, losses: Tensor, targets: Tensor | None, outputs: Tensor | None
    ) -> None:
        seen, strategy = None, self.loader.strategy
        if outputs is not None:
            seen = outputs.detach(), targets
            if self._loss_fn is not None and strategy.selector.terms.confidence:
                losses = excess_losses(self._loss_fn, losses, *seen)
        elif not self._warned:
            self._warned = True
            end = "end training_step with selected_loss(self, losses, targets, outputs)"
            warn_of_loss(strategy, self._loss_fn, end)
        smoothing = label_smoothing(self._loss_fn)
        self.loader.record(selection, losses, seen, targets=targets, smoothing=smoothing)

    def check_loss(self) -> None:
        """Refuse a step that ignored weights or losses although the strategy needs them."""
        if self.filed or not self._lives_on_losses:
            return
        raise ConfigurationError(
            f"{self.loader.strategy.name} weighs the rows of a batch or learns from their losses, "
            "but training_step did not pass them on. Compute one loss per row, such as losses = "
            'cross_entropy(outputs, targets, reduction="none"), and return selected_loss(self, '
            "losses, targets), from selective_backprop.integrations.lightning."
        )

    def end_pass(self, *, resumable: bool) -> Stats:
        """End the pass with Lightning's epoch, and return the counts from before the pass.

        Candidates after the last full batch are scored, and wait or are dropped, as at the end of
        any loop. If Lightning ended the epoch early, the rest of the pass is left out.

        Args:
            resumable: whether an unfinished pass stays open, because training may resume in it.
        """
        before = self.before
        if self._is_complete:
            self._finish()
        elif self._taken and not resumable:
            self._break_off()
        return before

    @property
    def _is_complete(self) -> bool:
        if self._ended:
            return not self._ahead
        return self._length is not None and self._taken >= self._length

    def _fetch(self) -> Fetched | None:
        if self._ended:
            return None
        self.idle = False
        if self._running is None:
            self._open()
        assert self._running is not None
        try:
            return Fetched(*next(self._running))
        except StopIteration:
            self._ended = True
            return None

    def _open(self) -> None:
        """Begin the next pass, or continue a saved one."""
        if not self._taken and self._length is None:
            self.before = self.loader.stats
            self._length = len(self.loader) if self.sized else None
        self.loader.set_epoch(self.loader.next_epoch)  # tells a distributed sampler the epoch
        running = iter(self.loader)
        assert isinstance(running, Epoch)  # it can be closed
        self._running = running

    def _finish(self) -> None:
        if self._fetch() is not None:
            if not self.loader._source.indexed:  # of a stream, torch only estimates the length
                return self._break_off()
            raise LoaderError(
                f"an epoch of {self._length} batches continues after its last batch. This is a "
                "bug in selective_backprop: please report it, with the loader and the strategy."
            )
        self._reset()

    def _break_off(self) -> None:
        epoch = self.loader.next_epoch
        if self._running is None:  # the pass was saved, and not resumed yet
            epoch += 1
        else:
            self._running.close()
        self.loader.set_epoch(epoch)  # a state saved from now on begins the next epoch
        self._reset()

    def _reset(self) -> None:
        self._running, self._length, self._taken, self._ended = None, None, 0, False
        self._ahead.clear()
        self.current = None
        self.before = self.loader.stats

    def state_dict(self, *, repeats: bool = False) -> dict[str, Any]:
        """Return the state of training, with the batches that were fetched ahead.

        Args:
            repeats: whether Lightning will train again on a batch in the middle of a step.

        Raises:
            BatchError: if a batch that was fetched ahead cannot be saved.
        """
        again = [self.current] if repeats and self.current is not None else []
        return {
            "loader": self.loader.state_dict(),
            "ahead": [seal(tuple(fetched)) for fetched in (*again, *self._ahead)],
            "taken": self._taken - len(again),
            "length": self._length,
            "ended": self._ended,
            "before": asdict(self.before),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`.

        If a stream cannot resume within an epoch, a new epoch begins after the fetched batches.

        Raises:
            ConfigurationError: if the state is damaged, or of a loader that was built differently.
                In this case nothing is changed.
        """
        loader, ahead, taken, length, ended, before = Saved(state).fields(
            "loader", "ahead", "taken", "length", "ended", "before"
        )
        batches = [Fetched(*unpack_selected(packed, self._device)) for packed in ahead.items()]
        steps, most, over = taken.whole(), length.maybe(Saved.whole), ended.flag()
        stats = before.record(Stats, **STATS_RANGES)
        with loader.inside():
            self.loader.load_state_dict(loader.value)
        self._reset()
        self._ahead.extend(batches)
        if loader.value["mid_epoch"] is not None or over:
            self._taken, self._length, self._ended, self.before = steps, most, over, stats
