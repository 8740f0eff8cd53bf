"""Score as another scorer does: compiled, in low precision, on small images, or with a copy."""

import copy
import platform
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from selective_backprop._batches.structure import map_leaves
from selective_backprop._core.errors import BatchError, ConfigurationError, LoaderError, warn
from selective_backprop._core.options import check_flag, check_whole, settle
from selective_backprop._core.saved_state import Saved, loaded
from selective_backprop._core.types import RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    scorer_parts,
)
from selective_backprop.scorers._forward import Forward
from selective_backprop.scorers.cheap._approximate import (
    Check,
    check_wrapper,
    model_of,
    start_wrapped,
)


@final
@dataclass(frozen=True)
class Compiled(AbstractScorer):
    """Score as the scorer inside does, with `torch.compile` of the model.

    The compiled model shares its parameters with the one in training, which is not compiled by
    it. It is compiled at the first batch that is scored, which takes long, and once more where
    batches come in another size: let the loader drop a short last one. Calls of the model are
    compiled, the loss and other methods that `losses=` may call are not.

    Args:
        scorer: scores with the compiled model.
        mode: as `torch.compile` takes it, such as `"max-autotune"`; None for its default. Of the
            default backend alone.
        dynamic: whether sizes may vary without compiling anew; None finds out.
        backend: what compiles, by its name in `torch.compiler.list_backends()`.
        check: when to compare the scores with those of the model as it is; None for never.

    Raises:
        ConfigurationError: if the scorer cannot be wrapped, or a mode is given to another
            backend than the default one; at the start, if there is no model, or torch does not
            know the mode or backend or cannot compile here.
    """

    scorer: AbstractScorer
    mode: str | None = None
    dynamic: bool | None = None
    backend: str = "inductor"
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self, other_model=True)
        settle(self, check_flag, "dynamic", optional=True)
        if self.mode is not None and self.backend != "inductor":
            raise ConfigurationError(
                f"mode={self.mode!r} would be ignored by backend={self.backend!r}; modes are of "
                "the backend 'inductor'"
            )

    @property
    def needs(self) -> Needs:
        """What the scorer inside needs, of a compiled form of the model."""
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        model = model_of(self, context)
        try:
            compiled = torch.compile(
                getattr(model, "_orig_mod", model),  # what is compiled already, compiled anew
                mode=self.mode,
                dynamic=self.dynamic,
                backend=self.backend,
            )
        except RuntimeError as error:
            raise ConfigurationError(f"the model cannot be compiled: {error}") from error

        advice = "Score with the model as it is, since compiling must not change what it computes"
        return start_wrapped(self, context, _WithCompiled, advice=advice, model=compiled)


class _WithCompiled(Delegating):
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        scores = self.inner.score(batch, indices)
        # The next replay of a CUDA graph would overwrite what a model returns as its losses.
        return scores.clone() if scores.is_cuda else scores


@final
@dataclass(frozen=True)
class LowPrecision(AbstractScorer):
    """Score as the scorer inside does, under autocast to a type of 16 bits.

    Parameters stay as they are and are cast anew at each pass, so that nothing is remembered
    that training could meet. A model of large activations may overflow in `torch.float16`. Warns
    where the hardware is known to compute in this type more slowly than in full precision.

    Args:
        scorer: what is run under autocast.
        dtype: `torch.bfloat16` or `torch.float16`.
        check: when to compare the scores with those of full precision; None for never.

    Raises:
        ConfigurationError: if there is no such type, the scorer cannot be wrapped, or it has a
            precision of its own; at the start, if torch has no autocast on the device.
    """

    scorer: AbstractScorer
    dtype: torch.dtype = torch.bfloat16
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)
        if self.dtype not in (torch.bfloat16, torch.float16):
            raise ConfigurationError(
                f"dtype={self.dtype}: a type of 16 bits is needed, torch.bfloat16 or torch.float16"
            )
        *_, innermost = scorer_parts(self.scorer)
        if isinstance(innermost, Forward) and innermost.autocast is not None:
            raise ConfigurationError(
                f"{innermost!r} has a precision of its own, which would be in force; write "
                "LowPrecision around Forward() without autocast="
            )

    @property
    def needs(self) -> Needs:
        return self.scorer.needs

    def start(self, context: Context) -> RunningScorer:
        device = torch.device("cpu") if context.device is None else context.device
        if not torch.amp.is_autocast_available(device.type):
            raise ConfigurationError(
                f"torch has no autocast on {device.type}; score with {self.scorer!r} itself"
            )
        if is_slow(device, self.dtype):
            warn(
                f"this {device.type} has no fast path for {self.dtype}: LowPrecision will likely "
                f"cost more than it saves. Score with {self.scorer!r} itself here, or time both."
            )

        return start_wrapped(
            self,
            context,
            lambda inner: _UnderAutocast(inner, device.type, self.dtype),
            advice="Score in full precision",
        )


