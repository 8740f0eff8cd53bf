"""What a second process does: hold a copy of the model, and score with it what it is sent."""

import gc
import os
import pickle
import random
import signal
import traceback
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from selective_backprop._core.errors import LoaderError, SelectionWarning
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import AbstractScorer, start_scorer
from selective_backprop.scorers.cheap._model_copy import overwrite, tensors_of
from selective_backprop.scorers.cheap.pipelined._shared_memory import TensorSlot, read

WATCH = 2.0  # seconds from one look whether the parent lives to the next


@dataclass(frozen=True)
class WorkerSetup:
    """What the process is to do.

    Attributes:
        scorer: scores with the copy.
        context: of the training; its model is the copy to be.
        seed: of its random streams.
        dtype: torch's default type.
        precision: torch's precision of matrix products in float32.
        deterministic: whether torch's algorithms must be.
    """

    scorer: AbstractScorer
    context: Context
    seed: int
    dtype: torch.dtype
    precision: str
    deterministic: bool


@dataclass(frozen=True)
class SharedBuffers:
    """The memory that both processes see.

    Attributes:
        slots: of the model's parameters and buffers, by name.
        weights: buffers of those, two to take turns.
        batches: buffers of batches, by number.
    """

    slots: dict[str, TensorSlot]
    weights: tuple[Tensor, Tensor]
    batches: dict[int, Tensor]


class WorkerState:
    """The process's own things.

    Args:
        setup: what is to be done.
        buffers: the shared memory.
    """

    def __init__(self, setup: WorkerSetup, buffers: SharedBuffers) -> None:
        assert isinstance(setup.context.model, nn.Module)  # the parent sends one
        self.twin = setup.context.model
        self.buffers = buffers
        self.twin.requires_grad_(False)
        for tensor in (*self.twin.parameters(), *self.twin.buffers()):
            if tensor.is_shared():  # what a fork did not copy
                tensor.data = tensor.data.clone()
        torch.set_default_dtype(setup.dtype)
        torch.set_float32_matmul_precision(setup.precision)
        if torch.are_deterministic_algorithms_enabled() != setup.deterministic:  # slow to set
            torch.use_deterministic_algorithms(setup.deterministic)
        torch.default_generator.manual_seed(setup.seed)
        np.random.seed(setup.seed % 2**32)
        random.seed(setup.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SelectionWarning)  # said by the parent already
            self.scorer = start_scorer(setup.scorer, setup.context)


class Request(ABC):
    """What the process is asked for; each is answered, in order."""

    @abstractmethod
    def run(self, worker: WorkerState) -> Any:
        """Do it, and return the answer, which is pickled."""


@dataclass(frozen=True)
class Renew(Request):
    """Bring the copy up to date.

    Attributes:
        number: of the buffer of weights.
        modes: of its modules, 1 for each that is in training.
    """

    number: int
    modes: bytes

    def run(self, worker: WorkerState) -> None:
        """Copy weights and modes, so that the buffer can be written to again."""
        buffer = worker.buffers.weights[self.number]
        fresh = {name: slot.of(buffer) for name, slot in worker.buffers.slots.items()}
        overwrite(tensors_of(worker.twin), fresh)
        for module, training in zip(worker.twin.modules(), self.modes, strict=True):
            module.training = bool(training)


@dataclass(frozen=True)
class Score(Request):
    """Score the candidates of one batch.

    Attributes:
        number: of the buffer of batches.
        start: the first byte of what tells how it is made up.
        stop: the byte after the last one.
        autocast: the type that is in force around the training loop, or None.
    """

    number: int
    start: int
    stop: int
    autocast: torch.dtype | None

    def run(self, worker: WorkerState) -> tuple[torch.dtype, np.ndarray]:
        """Return the scores' type and bytes."""
        batch, indices = read(worker.buffers.batches[self.number], self.start, self.stop)
        dtype = self.autocast or torch.get_autocast_dtype("cpu")
        enabled = self.autocast is not None
        with torch.autocast("cpu", dtype=dtype, enabled=enabled, cache_enabled=False):
            scores = worker.scorer.score(batch, indices)
        whole = scores.detach().clone(memory_format=torch.contiguous_format)
        return scores.dtype, whole.view(torch.uint8).numpy()


@dataclass(frozen=True)
class Widen(Request):
    """Take a larger buffer for batches in the place of one.

    Attributes:
        number: of the buffer that is replaced.
        buffer: the larger one.
    """

    number: int
    buffer: Tensor

    def run(self, worker: WorkerState) -> None:
        """Let the old one go."""
        worker.buffers.batches[self.number] = self.buffer


@dataclass(frozen=True)
class Report(Request):
    """Tell what the scorer must remember."""

    def run(self, worker: WorkerState) -> dict[str, Any]:
        """Return its state."""
        return worker.scorer.state_dict()


@dataclass(frozen=True)
class Resume(Request):
    """Go on from what the scorer had to remember, pickled."""

    state: bytes

    def run(self, worker: WorkerState) -> None:
        """Load its state."""
        worker.scorer.load_state_dict(pickle.loads(self.state))


def serve(
    connection: Connection,
    inherited: Connection | None,
    parent: int,
    threads: int,
    setup: WorkerSetup | bytes,
    buffers: SharedBuffers,
) -> None:
    """Answer requests until the parent closes the connection, or is no more.

    Args:
        connection: brings requests, and takes a pair `(answer, error)` for each.
        inherited: the parent's end, which a fork has left open here too.
        parent: its process id.
        threads: to compute with.
        setup: what is to be done, or that pickled.
        buffers: the shared memory.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the parent to act on
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(threads)
    # What a fork brought along is not this process's to collect, and is not copied for that.
    gc.freeze()
    if inherited is not None:
        inherited.close()
    worker: WorkerState | None = None
    while (request := _next(connection, parent)) is not None:
        try:
            if worker is None:
                setup = pickle.loads(setup) if isinstance(setup, bytes) else setup
                worker = WorkerState(setup, buffers)
            reply = pickle.dumps((request.run(worker), None))
        except Exception as error:
            reply = pickle.dumps((None, _portable(error)))
        try:
            connection.send_bytes(reply)
        except OSError:
            return


def _next(connection: Connection, parent: int) -> Request | None:
    try:
        while not connection.poll(WATCH):
            if os.getppid() != parent:  # others may still hold its end of the connection
                return None
        return connection.recv()
    except (EOFError, OSError):
        return None


def _portable(error: Exception) -> Exception:
    """Return an error that can be pickled, with its traceback as a note."""
    place = "in the process that scores:\n" + "".join(traceback.format_exception(error))
    try:
        known = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # whatever its class does when it is pickled
        known = False
    if not known:
        error = LoaderError(f"scoring failed: {type(error).__name__}: {error}")
    error.add_note(place)
    return error
