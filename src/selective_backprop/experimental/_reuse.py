"""Take results of the selection pass into the training forward of the selected rows.

Both call the same operations in the same order. A matrix product, convolution or attention is not
computed again: its result is the selected rows of the recorded one. This happens beneath autograd,
which sees an operation with its own inputs, so gradients are exact.
"""

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.isolation import list_modules
from selective_backprop._core.types import RowIndices
from selective_backprop._step.selective_step import AbstractReuse
from selective_backprop.scorers._abstract import AbstractScorer
from selective_backprop.scorers._forward import Forward

ATEN = torch.ops.aten
OPERATIONS = {  # and the places of their arguments that hold rows
    ATEN.mm.default: (0,),
    ATEN.addmm.default: (1,),
    ATEN.bmm.default: (0, 1),
    ATEN.convolution.default: (0,),
    ATEN._scaled_dot_product_flash_attention.default: (0, 1, 2),
    ATEN._scaled_dot_product_flash_attention_for_cpu.default: (0, 1, 2),
}
RANDOM = (_DropoutNd, nn.MultiheadAttention, nn.RNNBase, nn.RReLU)
WRAPPERS = {"DistributedDataParallel", "FSDPModule", "FullyShardedDataParallel"}


class Record(NamedTuple):
    """A recorded operation; the versions of its results count changes in place."""

    signature: object
    results: tuple[Any, ...]
    versions: list[int]


