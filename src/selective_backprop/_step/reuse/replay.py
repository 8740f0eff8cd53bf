"""Activation reuse: the training forward takes results from the selection pass.

Heavy operations of the selection pass are recorded with fingerprints of their inputs. In the
training forward, an operation whose inputs are those of the selected rows returns those rows of
the recorded result: row `i` of the result depends on row `i` of the inputs and on arguments
that are the same. Autograd runs above this, and sees an operation that was computed.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from selective_backprop._core.types import RowIndices
from selective_backprop._step.reuse.fingerprints import Fingerprints, same_memory, same_rows
from selective_backprop._step.reuse.operations import (
    OPERATIONS,
    Order,
    RowPlaces,
    as_plain_product,
    take_places,
    written_arguments,
)
from selective_backprop._step.reuse.recording import (
    BufferPool,
    Record,
    Recording,
    Tape,
    other_arguments,
    refuse_random,
)

REMEMBERED = 4096  # verified operations to remember; each new shape adds another


@dataclass
class ReuseCounts:
    """Where the results of a training forward's heavy operations came from.

    Attributes:
        operations: how many heavy operations there were.
        reused: how many results came from the record.
        products: multiplications that all of them take.
        spared: multiplications of those that were reused.
        strayed: whether operations came in another order than in the selection pass, as far as
            that was recorded.
    """

    operations: int = 0
    reused: int = 0
    products: float = 0.0
    spared: float = 0.0
    strayed: bool = False


class Replay(TorchDispatchMode):
    """Answer heavy operations from a record.

    Args:
        tape: the record; each entry is released after its use.
        rows: the candidates that the forward runs on.
        verified: operations whose recorded results were compared with computed ones.
        fingerprints: those that the recording used.
        pool: takes the memory of results after their use.
    """

    def __init__(
        self,
        tape: Tape,
        rows: RowIndices,
        verified: "VerifiedOps",
        fingerprints: Fingerprints,
        pool: BufferPool,
    ) -> None:
        super().__init__()
        self._pool = pool
        self._tape, self._verified, self._fingerprints = tape, verified, fingerprints
        self._places = RowPlaces(rows, tape.candidates)
        self.counts = ReuseCounts()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        refuse_random(func, args, kwargs)
        if func not in OPERATIONS:
            if written_arguments(func):
                self._tape.protect(func, args, kwargs)
                self._fingerprints.forget()
            return func(*args, **kwargs)
        func, args, shape = as_plain_product(func, args)
        result = self._find(func, args, kwargs)
        return result if shape is None else result.view(shape)

    def _find(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        products = OPERATIONS[func].products(args)
        self.counts.products += products
        place, record = self._next(func)
        if record is None:
            return func(*args, **kwargs)
        order = self._verified.allow(place, record) and self._recognise(record, args, kwargs)
        answer = self._answer(record, order) if order else None
        record.retire(self._pool)
        if answer is None:
            return func(*args, **kwargs)
        if not self._verified.passed(place, record):
            computed = func(*args, **kwargs)
            self._verified.note(place, record, _same_result(answer, computed))
            return computed
        self.counts.reused += 1
        self.counts.spared += products
        return answer

    def _next(self, function: OpOverload) -> tuple[int, Record | None]:
        tape, place = self._tape, self.counts.operations
        self.counts.operations += 1
        if self.counts.strayed or (tape.ended and place >= len(tape.functions)):
            return place, None
        if place >= len(tape.functions) or tape.functions[place] is not function:
            self.counts.strayed = True
            tape.clear()
            return place, None
        record, tape.records[place] = tape.records[place], None
        return place, record

    def _recognise(
        self, record: Record, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Order | None:
        """Return the order in which the inputs are the selected rows'; None if they differ."""
        operation = record.operation
        others = dict(other_arguments(operation, args, kwargs))
        if not record.intact or others.keys() != record.held.keys():
            return None
        inputs = [args[place] for place in operation.rows]
        shared = []
        for tensor, known in zip(inputs, record.fingerprints, strict=True):
            fits = (tensor.dtype, tensor.device) == known.kind
            inner = self._places.inner(known.shape[0], tensor.shape[0])
            if not fits or inner is None or tensor.shape[1:] != known.shape[1:]:
                return None
            shared.append(inner)
        projections = [
            self._fingerprints.of(tensor, known.reading)
            for tensor, known in zip(inputs, record.fingerprints, strict=True)
        ]
        for order in Order:
            alike = all(
                same_rows(
                    known.projections.index_select(0, self._places.along(inner, order)),
                    found,
                    tensor[0].numel(),
                )
                for known, found, inner, tensor in zip(
                    record.fingerprints, projections, shared, inputs, strict=True
                )
            )
            # If both orders fit, they hold the same rows, and so the same results.
            if alike and all(
                self._same_other(held, others[key], order) for key, held in record.held.items()
            ):
                return order
            # With one entry per candidate, both orders are the same.
            if all(inner == 1 for inner in shared):
                return None
        return None

    def _same_other(self, held: tuple[Any, int], now: Any, order: Order) -> bool:
        """Return whether an argument is unchanged, or is the selected rows of the earlier one."""
        before, version = held
        if not isinstance(before, Tensor) or not isinstance(now, Tensor):
            return type(before) is type(now) and before == now
        if before._version != version or (before.dtype, before.device) != (now.dtype, now.device):
            return False
        if same_memory(before, now):
            return True
        if before.shape == now.shape:
            return torch.equal(before, now)
        if not before.ndim or before.shape[1:] != now.shape[1:]:
            return False
        inner = self._places.inner(before.shape[0], now.shape[0])
        if inner is None:
            return False
        return torch.equal(before.index_select(0, self._places.along(inner, order)), now)

    def _answer(self, record: Record, order: Order) -> Any:
        inner = record.fingerprints[0].shape[0] // self._tape.candidates
        places = self._places.along(inner, order)
        count = record.operation.results
        taken = (
            *(take_places(result, places) for result in record.results[:count]),
            *record.results[count:],
        )
        return taken[0] if len(taken) == 1 else taken


