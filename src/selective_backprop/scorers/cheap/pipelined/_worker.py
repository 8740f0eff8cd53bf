"""What a second process does: hold a copy of the model, and score with it what it is sent."""

import gc
import os
import pickle
import random
import signal
import traceback
import warnings
from collections.abc import Callable
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
    """The copy of the model in this process, and what scores with it.

    Each method answers one of the parent's requests; what it returns is pickled.

    Args:
        setup: what is to be done.
        buffers: the shared memory.
    """

    def __init__(self, setup: WorkerSetup, buffers: SharedBuffers) -> None:
        assert isinstance(setup.context.model, nn.Module)  # the parent sends one
        self._twin = setup.context.model
        self._buffers = buffers
        self._twin.requires_grad_(False)
        for tensor in (*self._twin.parameters(), *self._twin.buffers()):
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
            self._scorer = start_scorer(setup.scorer, setup.context)

    def renew(self, number: int, modes: bytes) -> None:
        """Bring the copy up to date, after which the buffer may be written to again.

        Args:
            number: of the buffer that holds the weights.
            modes: of the copy's modules, 1 for each that is in training.
        """
        buffer = self._buffers.weights[number]
        fresh = {name: slot.of(buffer) for name, slot in self._buffers.slots.items()}
        overwrite(tensors_of(self._twin), fresh)
        for module, training in zip(self._twin.modules(), modes, strict=True):
            module.training = bool(training)

    def score(
        self, number: int, start: int, stop: int, autocast: torch.dtype | None
    ) -> tuple[torch.dtype, np.ndarray]:
        """Score the candidates of one batch.

        Args:
            number: of the buffer that holds the batch.
            start: the first byte of what tells how the batch is made up.
            stop: the byte after the last one.
            autocast: the type that is in force around the training loop, or None.

        Returns:
            The scores' type and bytes.
        """
        batch, indices = read(self._buffers.batches[number], start, stop)
        dtype = autocast or torch.get_autocast_dtype("cpu")
        enabled = autocast is not None
        with torch.autocast("cpu", dtype=dtype, enabled=enabled, cache_enabled=False):
            scores = self._scorer.score(batch, indices)
        whole = scores.detach().clone(memory_format=torch.contiguous_format)
        return scores.dtype, whole.view(torch.uint8).numpy()

    def widen(self, number: int, buffer: Tensor) -> None:
        """Take a larger buffer for batches instead of the one with this number."""
        self._buffers.batches[number] = buffer

    def report(self) -> dict[str, Any]:
        """Return what the scorer must remember."""
        return self._scorer.state_dict()

    def resume(self, state: bytes) -> None:
        """Go on from what the scorer had to remember, pickled."""
        self._scorer.load_state_dict(pickle.loads(state))


Request = tuple[Callable[..., Any], tuple[Any, ...]]  # a method of `WorkerState`, its arguments


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
        method, args = request
        try:
            if worker is None:
                setup = pickle.loads(setup) if isinstance(setup, bytes) else setup
                worker = WorkerState(setup, buffers)
            reply = pickle.dumps((method(worker, *args), None))
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
