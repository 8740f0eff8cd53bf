"""A selective loader's batches, for a consumer that may fetch one ahead.

Lightning asks a loader for its length once, and uses it for all epochs. If the length is known,
Lightning trains on each batch before it fetches the next, and fetches none after the last. If the
length is unknown, it fetches one batch ahead, to notice the last. In both cases it makes iterators
that it never uses, and iterates anew after a checkpoint. Batches are therefore counted when they
are trained on, not when they are fetched.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop.integrations import _kit as kit


class Passes:
    """Pass after pass over a selective loader, one for each of Lightning's epochs.

    `sized` says whether the length of every epoch is known before it begins.
    """

    def __init__(
        self, loader: sb.SelectiveLoader, device: torch.device, given: kit.GivenLoss, *, sized: bool
    ) -> None:
        self.loader, self._device, self._given, self.sized = loader, device, given, sized
        self.current: Any = None  # batch and selection that are trained on; None between two steps
        self.selection: sb.Selection | None = None  # of the latest training batch
        self.filed = False  # whether that batch's losses went through `loss`
        self.idle = True  # whether nothing was fetched yet
        self.before = loader.stats  # when the current pass began
        self._running: Any = None
        self._ahead: deque[tuple[Any, sb.Selection]] = deque()  # fetched, but not yet trained on
        self._taken = 0
        self._length: int | None = None
        self._ended = False
        needs, terms = loader.strategy.needs, loader.strategy.selector.terms
        self._lives_on_losses = terms.reweights or (needs is not None and needs.recordings)

    def length(self) -> int:
        """Return the number of batches of the current pass; between passes, of the next one."""
        if not self.sized:
            name = self.loader.strategy.name
            raise TypeError(f"{name} does not know in advance how many batches an epoch has")
        return self._length if self._length is not None else len(self.loader)

    def batches(self) -> Iterator[Any]:
        """Yield the batches that were fetched but not trained on, then the rest of the pass.

        If the pass is complete, yield the next pass.
        """
        if self._is_complete:
            self._finish()
        for batch, _ in tuple(self._ahead):
            yield batch
        while (fetched := self._fetch()) is not None:
            self._ahead.append(fetched)
            yield fetched[0]

    def take(self) -> None:
        """Note that training on the oldest fetched batch starts now."""
        if not self._ahead:
            raise sb.LoaderError(
                "Lightning trains on a batch that the LightningLoader did not yield. Return only "
                "the LightningLoader from train_dataloader(), not with others or inside another."
            )
        self.current = self._ahead.popleft()
        self.selection, self.filed = self.current[1], False
        self._taken += 1

    def loss(self, losses: Tensor, targets: Tensor | None, outputs: Tensor | None) -> Tensor:
        """Return the weighted mean of the current batch's losses, and record the losses."""
        if self.selection is None:
            raise sb.LoaderError("selected_loss() was called before the first batch was trained on")
        losses = kit.check_losses(losses, len(self.selection.weights))
        self.filed = True
        if self.selection.indices is not None:
            end = "end training_step with selected_loss(self, losses, targets, outputs)"
            plain = losses.detach()
            self._given.record(self.loader, self.selection, plain, targets, outputs, end)
        return (self.selection.weights * losses).mean()

    def check_loss(self) -> None:
        """Refuse a step that ignored weights or losses although the strategy needs them."""
        if self.filed or not self._lives_on_losses:
            return
        raise sb.ConfigurationError(
            f"{self.loader.strategy.name} weighs the rows of a batch or learns from their losses, "
            "but training_step did not pass them on. Compute one loss per row, such as losses = "
            'cross_entropy(outputs, targets, reduction="none"), and return selected_loss(self, '
            "losses, targets), from selective_backprop.integrations.lightning."
        )

    def end_pass(self, *, resumable: bool) -> sb.Stats:
        """End the pass with Lightning's epoch, and return the counts from before the pass.

        Candidates after the last full batch are scored, and wait or are dropped, as at the end of
        any loop. If Lightning ended the epoch early, the rest of the pass is left out, unless it is
        `resumable`, because training may go on in it.
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

    def _fetch(self) -> tuple[Any, sb.Selection] | None:
        if self._ended:
            return None
        self.idle = False
        if self._running is None:
            if not self._taken and self._length is None:
                self.before = self.loader.stats
                self._length = len(self.loader) if self.sized else None
            self.loader.set_epoch(self.loader.next_epoch)  # tells a distributed sampler the epoch
            self._running = iter(self.loader)
        fetched = next(self._running, None)
        self._ended = fetched is None
        return fetched

    def _finish(self) -> None:
        if self._fetch() is not None:
            if not self.loader._source.indexed:  # of a stream, torch only estimates the length
                return self._break_off()
            raise sb.LoaderError(
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

        `repeats` says whether Lightning will train again on the batch of an unfinished step.
        """
        again = [self.current] if repeats and self.current is not None else []
        return {
            "loader": self.loader.state_dict(),
            "ahead": [kit.seal(fetched) for fetched in (*again, *self._ahead)],
            "taken": self._taken - len(again),
            "length": self._length,
            "ended": self._ended,
            "before": kit.seal((self.before,)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`; a state that does not fit is refused, with no change.

        If a stream cannot resume within an epoch, a new epoch begins after the fetched batches.
        """
        loader, ahead, taken, length, ended, before = kit.Saved(state).fields(
            "loader", "ahead", "taken", "length", "ended", "before"
        )
        batches = [kit.unpack_selected(packed, self._device) for packed in ahead.items()]
        steps, most, over = taken.whole(), length.maybe(kit.Saved.whole), ended.flag()
        (stats,) = kit.unseal(before, tuple)
        with loader.inside():
            self.loader.load_state_dict(loader.value)
        self._reset()
        self._ahead.extend(batches)
        if loader.value["mid_epoch"] is not None or over:
            self._taken, self._length, self._ended, self.before = steps, most, over, stats
