"""Record the heavy operations of a selection pass: results, and fingerprints of inputs."""

from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.recording_signal import on_stop
from selective_backprop._step.reuse.fingerprints import Fingerprints, Reading, plan_reading
from selective_backprop._step.reuse.operations import (
    OPERATIONS,
    Operation,
    as_plain_product,
    ask_for_all,
    is_random,
    written_arguments,
)

USERS = 2  # use count of a storage that one tensor holds, while `untyped_storage()` adds one


class BufferPool:
    """Tensors in host memory, by shape and type, to which new results can be written.

    Large tensors that are freed go back to the operating system, which hands them out again
    page by page: a step of a ViT of width 384 took 6 % longer when it freed all results of a
    pass than when it kept their memory. Devices with a caching allocator do not need this.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}

    def take(self, shape: torch.Size, like: Tensor) -> Tensor | None:
        """Return a free contiguous tensor of this shape and of `like`'s type, or None."""
        if like.device.type != "cpu":
            return None
        waiting = self._free.get((shape, like.dtype))
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
        function: the function that was called.
        operation: how its result's rows depend on its arguments.
        fingerprints: those of the arguments that hold rows.
        held: the other arguments, by position or name, each with its version.
        results: what it returned.
        versions: those of its results, which show later writes to them.
        spoiled: whether a held argument was written to later.
    """

    function: OpOverload
    operation: Operation
    fingerprints: tuple[InputFingerprint, ...]
    held: dict[int | str, tuple[Any, int]]
    results: tuple[Any, ...]
    versions: tuple[int, ...]
    spoiled: bool = False

    @property
    def intact(self) -> bool:
        """Whether results and held arguments are unchanged."""
        unwritten = self.versions == tuple(result._version for result in self._tensors())
        return unwritten and not self.spoiled

    def retire(self, pool: BufferPool) -> None:
        """Give the results' memory to the pool; the results must not be used afterwards."""
        held, self.results = list(self._tensors()), ()
        while held and self.operation.into is not None:
            pool.put(held.pop())

    def _tensors(self) -> tuple[Tensor, ...]:
        return self.results[: self.operation.results]

    def move_out(self, storage: int) -> None:
        """Copy results out of a storage that is about to be written to."""
        count = self.operation.results
        kept = tuple(
            result.clone() if _storage(result) == storage else result for result in self._tensors()
        )
        self.results = (*kept, *self.results[count:])
        self.versions = tuple(result._version for result in kept)


