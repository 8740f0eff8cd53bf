"""Run a model as far as one of its modules, and no further."""

import difflib
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import KeptBuffers, eval_mode, unwrapped

NEAR = 3  # names to suggest


class FirstBlocks:
    """The part of a model that runs until one of its modules returns.

    The model itself is run, so that it does not matter how its forward pass is written. A hook
    ends the pass; modes, buffers and hooks are put back.

    Args:
        model: compiled and distributed ones are run without what they are wrapped in.
        after: name of the module that is called last.
        training: run in the modes that the modules are in, instead of eval mode.

    Raises:
        ConfigurationError: if the model has no such module.
    """

    def __init__(self, model: nn.Module, after: str, *, training: bool) -> None:
        model = unwrapped(model)
        model = getattr(model, "_orig_mod", model)
        check_name(model, after)
        self._model = model
        self._after = after
        self._training = training
        self._buffers = KeptBuffers(model)

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        """Return the last module's output, or the first tensor of a tuple, without gradients.

        Raises:
            ConfigurationError: if that module is never called, or returns no tensor.
        """
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(_uncompiled(self._model))
            if not self._training:
                stack.enter_context(eval_mode(self._model))
            stack.enter_context(self._buffers.kept())
            output = self._stop(args, kwargs)
        parts = output if isinstance(output, tuple) else (output,)
        for part in parts:
            if isinstance(part, Tensor):
                return part
        raise ConfigurationError(
            f"after={self._after!r} returns a {type(output).__name__}, and a head takes a tensor; "
            "name a module that returns one, or a tuple with one"
        )

    def _stop(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        last = self._model.get_submodule(self._after)
        handle = last.register_forward_hook(_stop_here)  # runs after the user's own
        try:
            self._model(*args, **kwargs)
        except _Reached as reached:
            return reached.output
        finally:
            handle.remove()
        raise ConfigurationError(
            f"the model returned without having called after={self._after!r} "
            f"({type(last).__name__}); name a module that its forward pass calls, of a list of "
            f"modules one of its members, such as {self._after + '.0'!r}"
        )


def check_name(model: nn.Module, after: str) -> None:
    """Refuse a name that no module of a model has.

    Raises:
        ConfigurationError: if it is none; the message names the nearest ones.
    """
    names = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    if after in names:
        return
    near = difflib.get_close_matches(after, names, NEAR, 0.4) or names[:NEAR]
    listed = ", ".join(map(repr, near)) or "none, as it has no parts"
    raise ConfigurationError(
        f"after={after!r} is no module of the model ({type(model).__name__}); near are: {listed}. "
        "model.named_modules() gives all names."
    )


class _Reached(BaseException):
    """Carries what a module returned out of the forward pass, past any `except Exception`."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


def _stop_here(module: nn.Module, args: Any, output: Any) -> NoReturn:
    raise _Reached(output)


def _uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """Return a context in which compiled parts of a model run as they were written.

    Compiled code would have to be compiled anew for a pass that ends early.
    """
    for module in model.modules():
        if module._compiled_call_impl is not None or "_orig_mod" in module._modules:
            return torch.compiler.set_stance("force_eager")
    return nullcontext()