@final
class ReuseActivations(AbstractReuse):
    """Experimental: spare a `SelectiveStep` most of its training forward.

    The selection pass has computed the activations of the selected rows already. The training
    forward takes the results of matrix products, convolutions and attention from there. Losses and
    gradients are the same up to rounding. Memory holds these results for all candidates.

    Steps 1, 2, 4, 8 and so on compute everything, and compare. Until the next such step, equal
    results are reused, unless they are changed in place. Results that depend on other candidates
    are not equal. If the training forward calls other operations than the selection pass,
    nothing is reused from the first difference on, and you get a warning once.

    Raises:
        ConfigurationError: for BatchNorm in training mode, random layers such as dropout, compiled
            models, `gradient_checkpointing`, DDP and FSDP; and for scorers other than `Forward()`.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 4: "cache the activations obtained from the
        selection passes to avoid doing extra forward passes for training".
    """

    def __init__(self) -> None:
        self._model = nn.Module()
        self._steps, self._tape = 0, list[Record | None]()
        self._orders = dict[int, int]()  # of operations to reuse, as for `_select`
        self._fitted = self._warned = False

    def fit(self, scorer: AbstractScorer | None, model: nn.Module) -> None:
        self._refuse_if(self._fitted, "by two steps; make ReuseActivations() for each")
        exact = isinstance(scorer, Forward) and scorer.precision is None
        self._refuse_if(not exact, f"from {scorer!r}, only from Forward()")
        self._model, self._fitted = model, True
        self._check()

    def _check(self) -> None:
        for module in list_modules(self._model):
            self._refuse_if(_hinders(module), f"with {type(module).__name__} as it is set")

    @contextmanager
    def recording(self, candidates: int) -> Generator[None]:
        self._check()
        self._owned = {each.untyped_storage().data_ptr() for each in self._model.parameters()}
        self._candidates, self._tape = candidates, []
        # Fused kernels of inference are other operations than those of training.
        fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with _Operations(self._record):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)

    @contextmanager
    def replaying(self, rows: RowIndices) -> Generator[None]:
        self._steps += 1
        self._rows, self._place, before = rows, 0, _random_states(rows.device)
        tries = self._steps & (self._steps - 1) == 0
        if tries:
            self._orders = {}
        with _Operations(self._try if tries else self._replay):
            yield
        self._tape = []
        self._refuse_if(before != _random_states(rows.device), "where training draws at random")
        if self._place and not self._orders:
            self._warn("no operation gives the result that it gave in the selection pass")

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        results = result if isinstance(result, tuple) else (result,)
        signature = self._signature(func, args, kwargs, self._candidates)
        self._tape.append(Record(signature, results, _versions(results)))
        return result

    def _replay(self, func: Any, args: Any, kwargs: Any) -> Any:
        order, record = self._orders.get(self._place), self._next(func, args, kwargs)
        if record is None or order is None:
            return func(*args, **kwargs)
        taken = self._select(record, self._rows, order)
        return taken[0] if len(taken) == 1 else taken

    def _try(self, func: Any, args: Any, kwargs: Any) -> Any:
        place, others = self._place, (self._rows + 1) % self._candidates
        record, result = self._next(func, args, kwargs), func(*args, **kwargs)
        for order in (0, 1) if record is not None else ():
            mine, theirs = (self._select(record, each, order) for each in (self._rows, others))
            # A result that is the same for all rows tells nothing.
            if _same(mine, result) and not _same(theirs, result):
                self._orders[place] = order
        return result

    def _next(self, func: Any, args: Any, kwargs: Any) -> Record | None:
        """Return the record of an operation; None if there is none that can be used."""
        place, self._place = self._place, self._place + 1
        signature = self._signature(func, args, kwargs, len(self._rows))
        record = self._tape[place] if place < len(self._tape) else None
        if record is None or record.signature != signature:
            self._tape = []
            self._warn(f"operation {place + 1} of the training forward is not the selection pass's")
            return None
        self._tape[place] = None  # frees its memory
        intact = record.signature is not None and _versions(record.results) == record.versions
        return record if intact else None

    def _signature(self, func: Any, args: Any, kwargs: Any, rows: int) -> object:
        """Return what must be the same in both passes; None if results do not go by rows."""
        parts: list[Any] = [func]
        for place, value in (*enumerate(args), *kwargs.items()):
            if isinstance(value, Tensor):
                memory, shape = value.untyped_storage().data_ptr(), value.shape
                memory = memory if memory in self._owned else None
                if place in OPERATIONS[func]:
                    if memory is not None or shape[0] % rows:
                        return None
                    shape = (shape[0] // rows, *shape[1:])
                elif isinstance(place, str):  # a mask, perhaps one for each row
                    shape = shape[1:]
                value = shape, value.dtype, memory
            parts.append((place, value))
        return parts

    def _select(self, record: Record | None, rows: RowIndices, order: int) -> tuple[Any, ...]:
        """Return rows of the results, of which the first two hold rows, in the same layout.

        Where a candidate has several entries, they follow each other (`order` 0), or those of all
        candidates alternate (1).
        """
        assert record is not None
        taken: list[Any] = []
        for each in record.results[:2]:
            split = each.unflatten(0, (-1, self._candidates) if order else (self._candidates, -1))
            axes = sorted(range(split.ndim), key=split.stride, reverse=True)
            part = split.permute(axes).index_select(axes.index(order), rows)
            taken.append(part.permute(np.argsort(axes).tolist()).flatten(0, 1))
        return (*taken, *record.results[2:])

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            warn(f"activations are not reused: {what}. Leave out reuse= if this is always so")

    def _refuse_if(self, found: bool, what: str) -> None:
        if found:
            raise ConfigurationError(f"activations cannot be reused {what}; leave out reuse=")


class _Operations(TorchDispatchMode):
    def __init__(self, answer: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self._answer = answer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return self._answer(func, args, kwargs) if func in OPERATIONS else func(*args, **kwargs)


def _hinders(module: nn.Module) -> bool:
    """Return whether a layer computes something else, or hides it, in the training forward."""
    if isinstance(module, _BatchNorm):
        return module.training or module.running_mean is None
    if isinstance(module, RANDOM) and module.training:
        rate: Any = getattr(module, "p", getattr(module, "dropout", 1))
        return rate > 0 and getattr(module, "num_layers", 2) > 1
    compiled = hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
    wraps = not WRAPPERS.isdisjoint(each.__name__ for each in type(module).__mro__)
    return compiled or wraps or getattr(module, "gradient_checkpointing", False) is True


def _versions(results: tuple[Any, ...]) -> list[int]:
    return [each._version for each in results if isinstance(each, Tensor)]


def _same(taken: tuple[Any, ...], result: Any) -> bool:
    """Return whether results are equal up to rounding; NaN equals nothing."""
    computed = result if isinstance(result, tuple) else (result,)
    for mine, theirs in list(zip(taken, computed, strict=True))[:2]:
        # On a GPU, products in float32 may be computed in TF32.
        coarse = theirs.is_cuda and theirs.dtype is torch.float32
        tolerance = (1e-3 if coarse else torch.finfo(theirs.dtype).eps) ** 0.75
        if mine.shape != theirs.shape or not (mine - theirs).norm() <= tolerance * theirs.norm():
            return False
    return True


def _random_states(device: torch.device) -> object:
    states = [torch.get_rng_state(), *np.random.get_state(legacy=False)["state"].values()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return [np.asarray(each).tobytes() for each in states], random.getstate()
