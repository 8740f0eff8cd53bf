"""Candidate batches as they arrive: paired with what was decided of them, some of them ahead."""

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from selective_backprop._batches.keys import plain_list
from selective_backprop._batches.structure import (
    check_layout,
    count_rows,
    map_tensors,
    move_batch,
)
from selective_backprop._core.errors import BatchError, LoaderError
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.stopwatch import charged
from selective_backprop._core.types import Scores
from selective_backprop._pipeline.index_sampler import (
    BatchPlan,
    IndexSampler,
    ResumeFrom,
    SamplerState,
)
from selective_backprop._pipeline.options import LoaderOptions
from selective_backprop._pipeline.phases import PhasePlanner
from selective_backprop._pipeline.rows import Rows
from selective_backprop._pipeline.sampler_rng import SamplerRngState
from selective_backprop._pipeline.score_memory import EpochScores
from selective_backprop._sampling.schedule import Phase
from selective_backprop.scorers import RunningScorer

END = object()


@runtime_checkable
class Stateful(Protocol):
    """A data loader that knows where it stands, whatever its workers have prefetched."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer of its batches stands."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there at the next iteration."""
        ...


class CandidateBatch(NamedTuple):
    """A loaded batch of candidates, and where the consumer stands who has taken it.

    Attributes:
        phase: what happens to it.
        rows: its rows, where they are to be.
        candidates: examples of this epoch that have come up.
        drawn: the loader's own batches of this epoch that have been drawn.
        state: where the drawing of indices stands.
        scores: waits for the scores, where scoring has begun; else None.
    """

    phase: Phase
    rows: Rows
    candidates: int
    drawn: int
    state: SamplerState
    scores: Callable[[], Scores] | None = None


