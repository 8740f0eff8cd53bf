"""Score in a second process, on a processor core that training leaves idle."""

import os
import pickle
import signal
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, final

import torch
from torch import Tensor, multiprocessing, nn

from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import AbstractScorer
from selective_backprop.scorers.cheap._model_copy import overwrite, tensors_of
from selective_backprop.scorers.cheap.pipelined._backend import ScoringBackend
from selective_backprop.scorers.cheap.pipelined._shared_memory import (
    SharedMessage,
    allocate,
    find_slots,
)
from selective_backprop.scorers.cheap.pipelined._worker import (
    SharedBuffers,
    WorkerSetup,
    WorkerState,
    serve,
)

FORK = "fork"
INTERRUPTED = "was stopped when the exchange with it was broken off"  # answers would mix
WATCH = 5.0  # seconds from one look whether the process lives to the next


class SecondProcess:
    """A process that answers requests one after another, and goes when this object does.

    Args:
        method: how it is started.
        threads: that it computes with.
        setup: what it is to do, or that pickled.
        buffers: the memory that both see.
    """

    def __init__(
        self, method: str, threads: int, setup: WorkerSetup | bytes, buffers: SharedBuffers
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self._connection, theirs = context.Pipe()
        inherited = self._connection if method == FORK else None
        self._process = context.Process(
            target=serve,
            args=(theirs, inherited, os.getpid(), threads, setup, buffers),
            name="selective-backprop-scorer",
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._asked: deque[Future[Any]] = deque()
        self._lost: LoaderError | None = None
        self._end = weakref.finalize(self, _end, self._process, self._connection, os.getpid())

    def ask(self, method: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have a method of `WorkerState` called there, and return where its answer will be.

        Raises:
            LoaderError: if the process is no more.
        """
        self._check()
        while self._asked and self._connection.poll():
            self._receive()
        answer: Future[Any] = Future()
        try:
            self._connection.send((method, args))
            self._asked.append(answer)
        except OSError:
            raise self._lose() from None
        except BaseException:
            self._give_up(INTERRUPTED)
            raise
        return answer

    def settle(self, answer: Future[Any]) -> Future[Any]:
        """Return an answer when it is there.

        Raises:
            LoaderError: if the process is no more, and so never will be.
        """
        while not answer.done():
            self._check()
            if wait([self._connection, self._process.sentinel], WATCH):
                self._receive()
            elif not self._process.is_alive():
                raise self._lose()
        return answer

    def _receive(self) -> None:
        if not self._connection.poll():
            raise self._lose()
        try:
            value, error = self._connection.recv()
            answer = self._asked.popleft()
            if error is None:
                answer.set_result(value)
            else:
                answer.set_exception(error)
        except (EOFError, OSError):
            raise self._lose() from None
        except BaseException:
            self._give_up(INTERRUPTED)
            raise

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _lose(self) -> LoaderError:
        """Give up a process that has gone, and return what to say of that."""
        self._process.join(WATCH)
        code = self._process.exitcode
        how = "does not answer" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return self._give_up(
            f"{how}; SIGKILL often means that memory ran out, and what else it has to say is on "
            "stderr"
        )

    def _give_up(self, how: str) -> LoaderError:
        self._lost = LoaderError(
            f"the process that scores {how}, and candidates wait for their scores. Make the "
            "loader anew, or score with Synced instead of Pipelined"
        )
        self._end()
        return self._lost


@final
class ProcessBackend(ScoringBackend):
    """A copy of the model in a second process.

    Args:
        scorer: scores with the copy.
        context: of the training.
        model: the model to copy, without a wrapper.
        first: a batch with its indices, to make room for.
        method: how the process is started.
        threads: that it computes with.
        ahead: batches that are begun before the first is waited for.
        seed: of the process's random streams.

    Raises:
        ConfigurationError: if something cannot be pickled where it must be.
        LoaderError: if there is too little shared memory.
    """

    def __init__(
        self,
        scorer: AbstractScorer,
        context: Context,
        model: nn.Module,
        first: Any,
        *,
        method: str,
        threads: int,
        ahead: int,
        seed: int,
    ) -> None:
        self._model = model
        tensors = tensors_of(model)
        slots = find_slots(tensors)
        size = max((slot.stop for slot in slots.values()), default=0)
        room = SharedMessage(first).size
        self._buffers = SharedBuffers(
            slots,
            weights=(allocate(size), allocate(size)),
            batches={number: allocate(room) for number in range(ahead + 1)},
        )
        self._weights = [
            {name: slot.of(buffer) for name, slot in slots.items()}
            for buffer in self._buffers.weights
        ]
        self._unread: list[Future[Any] | None] = [None, None]
        self._busy: list[Future[Any] | None] = [None] * (ahead + 1)
        self._renewed = self._begun = 0
        setup = WorkerSetup(
            scorer,
            replace(context, model=model, checks=False),
            seed,
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
        )
        sent = setup if method == FORK else _pickled(setup, method)
        self._process = SecondProcess(method, threads, sent, self._buffers)

    def begin(self, batch: Any, indices: RowIndices | None, *, renew: bool) -> Callable[[], Scores]:
        """Copy the batch to where the process sees it, and the weights if they are due."""
        message = SharedMessage((batch, indices))
        if renew:
            self._renew(tensors_of(self._model))
        number = self._begun % len(self._busy)
        # Still busy only if batches were let go: no more are begun than there are buffers.
        if (busy := self._busy[number]) is not None:
            self._process.settle(busy)
        if message.size > self._buffers.batches[number].numel():
            self._widen(number, message.size)
        start, stop = message.write(self._buffers.batches[number])
        answer = self._process.ask(WorkerState.score, number, start, stop, _autocast())
        self._busy[number] = answer
        self._begun += 1

        def scores() -> Scores:
            dtype, data = self._process.settle(answer).result()
            return torch.from_numpy(data).view(dtype)

        return scores

    def _renew(self, tensors: dict[str, Tensor]) -> None:
        number = self._renewed % 2
        if (unread := self._unread[number]) is not None:
            self._process.settle(unread)
        overwrite(self._weights[number], tensors)
        modes = bytes(module.training for module in self._model.modules())
        self._unread[number] = self._process.ask(WorkerState.renew, number, modes)
        self._renewed += 1

    def _widen(self, number: int, size: int) -> None:
        buffer = allocate(max(size, self._buffers.batches[number].numel() * 3 // 2))
        self._buffers.batches[number] = buffer
        self._process.ask(WorkerState.widen, number, buffer)

    def weights(self) -> dict[str, Tensor]:
        """Return those last sent."""
        sent = self._weights[(self._renewed - 1) % 2]
        return {name: value.clone() for name, value in sent.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what the scorer within must remember, when all that was begun is scored."""
        return self._process.settle(self._process.ask(WorkerState.report)).result()

    def resume(self, weights: dict[str, Tensor] | None, state: dict[str, Any] | None) -> None:
        """Send what to go on from."""
        if weights is not None:
            self._renew(weights)
        if state is not None:
            answer = self._process.ask(WorkerState.resume, pickle.dumps(state))
            self._process.settle(answer).result()


def _pickled(setup: WorkerSetup, method: str) -> bytes:
    try:
        return pickle.dumps(setup)  # by value: nothing of the user's moves to shared memory
    except (AttributeError, RuntimeError, TypeError, pickle.PickleError) as error:
        raise ConfigurationError(
            f'a process started by "{method}" must be sent the model, the losses and the scorer, '
            f"and one of them cannot be pickled: {error}. Define functions at the top of a "
            'module, or start it with start_method="fork" where the system can'
        ) from error


def _autocast() -> torch.dtype | None:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def _end(process: Any, connection: Connection, owner: int) -> None:
    if os.getpid() != owner:  # inherited by a fork, such as a worker of the data loader
        return
    connection.close()
    process.kill()
    process.join()
    process.close()
