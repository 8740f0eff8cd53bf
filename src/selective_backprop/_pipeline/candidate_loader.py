"""Load candidate batches, pair each with its plan, and fetch some ahead."""

import copy
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from selective_backprop._batches.structure import check_layout, count_rows, list_tensors, move_batch
from selective_backprop._core.errors import BatchError, LoaderError
from selective_backprop._core.saved_state import Saved, Stateful
from selective_backprop._core.stopwatch import charged
from selective_backprop._pipeline.index_sampler import CandidateBatch, IndexSampler, plain_list
from selective_backprop._pipeline.nonfinite import TargetWatch
from selective_backprop._pipeline.options import SCORED, PhasePlanner, Setup
from selective_backprop._pipeline.row_checks import check_examples, warn_of_axes
from selective_backprop._pipeline.rows import Cursor, EpochStart, Rows
from selective_backprop._pipeline.score_memory import EpochScores
from selective_backprop.scorers import RunningScorer

END = object()


class CandidateLoader:
    """A loader's batches, moved to their device and paired with their plans.

    Some are fetched ahead, so that copies to a GPU, and scoring if the scorer can run ahead,
    overlap with training. Without `draw`, batches come from a stream.
    """

    def __init__(
        self,
        setup: Setup,
        draw: IndexSampler | None,
        clock: PhasePlanner,
        scorer: RunningScorer | None,
        watch: TargetWatch,
    ) -> None:
        # Draws its indices through `draw`. If it is `Stateful`, it knows its consumer's position.
        self._candidates = candidates = setup.source.copy_with(draw)
        self.draw = draw
        self._clock, self._watch = clock, watch
        own = scorer is not None and setup.needs.passes and scorer.ahead
        self._scorer = scorer if own else None
        self._layout = setup.layout
        self._loading = charged(setup.stopwatch, "load")
        self._scoring = charged(setup.stopwatch, "score")
        unseen = setup.terms.keeps_everything and setup.shape.unchanged and scorer is None
        selects_early = draw is not None and draw.selects
        # Whether each batch must have as many rows as indices, and whether rows are taken from it.
        self._counts = setup.with_selection or not unseen
        self._takes = setup.strategy.scores or not (selects_early or unseen)
        # If unused, indices stay on the CPU, where errors name examples by them.
        self._indexed = setup.indexed
        self.unpinned = False  # whether the CPU waits while batches are copied
        device = self._device = setup.device
        self._cursor = Cursor()  # position after a stream's last batch
        self._batches: Iterator[Any] = iter(())
        self._copies: torch.cuda.Stream | None = None
        # Without workers the loader augments in this process, so fetching ahead would change
        # the order in which the random streams are consumed.
        if device and setup.on_gpu and candidates.pin_memory and candidates.num_workers:
            self._copies = torch.cuda.Stream(device)
        self._ahead = int(self._copies is not None) if self._scorer is None else self._scorer.ahead

    def open(
        self, cursor: Cursor, epoch_scores: EpochScores | None, mid_epoch: EpochStart | None
    ) -> None:
        self._cursor = cursor
        stream = None if mid_epoch is None else mid_epoch.stream
        if stream is not None and isinstance(self._candidates, Stateful):
            with Saved(stream, '["stream"]').inside():
                self._candidates.load_state_dict(stream)
        if self.draw is not None:
            self.draw.open(cursor, epoch_scores, mid_epoch)
        # `iter` draws a base seed for workers. It does so before waiting rows go out, so that each
        # saved state comes after this draw. A continued epoch has drawn its seed already.
        with nullcontext() if mid_epoch is None else _drawing_aside(self._candidates):
            self._batches = iter(self._candidates)

    def close(self) -> None:
        """End the epoch; free its workers even if no batch was taken."""
        self._batches = iter(())

    def run(self, *, first: bool) -> Iterator[CandidateBatch]:
        batches, self._batches = self._batches, iter(())
        waiting: deque[CandidateBatch] = deque()
        failure: Exception | None = None
        ended = False
        while not ended:
            try:
                arrived = self._load(batches, first)
            except Exception as error:  # raised later, after the batches that arrived before it
                arrived, failure = None, error
            first, ended = False, arrived is None
            if arrived is not None:
                waiting.append(arrived)
            while len(waiting) > (0 if ended else self._ahead):
                batch = waiting.popleft()
                if batch.copied is not None:
                    batch.copied()
                yield batch
        if failure is not None:
            raise failure

    @property
    def reports(self) -> bool:
        """Whether it is a stream with a state of its own, like torchdata's `StatefulDataLoader`."""
        return self.draw is None and isinstance(self._candidates, Stateful)

    @property
    def can_go_on(self) -> bool:
        if self.draw is not None:
            return not self.draw.unlisted
        # If a stream is fetched ahead, it reports its own position, not the consumer's.
        return self.reports and not self._ahead

    @property
    def stream(self) -> dict[str, Any] | None:
        candidates: Any = self._candidates
        return copy.deepcopy(candidates.state_dict()) if self.reports else None

    @property
    def end(self) -> Cursor:
        return self._cursor if self.draw is None or self.draw.unlisted else self.draw.cursor

    def _load(self, batches: Iterator[Any], first: bool) -> CandidateBatch | None:
        copied = None
        with self._loading():
            try:
                batch = next(batches, END)
            except Exception as error:
                if self.draw is not None and self.draw.plans:
                    keys = f"{plain_list(self.draw.plans[0].rows.batch)!s:.100}"
                    error.add_note(f"raised while examples {keys} were loaded")
                raise
            if batch is END:
                return None
            if not self._watch.lacking:
                self._watch.look(batch)
            if self._copies is not None:
                batch, copied = _send(batch, self._copies)
            elif self._device is not None:
                given, batch = batch, move_batch(batch, self._device)
                if batch is not given and not self._candidates.pin_memory:
                    self.unpinned = self._device.type == "cuda"
        if first:
            if copied is not None:
                copied()  # the checks read values
            check_layout(batch, self._layout, takes=self._takes)
        arrived = self._pair(batch, first)
        if self._scorer is not None and self._clock.on_arrival(arrived.phase) in SCORED:
            if copied is not None:
                copied()
            with self._scoring():
                scores = self._scorer.begin(arrived.rows.batch, arrived.rows.indices)
            return arrived._replace(scores=scores)
        return arrived if copied is None else arrived._replace(copied=copied)

    def _pair(self, batch: Any, first: bool) -> CandidateBatch:
        if self.draw is None or self.draw.unlisted:
            return self._pair_stream(batch, first)
        if not self.draw.plans:
            raise LoaderError(
                f"the loader ({type(self._candidates).__name__}) yielded a batch without drawing "
                "its indices from its batch_sampler, so the batch cannot be paired with them. If "
                "your loader overrides __iter__, let it draw from its batch_sampler"
            )
        phase, keys, cursor, *_ = self.draw.plans.popleft()
        if self._counts:
            count_rows(batch, self._layout, keys.count, every=self._takes)
        if first and keys.count and (self._takes or self._indexed):
            own = plain_list(keys.batch), self._candidates, self._layout, self._device
            check_examples(batch, *own, takes=self._takes, ordered=self._indexed)
        indices, weights = keys.batch if isinstance(keys.batch, Tensor) else None, keys.weights
        if self._device is not None and self._device.type != "cpu":
            if self._indexed:
                indices, weights = _move_both(indices, weights, self._device)
            elif weights is not None:
                weights = weights.to(self._device, non_blocking=True)
        return CandidateBatch(phase, Rows(batch, keys.count, indices, weights=weights), cursor)

    def _pair_stream(self, batch: Any, first: bool) -> CandidateBatch:
        try:
            rows = Rows(batch, count_rows(batch, self._layout))
        except BatchError:
            if self._counts:
                raise
            rows = Rows(batch, 0)  # passed on unchanged: nothing depends on its number of rows
        if first and self._takes:
            warn_of_axes(batch, self._layout, rows.count)
        at = self._cursor
        phase = self._clock.phase(at.epoch, at.drawn)
        self._cursor = at._replace(candidates=at.candidates + rows.count, drawn=at.drawn + 1)
        return CandidateBatch(phase, rows, self._cursor)


