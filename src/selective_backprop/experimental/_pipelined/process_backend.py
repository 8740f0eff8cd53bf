"""Score in a second process, on a processor core that training leaves idle.

The file begins with the memory that both processes share. Then come the second process's work and
the first process's control of it.

Batches are copied to buffers that are shared once. `torch.multiprocessing` would open a socket for
each tensor. Sent that way, 0.71 times as many batches of 128 x 3 x 32 x 32 were scored per second
with a small convolutional net, and 0.94 times as many with a medium one (medians of 24 and 20
interleaved rounds; the ratios' quartiles 0.68 to 0.80, and 0.82 to 1.10).
"""

import gc
import io
import math
import os
import pickle
import random
import signal
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, multiprocessing, nn

from selective_backprop._core.errors import (
    BatchError,
    ConfigurationError,
    LoaderError,
    SelectionWarning,
)
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.experimental._model_copy import cloned, overwrite, tensors_of
from selective_backprop.scorers._abstract import AbstractScorer, start_scorer

ALIGNMENT = 64  # bytes, a cache line
WATCH = 2.0  # seconds between checks that the other process is alive
UNSENDABLE = (AttributeError, RuntimeError, TypeError, pickle.PickleError)


class TensorSlot(NamedTuple):
    """The place and layout of a tensor without gaps in a flat buffer of bytes."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def after(cls, end: int, tensor: Tensor) -> "TensorSlot":
        """Return a slot for a tensor, in its memory format, that starts at byte `end` or later."""
        start = -(-end // ALIGNMENT) * ALIGNMENT
        stride = torch.empty_like(tensor, device="meta").stride()
        return cls(start, tensor.dtype, tuple(tensor.shape), tuple(stride))

    @property
    def stop(self) -> int:
        """The byte after the slot's last byte."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize

    def of(self, buffer: Tensor) -> Tensor:
        """Return the tensor in this slot, a view of the buffer."""
        return buffer[self.start : self.stop].view(self.dtype).as_strided(self.shape, self.stride)


def allocate(size: int) -> Tensor:
    """Return a buffer of at least `size` bytes that processes share.

    Raises:
        LoaderError: if there is too little shared memory.
    """
    try:
        return torch.empty(max(size, 1), dtype=torch.uint8).share_memory_()
    except RuntimeError as error:
        raise LoaderError(
            f"{size} bytes of shared memory cannot be allocated: {error}. Give the system more "
            "(--shm-size for a container), or use a smaller ahead="
        ) from error


class SharedMessage(pickle.Pickler):
    """A value ready to be written to a buffer: tensors are copied, the rest is pickled.

    Raises:
        BatchError: if something in it cannot be pickled, or a tensor is not on the CPU.
    """

    def __init__(self, value: Any) -> None:
        file = io.BytesIO()
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._slots: list[tuple[TensorSlot, Tensor]] = []
        self._start = 0
        try:
            self.dump(value)
        except UNSENDABLE as error:
            raise BatchError(
                f"the batch cannot be sent to the process that scores: {error}. Let the collate "
                "function return only tensors and objects that can be pickled."
            ) from error
        self._bytes = file.getvalue()
        self.size = self._start + len(self._bytes)

    def persistent_id(self, obj: Any) -> TensorSlot | None:
        """Return the slot of a plain tensor; for anything else, None: it is pickled."""
        if not isinstance(obj, Tensor):
            return None
        if obj.device.type != "cpu":
            raise BatchError(
                f"the batch has a tensor on {obj.device}, but the process that scores uses the "
                "CPU, where the model is; move the batch to the CPU"
            )
        special = obj.layout != torch.strided or obj.is_nested or obj.is_quantized
        if type(obj) is not Tensor or special:
            return None
        slot = TensorSlot.after(self._start, obj)
        self._slots.append((slot, obj))
        self._start = slot.stop
        return slot

    @torch.no_grad()
    def write(self, buffer: Tensor) -> tuple[int, int]:
        """Write the value to a buffer; return the start and stop byte that `read` needs."""
        for slot, tensor in self._slots:
            slot.of(buffer).copy_(tensor)
        buffer.numpy()[self._start : self.size] = memoryview(self._bytes)
        return self._start, self.size


def read(buffer: Tensor, start: int, stop: int) -> Any:
    """Return the value that was written; its tensors are views of the buffer."""
    unpickler = _Unpickler(io.BytesIO(buffer.numpy()[start:stop].tobytes()))
    unpickler.buffer = buffer
    return unpickler.load()


class _Unpickler(pickle.Unpickler):
    buffer: Tensor

    def persistent_load(self, pid: TensorSlot) -> Tensor:
        return pid.of(self.buffer)


class WorkerSetup(NamedTuple):
    """What the second process needs; torch's settings are those of the first process."""

    scorer: AbstractScorer
    context: Context  # of the training; its model becomes the copy
    seed: int
    dtype: torch.dtype
    precision: str  # of matrix products in float32
    deterministic: bool