class CandidateLoader:
    """A loader's batches, moved to where they are to be, and paired with their tickets.

    Some batches are taken in before they are asked for, where that lets work go on meanwhile:
    scoring that does not keep training waiting, and copies from pinned memory to a GPU. What a
    pass that is broken off has taken in ahead is forgotten, as what workers have prefetched is:
    the next pass draws it anew.

    Args:
        candidates: yields candidate batches, drawing their indices through `draw`.
        draw: stage one; None for a stream, whose phases are decided as batches arrive.
        clock: says which phase a batch of a stream falls into.
        scorer: begins to score batches ahead; None where scoring waits for its turn.
        options: the user's, such as the device where candidates go.
        counts: whether every batch's rows are counted against its indices.

    Attributes:
        counts: as given.
    """

    def __init__(
        self,
        candidates: DataLoader[Any],
        draw: IndexSampler | None,
        clock: PhasePlanner,
        scorer: RunningScorer | None,
        options: LoaderOptions,
        *,
        counts: bool,
    ) -> None:
        self._candidates = candidates
        self._draw = draw
        self._clock = clock
        self._scorer = scorer if scorer is not None and scorer.ahead else None
        self._options = options
        self.counts = counts
        device = self._device = options.device
        self._epoch = 0
        self._came = (0, 0)
        self._goes_on = False
        copies = None
        # A loader without workers draws an example's augmentation when it is asked for it, so
        # that asking early would change what comes from the random streams.
        if (
            device is not None
            and device.type == "cuda"
            and candidates.pin_memory
            and candidates.num_workers
        ):
            copies = CopyStream(device)
        self._copies = copies
        self._ahead = int(copies is not None) if self._scorer is None else self._scorer.ahead

    def open(
        self,
        epoch: int,
        state: SamplerState,
        epoch_scores: EpochScores | None,
        passed: ResumeFrom | None = None,
    ) -> None:
        """Begin an epoch where the consumer stands.

        Args:
            epoch: its number.
            state: where the drawing of indices stands.
            epoch_scores: the scores that are known; None where none are remembered.
            passed: what of the epoch was drawn before it was broken off; None where it begins.
        """
        self._epoch, self._came, self._goes_on = epoch, (0, 0), passed is not None
        if passed is not None:
            self._came = passed.candidates, passed.drawn
            if passed.stream is not None and isinstance(self._candidates, Stateful):
                with Saved(passed.stream, '["mid_epoch"]["stream"]').inside():
                    self._candidates.load_state_dict(passed.stream)
        self._clock.cadence.state = state.cadence
        if self._draw is not None:
            self._draw.open(epoch, state, epoch_scores, passed)

    def run(self, *, first: bool, will_score: Callable[[Phase], bool]) -> Iterator[CandidateBatch]:
        """Yield the batches of the epoch.

        Args:
            first: whether the first of them is the first of all, so that its layout is checked.
            will_score: asked whether a batch of a phase is going to be scored.
        """
        waiting: deque[tuple[CandidateBatch, Callable[[], None] | None]] = deque()
        failure: Exception | None = None
        loaded = self._load(first=first, will_score=will_score)
        while True:
            try:
                arrived = next(loaded, None)
            except Exception as error:  # which comes in its turn, behind what arrived before it
                failure, arrived = error, None
            if arrived is None:
                break
            waiting.append(arrived)
            if len(waiting) > self._ahead:
                yield _take(waiting)
        while waiting:
            yield _take(waiting)
        if failure is not None:
            raise failure

    @property
    def sampler(self) -> Any:
        """What draws the order of the examples; None for a stream."""
        return None if self._draw is None else self._draw.sampler

    @property
    def streams(self) -> SamplerRngState | None:
        """What the order of the epoch was drawn from; None before, and for a stream."""
        return None if self._draw is None else self._draw.streams

    @property
    def can_go_on(self) -> bool:
        """Whether the epoch can be taken up where the consumer stands."""
        if self._draw is not None:
            return not self._draw.unlisted
        # One that runs ahead of the consumer knows where it stands itself, and not the consumer.
        return isinstance(self._candidates, Stateful) and not self._ahead

    @property
    def stream(self) -> dict[str, Any] | None:
        """Where a stream stands that can tell, as `StatefulDataLoader` of torchdata can."""
        if self._draw is not None or not isinstance(self._candidates, Stateful):
            return None
        return copy.deepcopy(self._candidates.state_dict())

    @property
    def end(self) -> tuple[int, int, SamplerState] | None:
        """Where the consumer stands at the epoch's end: candidates, batches and draw.

        None where the last batch has told.
        """
        if self._draw is None or self._draw.unlisted:
            return None
        return (*self._draw.position, self._draw.state)

    def _load(
        self, *, first: bool, will_score: Callable[[Phase], bool]
    ) -> Iterator[tuple[CandidateBatch, Callable[[], None] | None]]:
        """Yield batches as soon as they are loaded, each with what waits for its copy."""
        # Each pass draws a seed for its workers, and this one began before.
        with torch.random.fork_rng(devices=[], enabled=self._goes_on):
            batches = iter(self._candidates)
        while True:
            with charged(self._options.stopwatch, "load"):
                batch = self._next(batches)
                if batch is END:
                    return
                batch, copied = self._move(batch)
            if first:
                check_layout(batch, self._options.layout)
                first = False
            candidate_batch = self._pair(batch)
            if self._scorer is not None and will_score(candidate_batch.phase):
                if copied is not None:
                    copied()
                    copied = None
                with charged(self._options.stopwatch, "score"):
                    rows = candidate_batch.rows
                    candidate_batch = candidate_batch._replace(
                        scores=self._scorer.begin(rows.batch, rows.indices)
                    )
            yield candidate_batch, copied

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            return next(batches, END)
        except Exception as error:
            if self._draw is not None and self._draw.plans:
                keys = plain_list(self._draw.plans[0].rows.batch)
                more = f" and {len(keys) - 10} more" if len(keys) > 10 else ""
                error.add_note(f"raised while examples {keys[:10]}{more} were loaded")
            raise

    def _move(self, batch: Any) -> tuple[Any, Callable[[], None] | None]:
        if self._device is None:
            return batch, None
        if self._copies is None:
            return move_batch(batch, self._device), None
        return self._copies.send(batch)

    def _pair(self, batch: Any) -> CandidateBatch:
        if self._draw is None or self._draw.unlisted:
            return self._pair_stream(batch)
        plan = self._next_plan(self._draw)
        rows = plan.rows
        if self.counts:
            count_rows(batch, self._options.layout, rows.count)
        indices = rows.batch if isinstance(rows.batch, Tensor) else None
        rows = Rows(
            batch,
            rows.count,
            indices=self._to_device(indices),
            weights=self._to_device(rows.weights),
        )
        return CandidateBatch(plan.phase, rows, plan.candidates, plan.drawn, plan.state)

    def _next_plan(self, draw: IndexSampler) -> BatchPlan:
        if not draw.plans:
            raise LoaderError(
                f"the loader ({type(self._candidates).__name__}) yielded a batch without drawing "
                "its indices, so the batch cannot be paired with them; a loader that overrides "
                "iteration must draw from its batch_sampler"
            )
        return draw.plans.popleft()

    def _pair_stream(self, batch: Any) -> CandidateBatch:
        try:
            rows = Rows(batch, count_rows(batch, self._options.layout))
        except BatchError:
            if self.counts:
                raise
            rows = Rows(batch, 0)  # passed on unseen: nobody needs to know its rows
        candidates, drawn = self._came
        phase = self._clock.phase(self._epoch, drawn, rows.count)
        self._came = candidates + rows.count, drawn + 1
        return CandidateBatch(phase, rows, *self._came, SamplerState(self._clock.cadence.state))

    def _to_device(self, column: Tensor | None) -> Tensor | None:
        if column is None or self._device is None:
            return column
        return column.to(self._device, non_blocking=True)


def _take(waiting: deque[tuple[CandidateBatch, Callable[[], None] | None]]) -> CandidateBatch:
    candidate_batch, copied = waiting.popleft()
    if copied is not None:
        copied()
    return candidate_batch


class CopyStream:
    """Copy batches to a GPU on a stream of its own, while another one computes.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def send(self, batch: Any) -> tuple[Any, Callable[[], None]]:
        """Begin to copy a batch.

        Returns:
            The batch as it will be, and what makes the stream that is then current wait for it.
        """
        with torch.cuda.stream(self._stream):
            moved = move_batch(batch, self._device)
            event = self._stream.record_event()

        def wait() -> None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(event)

            def note(tensor: Tensor) -> Tensor:
                if tensor.is_cuda:
                    tensor.record_stream(current)  # its memory was given out on the other stream
                return tensor

            map_tensors(note, moved)

        return moved, wait