class VerifiedOps:
    """Remember which operations' recorded results equalled computed ones."""

    def __init__(self) -> None:
        self._seen: dict[Any, bool] = {}

    def allow(self, place: int, record: Record) -> bool:
        """Return whether a recorded result may be used or compared: no comparison has failed."""
        return self._seen.get(_signature(place, record), True)

    def passed(self, place: int, record: Record) -> bool:
        """Return whether the operation's recorded result was compared and was right."""
        return self._seen.get(_signature(place, record), False)

    def note(self, place: int, record: Record, right: bool) -> None:
        """Remember the outcome of a comparison."""
        if len(self._seen) >= REMEMBERED:
            self._seen.clear()
        self._seen[_signature(place, record)] = right


class Reuse:
    """Record selection passes and replay them, one after the other."""

    def __init__(self) -> None:
        self._fingerprints = Fingerprints()
        self._verified = VerifiedOps()
        self._pool = BufferPool()

    @contextmanager
    def recording(self, candidates: int) -> Generator[Tape]:
        """Record the selection pass over `candidates` rows that runs in the body."""
        tape = Tape(candidates)
        # Fused inference kernels call other operations than training does.
        fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with Recording(tape, self._fingerprints, self._pool):
                yield tape
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            self._pool.sweep()
            self._fingerprints.forget()

    @contextmanager
    def replaying(self, tape: Tape, rows: RowIndices) -> Generator[ReuseCounts]:
        """Reuse the record in the training forward of `rows` that runs in the body; use it up."""
        replay = Replay(tape, rows, self._verified, self._fingerprints, self._pool)
        try:
            with replay:
                yield replay.counts
        finally:
            tape.clear()
            self._fingerprints.forget()


def _signature(place: int, record: Record) -> tuple[Any, ...]:
    return (place, record.function, *(part.shape[1:] for part in record.fingerprints))


def _same_result(answer: Any, computed: Any) -> bool:
    """Return whether recorded and computed results agree to within kernels' rounding."""
    one = answer[0] if isinstance(answer, tuple) else answer
    other = computed[0] if isinstance(computed, tuple) else computed
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    precision = torch.finfo(one.dtype).eps
    if one.is_cuda:
        precision = max(precision, 2.0**-10)  # of TF32, which may multiply the matrices
    apart = torch.linalg.vector_norm(one - other, dtype=torch.float64)
    size = torch.linalg.vector_norm(other, dtype=torch.float64)
    return bool(apart <= size * precision ** (2 / 3))