class Worker:
    """The copy of the model in the second process, and the scorer that uses it.

    Each method answers a request of the first process; its return value is pickled.
    """

    def __init__(self, setup: WorkerSetup, weights: dict[str, Tensor]) -> None:
        assert isinstance(setup.context.model, nn.Module)  # the parent sends one
        self._twin = setup.context.model.requires_grad_(False)
        self._weights = weights
        self._buffers: dict[int, Tensor] = {}
        for tensor in (*self._twin.parameters(), *self._twin.buffers()):
            if tensor.is_shared():  # a fork does not copy shared memory
                tensor.data = tensor.data.clone()
        torch.set_default_dtype(setup.dtype)
        torch.set_float32_matmul_precision(setup.precision)
        if torch.are_deterministic_algorithms_enabled() != setup.deterministic:  # slow to set
            torch.use_deterministic_algorithms(setup.deterministic)
        torch.default_generator.manual_seed(setup.seed)
        np.random.seed(setup.seed % 2**32)
        random.seed(setup.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SelectionWarning)  # the parent has warned already
            self._scorer = start_scorer(setup.scorer, setup.context)

    def renew(self, modes: bytes) -> None:
        """Update the copy; `modes` has a 1 for each module in training mode."""
        overwrite(tensors_of(self._twin), self._weights)
        for module, training in zip(self._twin.modules(), modes, strict=True):
            module.training = bool(training)

    def score(
        self, number: int, start: int, stop: int, autocast: torch.dtype | None
    ) -> tuple[torch.dtype, np.ndarray]:
        """Score the batch in a buffer, and return the scores' type and bytes.

        `autocast` is the autocast type around the training loop; None if there is none.
        """
        batch, indices = read(self._buffers[number], start, stop)
        dtype = autocast or torch.get_autocast_dtype("cpu")
        enabled = autocast is not None
        with torch.autocast("cpu", dtype=dtype, enabled=enabled, cache_enabled=False):
            scores = self._scorer.score(batch, indices)
        whole = scores.detach().clone(memory_format=torch.contiguous_format)
        return scores.dtype, whole.view(torch.uint8).numpy()

    def widen(self, number: int, buffer: Tensor) -> None:
        """Use this buffer in place of the smaller one with this number, if there is one."""
        self._buffers[number] = buffer

    def report(self) -> dict[str, Any]:
        """Return the scorer's state."""
        return self._scorer.state_dict()

    def resume(self, state: bytes) -> None:
        """Load the scorer's pickled state."""
        self._scorer.load_state_dict(pickle.loads(state))


def serve(
    connection: Connection,
    inherited: Connection | None,
    parent: int,
    setup: WorkerSetup | bytes,
    weights: dict[str, Tensor],
) -> None:
    """Answer requests with pairs `(answer, error)` until the parent or the connection ends.

    `inherited` is the parent's end of the connection, which a fork leaves open here too. `setup`
    may be pickled.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent reacts to it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)  # if training has used several threads, they hang in a fork
    # Objects that a fork inherited are not collected here: looking at them would copy their memory.
    gc.freeze()
    if inherited is not None:
        inherited.close()
    worker: Worker | None = None
    try:
        while True:
            while not connection.poll(WATCH):
                if os.getppid() != parent:  # others may still hold its end of the connection
                    return
            method, args = connection.recv()
            try:
                if worker is None:
                    setup = pickle.loads(setup) if isinstance(setup, bytes) else setup
                    worker = Worker(setup, weights)
                reply = pickle.dumps((method(worker, *args), None))
            except Exception as error:
                reply = pickle.dumps((None, _portable(error)))
            connection.send_bytes(reply)
    except (EOFError, OSError):
        return


def _portable(error: Exception) -> Exception:
    """Return an error that can be pickled, with its traceback as a note."""
    place = "in the process that scores:\n" + "".join(traceback.format_exception(error))
    try:
        known = type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # an error's class may raise anything when it is pickled
        known = False
    if not known:
        error = LoaderError(f"scoring failed: {type(error).__name__}: {error}")
    error.add_note(place)
    return error


class SecondProcess:
    """A process that answers requests one after another, and ends when this object does."""

    def __init__(self, setup: WorkerSetup, weights: dict[str, Tensor]) -> None:
        method = multiprocessing.get_start_method(allow_none=True)
        method = method or multiprocessing.get_all_start_methods()[0]  # the default, not yet fixed
        forks = method == "fork"
        sent = setup if forks else _pickled(setup)
        context: Any = multiprocessing.get_context(method)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve,
            args=(theirs, self._connection if forks else None, os.getpid(), sent, weights),
            name="selective-backprop-scorer",
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._asked: deque[Future[Any]] = deque()
        self._lost: LoaderError | None = None
        self._end = weakref.finalize(self, _end, self._process, self._connection, os.getpid())

    def ask(self, method: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call a method of `Worker` in the process, and return a future of its answer."""
        if self._lost is not None:
            raise self._lost
        answer: Future[Any] = Future()
        with self._exchange():
            while self._asked and self._connection.poll():
                self._receive()
            self._connection.send((method, args))
            self._asked.append(answer)
        return answer

    def wait_for(self, answer: Future[Any]) -> Future[Any]:
        """Wait for an answer and return it; raise if the process has ended."""
        while not answer.done():
            if self._lost is not None:
                raise self._lost
            watched = [self._connection, self._process.sentinel]
            if wait(watched, WATCH) or not self._process.is_alive():
                with self._exchange():
                    self._receive()
        return answer

    def _receive(self) -> None:
        if not self._connection.poll():
            raise EOFError
        value, error = self._connection.recv()
        answer = self._asked.popleft()
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    @contextmanager
    def _exchange(self) -> Generator[None]:
        """End the process if it fails, or if the exchange breaks off: answers would get mixed."""
        try:
            yield
        except BaseException as error:
            gone = isinstance(error, EOFError | OSError)
            how = self._ending() if gone else "was stopped because an exchange was interrupted"
            self._lost = LoaderError(
                f"the process that scores {how}, but candidates wait for their scores. Make the "
                "loader anew, or score without Pipelined"
            )
            self._end()
            if gone:
                raise self._lost from None
            raise

    def _ending(self) -> str:
        """Return how a process ended, for the message."""
        self._process.join(5.0)
        code = self._process.exitcode
        how = "does not answer" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return f"{how} (see its output on stderr; SIGKILL often means that memory ran out)"


