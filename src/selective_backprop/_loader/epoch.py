"""The epochs of a loader, one at a time, each in one thread."""

import inspect
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._distributed.group import find_ranks
from selective_backprop._loader.checkpoint import LoaderState
from selective_backprop._loader.epoch_sync import EpochHandshake
from selective_backprop._loader.messages import Messages
from selective_backprop._loader.weighted_loss import WeighingLoss
from selective_backprop._pipeline.epoch_length import LengthPlanner
from selective_backprop._pipeline.rows import Rows
from selective_backprop._pipeline.stages import Pipeline
from selective_backprop._sampling.draws import Selection


class Epochs:
    def __init__(self, pipeline: Pipeline, state: LoaderState, silent: bool) -> None:
        self.messages = Messages(pipeline, state, silent)
        self.loss: WeighingLoss | None = None  # None until it is taken from the loader
        self._pipeline, self._state = pipeline, state
        self._length_planner = planner = LengthPlanner(pipeline.setup, pipeline)
        ranks = pipeline.setup.ranks
        self.handshake = EpochHandshake(ranks, pipeline, planner) if ranks.size > 1 else None
        self._live: weakref.ref[Epoch] | None = None
        self._even: Tensor | None = None  # weights of 1

    def close(self) -> None:
        if self._live is not None and (live := self._live()) is not None:
            live.close()

    def break_off(self) -> None:
        if self._state.start is not None:
            self._live = None
            self._state.leave()
            if (memory := self._pipeline.memory) is not None:
                memory.close()

    def begin(self, epoch: "Epoch") -> Generator[Any]:
        self.close()
        # A weak reference, so that a loop that breaks off frees the iterator and its workers.
        self._live = weakref.ref(epoch)
        return self._run()

    def _run(self) -> Generator[Any]:
        state, handshake, pipeline = self._state, self.handshake, self._pipeline
        start, mid_epoch = state.begin()
        try:
            self.messages.epoch_begins(start.epoch)
            if self.loss is not None:
                self.loss.begin()
            if handshake is None:
                setup = pipeline.setup
                if find_ranks(setup.process_group, setup.device).size > 1:
                    raise ConfigurationError(
                        "the loader was built before init_process_group(), so it does not know of "
                        "the other processes. Build it afterwards"
                    )
            else:
                handshake.open(start, begun=mid_epoch is not None)
            running = pipeline.run(start.epoch, mid_epoch)  # named, so that `leave` finds it runs
            for rows in running:
                self.messages.batch_comes(start.epoch)
                pipeline.tally["kept"] += rows.count
                pipeline.tally["batches"] += 1
                yield self._hand_out(rows)
                if self.loss is not None:
                    self.loss.refuse_if_unused()
            if handshake is not None:
                handshake.close()  # before anything that may fail on one rank alone
                beyond = handshake.own.candidates - state.candidates_seen  # which never came up
                pipeline.tally["beyond"] += max(0, beyond)
            if self.loss is not None:
                self.loss.close()
            self.messages.epoch_ends()
            state.start = None
        except BaseException:  # the loop was left, or something failed
            state.leave()
            raise

    def _hand_out(self, rows: Rows) -> Any:
        pipeline, tells = self._pipeline, self._pipeline.setup.with_selection
        if self.loss is None and not tells:
            return rows.batch
        weights = self._ones(rows.count) if rows.weights is None else rows.weights
        selection = Selection(rows.indices, weights)
        if self.loss is not None:
            self.loss.hand_out(rows.batch, selection, even=rows.weights is None)
        if pipeline.feed is not None and rows.plain:
            pipeline.feed.hand_out(weights)
        return (rows.batch, selection) if tells else rows.batch

    def _ones(self, count: int) -> Tensor:
        """Return weights of 1; use one tensor again and again if the user does not get it."""
        setup = self._pipeline.setup
        if setup.with_selection:
            return torch.ones(count, device=setup.device)
        if self._even is None or len(self._even) < count:
            self._even = torch.ones(count, device=setup.device)
        return self._even[:count]

    def length(self) -> int:
        handshake, begins = self.handshake, self._state.begins
        with self._naming_strategy():
            if handshake is None:
                return self._length_planner.batches(begins)
            return handshake.batches if self._state.start else handshake.foresee(begins)

    def lengths(self, epochs: int) -> list[int]:
        handshake, begins = self.handshake, self._state.begins
        with self._naming_strategy():
            if handshake is not None:
                handshake.foresee(begins)
            return self._length_planner.lengths(begins, epochs)

    @contextmanager
    def _naming_strategy(self) -> Generator[None]:
        try:
            yield
        except TypeError as error:
            name = self._pipeline.setup.strategy.name
            raise TypeError(
                f"{name} does not know in advance how many batches it yields: {error}. Count "
                "the batches as they come. If a learning-rate schedule counts steps, wrap it: "
                "sb.CandidateScheduler(scheduler, loader)."
            ) from None


class Epoch(Iterator[Any]):
    """An iterator over one epoch, which begins when the first batch is taken.

    Only the thread `scores_in` may take batches, because scoring changes the model's mode; if it is
    None, the thread that takes the first batch must take all.
    """

    def __init__(self, begin: Callable[["Epoch"], Generator[Any]], scores_in: int | None) -> None:
        self._begin, self._thread = begin, scores_in
        self._batches: Generator[Any] | None = None
        self._superseded = False

    def __next__(self) -> Any:
        if self._superseded:
            raise LoaderError(
                "another iteration of this SelectiveLoader has begun, so this one has ended: to "
                "iterate twice at a time, build two SelectiveLoaders"
            )
        thread = threading.get_ident()
        if self._thread not in (None, thread):
            raise LoaderError(
                "next() was called from a second thread, but one must take all batches of an "
                "epoch; if the strategy scores with the model, it must be the thread that built "
                "the loader. To read ahead, give the data loader workers (num_workers=)"
            )
        if self._batches is None:
            self._thread, self._batches = thread, self._begin(self)
        return next(self._batches)

    def close(self) -> None:
        if self._batches is not None:
            # an epoch that ended by itself goes on raising StopIteration, not an error
            self._superseded = inspect.getgeneratorstate(self._batches) != inspect.GEN_CLOSED
            self._batches.close()