class _UnderAutocast(Delegating):
    def __init__(self, inner: RunningScorer, kind: str, dtype: torch.dtype) -> None:
        super().__init__(inner)
        self._kind = kind
        self._dtype = dtype

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        # Weights cast under no_grad have no gradient: training must not meet them in a cache.
        with torch.autocast(self._kind, dtype=self._dtype, cache_enabled=False):
            scores = self.inner.score(batch, indices)
        return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def is_slow(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a device is known to have no fast path for a type of 16 bits.

    On NVIDIA GPUs that is so before Ampere for bfloat16 and before Volta for float16, on x86
    processors without AVX512-BF16 or AMX, or AVX512-FP16. Of other devices nothing is known.
    """
    if device.type == "cuda" and torch.version.hip is None:
        least = (8, 0) if dtype is torch.bfloat16 else (7, 0)
        return torch.cuda.get_device_capability(device) < least
    if device.type == "cpu" and platform.machine() in ("x86_64", "AMD64"):
        # not public, and not all of them in every release: what is not there says nothing
        holder: Any = torch.ops.mkldnn
        names = ["_is_mkldnn_fp16_supported"]
        if dtype is torch.bfloat16:
            holder, names = torch.cpu, ["_is_avx512_bf16_supported", "_is_amx_tile_supported"]
        known = [getattr(holder, name) for name in names if hasattr(holder, name)]
        return bool(known) and not any(supported() for supported in known)
    return False


@final
@dataclass(frozen=True)
class LowResolution(AbstractScorer):
    """Score as the scorer inside does, on images averaged over squares of pixels.

    The model must take images of any size, as nets that pool before their last layer do. Where
    targets are maps of pixels, `losses=` must fit them to what the model makes of small images.

    Args:
        scorer: scores the small images.
        factor: pixels along the side of a square, at least 2. Where a side is no multiple of it,
            the last squares are smaller.
        paths: where in the batch the images are, `[candidate, channel, height, width]`, of a
            floating type: keys, field names and positions joined by dots, such as `"0"` or
            `"inputs.image"`. None: the first such tensor.
        check: when to compare the scores with those of whole images; None for never.

    Raises:
        ConfigurationError: if a value is out of its range or the scorer cannot be wrapped.
    """

    scorer: AbstractScorer
    factor: int = 2
    paths: Collection[str] | None = None
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self)
        settle(self, check_whole, "factor", least=2)
        if isinstance(self.paths, str) or (self.paths is not None and not self.paths):
            raise ConfigurationError(
                f"paths={self.paths!r}: a collection of paths is needed, such as ['0'], or None "
                "for the first images in the batch"
            )
        if self.paths is not None:
            object.__setattr__(self, "paths", tuple(sorted(set(self.paths))))

    @property
    def needs(self) -> Needs:
        return self.scorer.needs

    def start(self, context: Context) -> RunningScorer:
        return start_wrapped(
            self,
            context,
            lambda inner: _OnSmallImages(inner, int(self.factor), self.paths),
            advice="Take a smaller factor=, or score whole images",
        )


class _OnSmallImages(Delegating):
    def __init__(self, inner: RunningScorer, factor: int, paths: Collection[str] | None) -> None:
        super().__init__(inner)
        self._factor = factor
        self._paths = paths
        self._worked = False

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        small = shrink_images(batch, self._factor, self._paths)
        try:
            scores = self.inner.score(small, indices)
        except RuntimeError as error:
            if not self._worked:
                error.add_note(
                    f"LowResolution gave the model images whose sides are {self._factor} times "
                    "smaller, which it may not take: it must pool before its last layer, as with "
                    "nn.AdaptiveAvgPool2d(1)."
                )
            raise
        self._worked = True
        return scores


def shrink_images(batch: Any, factor: int, paths: Collection[str] | None) -> Any:
    """Return a batch with smaller images, the first ones if `paths` is None; change nothing in it.

    Raises:
        BatchError: if there are no images at a path, or too small ones.
    """
    found: dict[str, Any] = {}
    map_leaves(lambda path, leaf: found.setdefault(path, leaf), batch)
    if paths is None:
        paths = [next((path for path in found if _are_images(found[path])), "")]
    for path in paths:
        if not _are_images(found.get(path)):
            there = ", ".join(f"{name!r}: {_describe(leaf)}" for name, leaf in found.items())
            wanted = f"at {path!r} " if path in found or path else ""
            raise BatchError(
                f"there are no images {wanted}to make smaller: a tensor [candidate, channel, "
                f"height, width] of a floating type is needed, and the batch has {there}"
            )
        height, width = found[path].shape[2:]
        if min(height, width) < factor:
            raise BatchError(
                f"the images at {path!r} have {height} × {width} pixels, which cannot be averaged "
                f"over squares of {factor}; take a smaller factor="
            )

    @torch.no_grad()
    def shrink(path: str, leaf: Any) -> Any:
        return functional.avg_pool2d(leaf, factor, ceil_mode=True) if path in paths else leaf

    return map_leaves(shrink, batch)


def _are_images(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim == 4 and leaf.is_floating_point()


def _describe(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}"
    return type(leaf).__name__


@final
@dataclass(frozen=True)
class Synced(AbstractScorer):
    """Score with a copy of the model, brought up to date before every so many scored batches.

    Scores lag behind training by fewer than `every` scored batches. Nobody trains the copy, so it
    can be scored with while the model is trained; by itself it saves no time, and tells what
    such a lag costs in agreement. It takes as much memory as the model's parameters and buffers,
    on the same device, and saved states hold it too. A model given to `losses=` or `outputs=` is
    the copy: what they take from elsewhere does not lag.

    Args:
        scorer: scores with the copy.
        every: scored batches from one update of the copy to the next, at least 1, which scores
            with the model as it is.
        check: when to compare the scores with those of the model as it is; None for never. The
            batches of a check are spread over the whole interval.

    Raises:
        ConfigurationError: if `every` is out of its range or the scorer cannot be wrapped; at the
            start, if there is no model, or it cannot be copied.
    """

    scorer: AbstractScorer
    every: int
    check: Check | None = Check()

    def __post_init__(self) -> None:
        check_wrapper(self, other_model=True)
        settle(self, check_whole, "every")

    @property
    def needs(self) -> Needs:
        return replace(self.scorer.needs, plain_forward=False)

    def start(self, context: Context) -> RunningScorer:
        model, every = model_of(self, context), int(self.every)
        twin = copy_model(model)
        return start_wrapped(
            self,
            context,
            lambda inner: _WithCopy(inner, model, twin, every),
            advice="Take a smaller every=",
            interval=every,
            model=twin,
        )


def refuse_synced(wrapper: Any) -> None:
    """Refuse `Synced` inside a scorer that copies the model itself."""
    for part in scorer_parts(wrapper.scorer):
        if isinstance(part, Synced):
            raise ConfigurationError(
                f"{part!r} would score with a copy of the copy; {type(wrapper).__name__}(..., "
                "every=...) says how often the weights are copied"
            )


class _WithCopy(Delegating):
    def __init__(self, inner: RunningScorer, model: nn.Module, twin: nn.Module, every: int) -> None:
        super().__init__(inner)
        self._model = model
        self._twin = twin
        self._every = every
        self._scored = 0

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        if self._scored % self._every == 0:
            update(self._twin, self._model)
        scores = self.inner.score(batch, indices)
        self._scored += 1
        return scores

    def state_dict(self) -> dict[str, Any]:
        # A copy that is about to be brought up to date need not be kept.
        stays = self._scored % self._every != 0
        return {
            "scored": self._scored,
            "copy": cloned(tensors_of(self._twin)) if stays else None,
            "scorer": self.inner.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        scored, weights, scorer = Saved(state).fields("scored", "copy", "scorer")
        count, twin = scored.whole(), tensors_of(self._twin)
        theirs = saved_copy(weights, twin, due=count % self._every == 0)
        with loaded([(self.inner, scorer)]):
            self._scored = count
            if theirs is not None:
                overwrite(twin, theirs)


def copy_model(model: nn.Module) -> nn.Module:
    """Return a copy of a model, which is not to be trained; refuse one that cannot be copied."""
    try:
        return copy.deepcopy(model).requires_grad_(False)
    except (RuntimeError, TypeError) as error:
        raise ConfigurationError(
            f"the model ({type(model).__name__}) cannot be copied with copy.deepcopy: {error}"
        ) from error


def update(twin: nn.Module, model: nn.Module) -> None:
    """Give a copy of a model its parameters, buffers and modes, without allocating anything."""
    overwrite(tensors_of(twin), tensors_of(model))
    for mine, theirs in zip(twin.modules(), model.modules(), strict=True):
        if mine.training != theirs.training:  # setting an attribute of a module is slow
            mine.training = theirs.training


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers by name, those that are shared once."""
    named = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in named}


@torch.no_grad()
def overwrite(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Copy tensors into others, and refuse it unless both have the same names and shapes."""
    shapes = [{name: tuple(t.shape) for name, t in tensors.items()} for tensors in (mine, theirs)]
    if shapes[0] != shapes[1]:
        changed = sorted(dict(shapes[0].items() ^ shapes[1].items()))
        raise LoaderError(
            f"{', '.join(changed[:5])} of the model changed since it was copied, {len(changed)} in "
            "all; a model that is copied must keep its parameters and buffers: make the loader anew"
        )
    if mine:
        torch._foreach_copy_(list(mine.values()), [theirs[name] for name in mine])


def cloned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors, for a saved state."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def saved_copy(saved: Saved, like: dict[str, Tensor], *, due: bool) -> dict[str, Tensor] | None:
    """Return a saved copy's tensors; it may be None if the copy is `due` to be renewed."""
    return None if due and saved.value is None else saved.tensors(like)
