"""Activation reuse: the training forward takes results from the selection pass.

Heavy operations of the selection pass are recorded with fingerprints of their inputs. In the
training forward, an operation whose inputs belong to the selected rows returns these rows of
the recorded result: row `i` of the result depends on row `i` of the inputs and on arguments
that are the same. Autograd runs above this, and sees an operation that was computed.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from selective_backprop._core.types import RowIndices
from selective_backprop._step.reuse import ReuseCounts
from selective_backprop.experimental._reuse.batch_norm import (
    Moments,
    note_statistics,
    use_statistics,
)
from selective_backprop.experimental._reuse.fingerprints import (
    Fingerprints,
    Reading,
    plan_reading,
    same_memory,
    same_rows,
)
from selective_backprop.experimental._reuse.operations import (
    OPERATIONS,
    Operation,
    Order,
    RowPlaces,
    as_plain_product,
    ask_for_all,
    refuse_random,
    take_places,
    written_arguments,
)

USERS = 2  # use count of a storage that one tensor holds, while `untyped_storage()` adds one
REMEMBERED = 4096  # results of comparisons to remember; each new shape adds another


class BufferPool:
    """Tensors in host memory, by shape and type, to which new results can be written.

    Large tensors that are freed go back to the operating system, which hands them out again
    page by page: a step of a ViT of width 384 took 6 % longer when it freed all results of a
    pass than when it kept their memory. Devices with a caching allocator do not need this.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}

    def take(self, shape: torch.Size, dtype: torch.dtype) -> Tensor | None:
        """Return a free contiguous tensor, or None."""
        waiting = self._free.get((shape, dtype))
        return waiting.pop() if waiting else None

    def put(self, tensor: Tensor) -> None:
        """Keep a tensor for later results, if nothing else uses its memory."""
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            return
        storage = tensor.untyped_storage()
        full = storage.nbytes() == tensor.numel() * tensor.element_size()
        if full and torch._C._storage_Use_Count(storage._cdata) == USERS:
            self._free.setdefault((tensor.shape, tensor.dtype), []).append(tensor)

    def sweep(self) -> None:
        """Release all free tensors."""
        self._free.clear()


@dataclass(frozen=True)
class InputFingerprint:
    """What a record keeps of an argument that holds rows."""

    shape: torch.Size
    kind: tuple[torch.dtype, torch.device]
    reading: Reading
    projections: Tensor


@dataclass
class Record:
    """One recorded operation of the selection pass.

    Attributes:
        operation: how its result's rows depend on its arguments.
        fingerprints: of the arguments that hold rows.
        held: the other arguments, by position or name, each with its version.
        results: what it returned; empty once that is of no use.
        versions: of the results that hold rows; they show later writes to them.
    """

    operation: Operation
    fingerprints: list[InputFingerprint]
    held: dict[int | str, tuple[Any, int]]
    results: list[Any]
    versions: list[int]

    @property
    def row_results(self) -> list[Tensor]:
        """The results that hold rows."""
        return self.results[: self.operation.results]

    @property
    def intact(self) -> bool:
        """Whether the results can be used and are unchanged."""
        return self.versions == [result._version for result in self.row_results]

    def retire(self, pool: BufferPool) -> None:
        """Give the results' memory to the pool; the results must not be used afterwards."""
        results, self.results = self.results, []
        if results and self.operation.into is not None:  # its only result
            pool.put(results.pop())

    def evade(self, storage: int) -> None:
        """Copy results out of a storage that is about to be written to.

        If an argument is in it, the results are given up.
        """
        if any(
            _has_storage(value) and _storage(value) == storage for value, _ in self.held.values()
        ):
            self.results = []
        for place, result in enumerate(self.row_results):
            if _storage(result) == storage:
                self.results[place] = result.clone()
                self.versions[place] = self.results[place]._version