class Tape:
    """The heavy operations of one selection pass in order; None for those unfit for reuse.

    Args:
        candidates: how many rows the pass was over.

    Attributes:
        ended: whether recording stopped before the pass did.
    """

    def __init__(self, candidates: int) -> None:
        self.candidates = candidates
        self.ended = False
        self.records: list[Record | None] = []
        self.functions: list[OpOverload] = []
        self._owners: dict[int, list[Record]] = {}
        self._holders: dict[int, list[Record]] = {}

    def add(self, function: OpOverload, record: Record | None) -> None:
        """Add an operation."""
        self.functions.append(function)
        self.records.append(record)
        if record is None:
            return
        for result in record.results[: record.operation.results]:
            self._owners.setdefault(_storage(result), []).append(record)
        for value, _ in record.held.values():
            if _has_storage(value):
                self._holders.setdefault(_storage(value), []).append(record)

    def clear(self) -> None:
        """Release everything."""
        for part in (self.records, self._owners, self._holders):
            part.clear()

    def protect(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save recorded results from a call that is about to write to their memory.

        Versions alone would not show it: a write through `.data` does not change them.
        """
        for place, name in written_arguments(function):
            written = kwargs.get(name) if place >= len(args) else args[place]
            for tensor in written if isinstance(written, (list, tuple)) else (written,):
                if not _has_storage(tensor):
                    continue
                storage = _storage(tensor)
                for record in self._owners.pop(storage, ()):
                    record.move_out(storage)
                for record in self._holders.get(storage, ()):
                    record.spoiled = True

    def count_bytes(self, model: nn.Module) -> int:
        """Return the bytes held, each storage counted once, without the model's own tensors."""
        every = (*model.parameters(), *model.buffers())
        owned = {_storage(tensor) for tensor in every if _has_storage(tensor)}
        sizes: dict[int, int] = {}
        for record in self.records:
            if record is None:
                continue
            fingerprints = (part.projections for part in record.fingerprints)
            others = (value for value, _ in record.held.values())
            for tensor in filter(_has_storage, (*record.results, *fingerprints, *others)):
                sizes[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return sum(size for storage, size in sizes.items() if storage not in owned)


class Recording(TorchDispatchMode):
    """Record heavy operations.

    Args:
        tape: takes the records.
        fingerprints: tell inputs apart.
        pool: gives memory for results.
    """

    def __init__(self, tape: Tape, fingerprints: Fingerprints, pool: BufferPool) -> None:
        super().__init__()
        self.tape, self._fingerprints, self._pool = tape, fingerprints, pool

    def __enter__(self) -> "Recording":
        self._token = on_stop.set(self._end)
        super().__enter__()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        super().__exit__(exc_type, exc_val, exc_tb)
        on_stop.reset(self._token)

    def _end(self) -> None:
        self.tape.ended = True  # the tape is shared: backward passes in other threads see it too

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        operation = None
        if not self.tape.ended:
            refuse_random(func, args, kwargs)
            operation = OPERATIONS.get(func)
        if operation is None:
            if written_arguments(func):
                self.tape.protect(func, args, kwargs)
                self._fingerprints.forget()
            return func(*args, **kwargs)
        func, args, shape = as_plain_product(func, ask_for_all(operation, args))
        operation = OPERATIONS[func]
        fingerprints = self._take_fingerprints(operation, args)  # while the inputs are in the cache
        record = None
        if fingerprints is None:
            returned = func(*args, **kwargs)
        else:
            returned = self._compute(func, operation, args, kwargs)
            record = _describe(func, operation, fingerprints, args, kwargs, returned)
        self.tape.add(func, record)
        return returned if shape is None else returned.view(shape)

    def _compute(
        self, function: OpOverload, operation: Operation, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Call an operation that is recorded, in memory from the pool if it has some."""
        if operation.into is not None:
            rows = args[operation.rows[0]]
            shape = torch.Size((*rows.shape[:-1], args[-1].shape[-1]))
            if (free := self._pool.take(shape, rows)) is not None:
                return operation.into(*args, **kwargs, out=free)
        return function(*args, **kwargs)

    def _take_fingerprints(
        self, operation: Operation, args: tuple[Any, ...]
    ) -> tuple[InputFingerprint, ...] | None:
        """Return the inputs' fingerprints; None if they cannot be taken or would not pay."""
        if not operation.pays(args):
            return None
        fingerprints = []
        for place in operation.rows:
            tensor = args[place]
            reading = plan_reading(tensor)
            if reading is None or tensor.shape[0] % self.tape.candidates:
                return None
            found = self._fingerprints.of(tensor, reading)
            fingerprints.append(
                InputFingerprint(tensor.shape, (tensor.dtype, tensor.device), reading, found)
            )
        return tuple(fingerprints)


def _describe(
    function: OpOverload,
    operation: Operation,
    fingerprints: tuple[InputFingerprint, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    returned: Any,
) -> Record | None:
    results = returned if isinstance(returned, tuple) else (returned,)
    tensors = results[: operation.results]
    if any(type(result) is not Tensor for result in tensors):
        return None
    # Own tensor objects, so that `BufferPool.put` sees whether others use the storage.
    held = tuple(tensor.detach() for tensor in tensors)
    return Record(
        function,
        operation,
        fingerprints,
        {key: (value, _version(value)) for key, value in other_arguments(operation, args, kwargs)},
        (*held, *results[operation.results :]),
        tuple(result._version for result in tensors),
    )


def refuse_random(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse a call that draws random numbers.

    Raises:
        ConfigurationError: if it does: the training forward would draw other numbers than the
            selection pass did.
    """
    if is_random(function, args, kwargs):
        raise ConfigurationError(
            f"{function} draws random numbers in the forward pass, and would draw others when "
            "training than when selecting, so that activations cannot be reused. Set dropout to "
            "0 (in attention too), or pass reuse_activations=False."
        )


def other_arguments(operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Yield all arguments that hold no rows, by position or name."""
    yield from ((place, value) for place, value in enumerate(args) if place not in operation.rows)
    yield from kwargs.items()


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _has_storage(value: Any) -> TypeGuard[Tensor]:
    if not isinstance(value, Tensor) or is_traceable_wrapper_subclass(value):
        return False  # a wrapper, such as a distributed tensor, has no storage of its own
    return value.layout == torch.strided and not value.is_nested


def _version(value: Any) -> int:
    return value._version if isinstance(value, Tensor) else 0