@contextmanager
def _drawing_aside(loader: DataLoader[Any]) -> Generator[None]:
    """Let a loader draw a seed, but not from torch's random stream or the loader's generator."""
    own = loader.generator
    if own is not None:
        # A copy draws, since the sampler may share the generator and draw from it in the body.
        loader.generator = torch.Generator(own.device)
        loader.generator.set_state(own.get_state())
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        loader.generator = own


def _move_both(
    indices: Tensor | None, weights: Tensor | None, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Move the indices and weights of rows to a device; if both are given, by one copy."""
    if indices is None or weights is None:
        indices = None if indices is None else indices.to(device, non_blocking=True)
        return indices, None if weights is None else weights.to(device, non_blocking=True)
    both = torch.cat([indices.view(torch.int32), weights.view(torch.int32)])
    both = both.to(device, non_blocking=True)
    count = 2 * len(indices)  # an index has 64 bits
    return both[:count].view(torch.int64), both[count:].view(weights.dtype)


def _send(batch: Any, stream: torch.cuda.Stream) -> tuple[Any, Callable[[], None]]:
    with torch.cuda.stream(stream):
        moved = move_batch(batch, stream.device)
        event = stream.record_event()

    def wait() -> None:
        current = torch.cuda.current_stream(stream.device)
        current.wait_event(event)
        for tensor in list_tensors(moved):
            if tensor.is_cuda:
                tensor.record_stream(current)  # its memory was allocated on the copy stream

    return moved, wait