class Tape:
    """The heavy operations of one selection pass in order; None for any unfit for reuse."""

    def __init__(self, candidates: int, fingerprints: Fingerprints, pool: BufferPool) -> None:
        self.candidates, self.fingerprints, self.pool = candidates, fingerprints, pool
        self.records: list[Record | None] = []
        self.functions: list[OpOverload] = []
        self._users: dict[int, list[Record]] = {}

    def add(self, function: OpOverload, record: Record | None) -> None:
        """Add an operation."""
        self.functions.append(function)
        self.records.append(record)
        if record is not None:
            others = (value for value, _ in record.held.values())
            for tensor in (*record.row_results, *filter(_has_storage, others)):
                self._users.setdefault(_storage(tensor), []).append(record)

    def clear(self) -> None:
        """Release everything."""
        self.records.clear()
        self._users.clear()

    def protect(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save recorded results from a call that may write to their memory.

        Versions alone would not show it: a write through `.data` does not change them.
        """
        for place, name in (places := written_arguments(function)):
            written = kwargs.get(name) if place >= len(args) else args[place]
            for tensor in written if isinstance(written, (list, tuple)) else (written,):
                if _has_storage(tensor):
                    for record in self._users.pop(_storage(tensor), ()):
                        record.evade(_storage(tensor))
        if places:
            self.fingerprints.forget()

    def count_bytes(self, model: nn.Module) -> int:
        """Return the bytes held, each storage counted once, without the model's own tensors."""
        every = (*model.parameters(), *model.buffers())
        owned = {_storage(tensor) for tensor in every if _has_storage(tensor)}
        sizes: dict[int, int] = {}
        for record in filter(None, self.records):
            fingerprints = (part.projections for part in record.fingerprints)
            others = (value for value, _ in record.held.values())
            for tensor in filter(_has_storage, (*record.results, *fingerprints, *others)):
                sizes[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return sum(size for storage, size in sizes.items() if storage not in owned)


class Recording(TorchDispatchMode):
    """Record heavy operations on a tape."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        refuse_random(func, args, kwargs)
        if func not in OPERATIONS:
            self._tape.protect(func, args, kwargs)
            return func(*args, **kwargs)
        func, args, shape = as_plain_product(func, ask_for_all(OPERATIONS[func], args))
        operation = OPERATIONS[func]
        fingerprints = self._take_fingerprints(operation, args)  # while the inputs are in the cache
        free = None
        if fingerprints is not None and operation.into is not None:
            rows = args[operation.rows[0]]
            if rows.device.type == "cpu":
                wanted = torch.Size((*rows.shape[:-1], args[-1].shape[-1]))
                free = self._tape.pool.take(wanted, rows.dtype)
        if free is None or operation.into is None:
            returned = func(*args, **kwargs)
        else:
            returned = operation.into(*args, **kwargs, out=free)
        self._tape.add(func, _describe(operation, fingerprints, args, kwargs, returned))
        return returned if shape is None else returned.view(shape)

    def _take_fingerprints(
        self, operation: Operation, args: tuple[Any, ...]
    ) -> list[InputFingerprint] | None:
        """Return the inputs' fingerprints; None if they cannot be taken or would not pay."""
        if not operation.pays(args):
            return None
        fingerprints = []
        for place in operation.rows:
            tensor = args[place]
            reading = plan_reading(tensor)
            if reading is None or tensor.shape[0] % self._tape.candidates:
                return None
            found = self._tape.fingerprints.of(tensor, reading)
            kind = tensor.dtype, tensor.device
            fingerprints.append(InputFingerprint(tensor.shape, kind, reading, found))
        return fingerprints


def _describe(
    operation: Operation,
    fingerprints: list[InputFingerprint] | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    returned: Any,
) -> Record | None:
    """Return the record of an operation; None if its results cannot be reused."""
    results = list(returned) if isinstance(returned, tuple) else [returned]
    tensors = results[: operation.results]
    if fingerprints is None or any(type(result) is not Tensor for result in tensors):
        return None
    # Own tensor objects, so that `BufferPool.put` sees whether others use the storage.
    results[: operation.results] = [tensor.detach() for tensor in tensors]
    versions = [result._version for result in tensors]
    held = {
        key: (value, value._version if isinstance(value, Tensor) else 0)
        for key, value in _other_arguments(operation, args, kwargs)
    }
    return Record(operation, fingerprints, held, results, versions)


class Replay(TorchDispatchMode):
    """Answer heavy operations from a tape; each record is released after its use.

    The forward runs on `rows` of the candidates. `verdicts` says by operation whether recorded
    results equalled computed ones.
    """

    def __init__(self, tape: Tape, rows: RowIndices, verdicts: dict[Any, bool]) -> None:
        super().__init__()
        self._tape, self._verdicts = tape, verdicts
        self._places = RowPlaces(rows, tape.candidates)
        self.counts = ReuseCounts()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        refuse_random(func, args, kwargs)
        if func not in OPERATIONS:
            self._tape.protect(func, args, kwargs)
            return func(*args, **kwargs)
        func, args, shape = as_plain_product(func, args)
        result = self._find(func, args, kwargs)
        return result if shape is None else result.view(shape)

    def _find(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of an operation, from its record where that is right."""
        products = OPERATIONS[func].products(args)
        self.counts.products += products
        place, record = self._next(func)
        if record is None:
            return func(*args, **kwargs)
        signature = place, func, *(part.shape[1:] for part in record.fingerprints)
        verdict = self._verdicts.get(signature)  # None before the first comparison
        order = None if verdict is False else self._recognise(record, args, kwargs)
        answer = None if order is None else self._answer(record, order)
        record.retire(self._tape.pool)
        if answer is not None and verdict:
            self.counts.reused += 1
            self.counts.spared += products
            return answer
        computed = func(*args, **kwargs)
        if answer is not None:
            if len(self._verdicts) >= REMEMBERED:
                self._verdicts.clear()
            self._verdicts[signature] = _same_result(answer, computed)
        return computed

    def _next(self, function: OpOverload) -> tuple[int, Record | None]:
        tape, place = self._tape, self.counts.operations
        self.counts.operations += 1
        if self.counts.strayed:
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
        others = dict(_other_arguments(record.operation, args, kwargs))
        if not record.intact or others.keys() != record.held.keys():
            return None
        inputs = [args[place] for place in record.operation.rows]
        pairs = []
        for tensor, known in zip(inputs, record.fingerprints, strict=True):
            inner = self._places.inner(known.shape, tensor.shape)
            if inner is None or (tensor.dtype, tensor.device) != known.kind:
                return None
            projections = self._tape.fingerprints.of(tensor, known.reading)
            pairs.append((known.projections, projections, inner, tensor[0].numel()))
        for order in Order:
            alike = all(
                same_rows(known.index_select(0, self._places.along(inner, order)), found, width)
                for known, found, inner, width in pairs
            )
            # If both orders fit, they hold the same rows, and so the same results.
            if alike and all(
                self._same_other(*held, others[key], order) for key, held in record.held.items()
            ):
                return order
            # With one entry per candidate, both orders are the same.
            if all(inner == 1 for _, _, inner, _ in pairs):
                return None
        return None

    def _same_other(self, before: Any, version: int, now: Any, order: Order) -> bool:
        """Return whether an argument is unchanged, or is the selected rows of the earlier one."""
        if not isinstance(before, Tensor) or not isinstance(now, Tensor):
            return type(before) is type(now) and before == now
        if before._version != version or (before.dtype, before.device) != (now.dtype, now.device):
            return False
        if before.shape != now.shape:
            inner = self._places.inner(before.shape, now.shape)
            if inner is None:
                return False
            before = before.index_select(0, self._places.along(inner, order))
        return same_memory(before, now) or torch.equal(before, now)

    def _answer(self, record: Record, order: Order) -> Any:
        inner = record.fingerprints[0].shape[0] // self._tape.candidates
        places = self._places.along(inner, order)
        taken = [take_places(result, places) for result in record.row_results]
        taken += record.results[len(taken) :]
        return taken[0] if len(taken) == 1 else tuple(taken)


class RunningReuseActivations:
    """Record selection passes and replay them, one after the other.

    With `candidate_statistics`, BatchNorm in the training forward normalises by the statistics of
    the selection pass.
    """

    def __init__(self, *, candidate_statistics: bool) -> None:
        self._by_candidates = candidate_statistics
        self._fingerprints = Fingerprints()
        self._pool = BufferPool()
        self._verdicts: dict[Any, bool] = {}
        self._moments: list[Moments] = []
        self._tape = Tape(0, self._fingerprints, self._pool)

    def count_bytes(self, model: nn.Module) -> int:
        """Return the memory that the record holds beside the model's own."""
        return self._tape.count_bytes(model)

    @contextmanager
    def recording(self, candidates: int) -> Generator[None]:
        """Record the selection pass over `candidates` rows that runs in the body."""
        self._tape, self._moments = Tape(candidates, self._fingerprints, self._pool), []
        # Fused inference kernels call other operations than training does.
        fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        noting = note_statistics(self._moments) if self._by_candidates else nullcontext()
        try:
            with Recording(self._tape), noting:
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            self._pool.sweep()
            self._fingerprints.forget()

    @contextmanager
    def replaying(self, rows: RowIndices) -> Generator[ReuseCounts]:
        """Reuse the record in the training forward of `rows` that runs in the body; use it up."""
        replay = Replay(self._tape, rows, self._verdicts)
        noted = use_statistics(self._moments) if self._by_candidates else nullcontext()
        try:
            with noted, replay:
                yield replay.counts
        finally:
            self._tape.clear()
            self._fingerprints.forget()


def _other_arguments(
    operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[int | str, Any]]:
    """Yield all arguments that hold no rows, by position or name."""
    yield from ((place, value) for place, value in enumerate(args) if place not in operation.rows)
    yield from kwargs.items()


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


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _has_storage(value: Any) -> TypeGuard[Tensor]:
    if not isinstance(value, Tensor) or is_traceable_wrapper_subclass(value):
        return False  # a wrapper, such as a distributed tensor, has no storage of its own
    return value.layout == torch.strided and not value.is_nested