def _end(process: Any, connection: Connection, owner: int) -> None:
    if os.getpid() != owner:  # inherited by a fork, such as a worker of the data loader
        return
    connection.close()
    process.kill()
    process.join()
    process.close()


@final
class ProcessBackend:
    """A copy of the model in a second process, started as `torch.multiprocessing` is set to.

    At most `ahead` batches are begun before the scores of the first are waited for.

    Raises:
        ConfigurationError: if something must be pickled but cannot be.
        LoaderError: if there is too little shared memory.
    """

    def __init__(
        self, scorer: AbstractScorer, context: Context, model: nn.Module, ahead: int, seed: int
    ) -> None:
        self._model = model
        self._weights = cloned(tensors_of(model))
        for tensor in self._weights.values():
            tensor.share_memory_()
        self._unread: Future[Any] | None = None
        self._busy: list[Future[Any] | None] = [None] * (ahead + 1)
        self._buffers = [torch.empty(0, dtype=torch.uint8)] * (ahead + 1)
        self._begun = 0
        setup = WorkerSetup(
            scorer,
            replace(context, model=model, checks=False),
            seed,
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
        )
        self._process = SecondProcess(setup, self._weights)

    def begin(self, batch: Any, indices: RowIndices | None, *, renew: bool) -> Callable[[], Scores]:
        """Copy the batch, and with `renew` also the weights, to memory that the process sees."""
        message = SharedMessage((batch, indices))
        if renew:
            self._renew(tensors_of(self._model))
        number, buffers = self._begun % len(self._busy), self._buffers
        # A buffer is still busy only if batches were dropped: there is one for each begun batch.
        if (busy := self._busy[number]) is not None:
            self._process.wait_for(busy)
        if message.size > buffers[number].numel():
            buffers[number] = allocate(max(message.size, buffers[number].numel() * 3 // 2))
            self._process.ask(Worker.widen, number, buffers[number])
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        place = message.write(buffers[number])
        answer = self._process.ask(Worker.score, number, *place, autocast)
        self._busy[number] = answer
        self._begun += 1

        def scores() -> Scores:
            dtype, data = self._process.wait_for(answer).result()
            return torch.from_numpy(data).view(dtype)

        return scores

    def _renew(self, tensors: dict[str, Tensor]) -> None:
        if self._unread is not None:
            self._process.wait_for(self._unread)  # else weights would change while they are read
        overwrite(self._weights, tensors)
        modes = bytes(module.training for module in self._model.modules())
        self._unread = self._process.ask(Worker.renew, modes)

    def weights(self) -> dict[str, Tensor]:
        """Return copies of the weights last sent."""
        return cloned(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the inner scorer's state, once all begun batches are scored."""
        return self._process.wait_for(self._process.ask(Worker.report)).result()

    def resume(self, weights: dict[str, Tensor] | None, state: dict[str, Any] | None) -> None:
        """Continue from `weights()` and `state_dict()`, before any batch; None changes nothing."""
        if weights is not None:
            self._renew(weights)
        if state is not None:
            answer = self._process.ask(Worker.resume, pickle.dumps(state))
            self._process.wait_for(answer).result()


def _pickled(setup: WorkerSetup) -> bytes:
    try:
        return pickle.dumps(setup)  # by value: the user's tensors do not move to shared memory
    except UNSENDABLE as error:
        raise ConfigurationError(
            "the process that scores is not forked, so the model, the losses and the scorer are "
            f"sent to it, but one of them cannot be pickled: {error}. Define functions at the top "
            'of a module, or call torch.multiprocessing.set_start_method("fork") if your system '
            "can fork"
        ) from error
