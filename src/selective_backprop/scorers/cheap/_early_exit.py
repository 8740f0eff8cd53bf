"""An early exit: the model's first blocks and a small head beside them score every candidate."""

import copy
import difflib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from selective_backprop._batches.losses import check_losses
from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.isolation import (
    KeptBuffers,
    eval_mode,
    kept_random_streams,
    uncached_autocast,
    unwrapped,
)
from selective_backprop._core.options import check_flag, check_instance, settle
from selective_backprop._core.recording_signal import stop_recording
from selective_backprop._core.saved_state import FINITE, FLOATS, Saved
from selective_backprop._core.types import LossesOf, RowIndices, Scores
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._abstract import AbstractScorer, Needs, RunningScorer
from selective_backprop.scorers._forward import Forward
from selective_backprop.scorers._second_model import check_factory, load_learner, name_of
from selective_backprop.scorers.cheap._approximate import Check, start_checked


@final
@dataclass(frozen=True)
class EarlyExit(AbstractScorer):
    """Experimental: score each candidate by its loss after the model's first blocks and a head.

    The blocks run as in `Forward`, without gradients and leaving no trace, and nothing behind
    them is called. The head learns from the candidates that are scored, at no further pass of
    the blocks: at each training batch it takes one step on the mean of all losses since the last
    one. Like the model it learns most from what is hard: a candidate counts as much as it is
    likely to be selected, at the training's rate and by its rank. While nothing is scored, as in
    a warm-up, it learns from the training batches instead, which takes a pass of the blocks over
    each. The model learns nothing from the head.

    A score costs the blocks' share of a forward pass, and the head's own forward and backward.
    A head that has learned nothing yet says nothing: begin with a warm-up. `SelectiveStep` can
    go on from the blocks' activations with the rows that are selected. `losses=` and `outputs=`
    are given the exit for a model, and may do nothing with it but call it.

    Args:
        after: the module at which to exit, by its name in `model.named_modules()`; the head is
            given what it returns the first time that it is called, of a tuple the first tensor.
        make_head: returns the head, which takes that tensor and returns what the model would,
            such as logits. It is always in training mode and in the precision of its own
            parameters, and must not write to its input. Lazy layers will do.
        make_optimizer: returns an optimiser of the parameters it is given; best one like the
            model's, since a head that learns at another pace finds other examples hard.
        check: when to compare the scores with those of the whole model, from the head's first
            step on; None for never.
        training: run the blocks in the modes that they are in, those of training (dropout on,
            batch statistics), instead of eval mode.

    Raises:
        ConfigurationError: if a name or a function is none; at the start, if the training has no
            model or no losses, the model no such module, or `make_head` makes none.

    Source:
        Teerapittayanon et al. 2016, arXiv:1709.01686 (BranchyNet), exit early to predict; a head
        that the blocks do not learn from: Alain and Bengio 2016, arXiv:1610.01644.
    """

    after: str
    make_head: Callable[[], nn.Module]
    make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    check: Check | None = Check()
    training: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.after, str) or not self.after:
            raise ConfigurationError(
                f"after={self.after!r}: the name of a module is needed, as in "
                "model.named_modules(); to score with the whole model, write Forward()"
            )
        check_factory("make_head", self.make_head)
        check_factory("make_optimizer", self.make_optimizer)
        check_instance("check", self.check, Check, "Check(batches=8)", optional=True)
        settle(self, check_flag, "training")

    def __repr__(self) -> str:
        # part of saved states: says nothing that differs from process to process
        return (
            f"EarlyExit(after={self.after!r}, head={name_of(self.make_head)}, "
            f"optimizer={name_of(self.make_optimizer)}, check={self.check!r}, "
            f"training={self.training})"
        )

    @property
    def needs(self) -> Needs:
        """A pass, and training batches to learn from."""
        return Needs(learns=True)

    def start(self, context: Context) -> RunningScorer:
        """Return the running scorer, with a new head on the training's device."""
        model, losses, device = context.model, context.losses, context.device
        if model is None or losses is None:
            raise ConfigurationError(
                "EarlyExit() scores by losses with the model's first blocks, and there is no "
                f"{'model' if model is None else 'loss'}"
            )
        blocks = FirstBlocks(model, self.after, training=self.training)
        with kept_random_streams(device):  # a loader that is made moves none of them
            head = self.make_head()
        if not isinstance(head, nn.Module):
            raise ConfigurationError(
                f"make_head returned a {type(head).__name__}; a torch.nn.Module is needed"
            )
        head = (head if device is None else head.to(device)).train()

        running = _RunningEarlyExit(
            _Exit(blocks, head), self.make_optimizer(head.parameters()), losses, context
        )
        exact = Forward(training=self.training).start(context)
        return start_checked(
            self,
            context,
            lambda _: (running, exact),
            advice="Exit at a later block with after=, or let the head learn longer in a warm-up",
            ready=lambda: running.has_learned,
        )


class FirstBlocks:
    """The part of a model that runs until the module named `after` returns.

    The model itself is run, without what compiled or distributed it, so that it does not matter
    how its forward pass is written. A hook ends the pass; modes, buffers and hooks are put back.
    """

    def __init__(self, model: nn.Module, after: str, *, training: bool) -> None:
        model = unwrapped(model)
        model = getattr(model, "_orig_mod", model)
        _check_name(model, after)
        self._model = model
        self._after = after
        self._training = training
        self._buffers = KeptBuffers(model)

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        """Return the last module's output, or the first tensor of a tuple, without gradients."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(_uncompiled(self._model))
            if not self._training:
                stack.enter_context(eval_mode(self._model))
            stack.enter_context(self._buffers.kept())
            output = self._stop(args, kwargs)
        for part in output if isinstance(output, tuple) else (output,):
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


def _check_name(model: nn.Module, after: str) -> None:
    names = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    if after in names:
        return
    near = difflib.get_close_matches(after, names, 3, 0.4) or names[:3]
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
    """Run compiled parts as they were written: they would be compiled anew for this short pass."""
    for module in model.modules():
        if module._compiled_call_impl is not None or "_orig_mod" in module._modules:
            return torch.compiler.set_stance("force_eager")
    return nullcontext()


class _Exit(nn.Module):
    """What the user's losses are given for a model: its first blocks, then the head."""

    def __init__(self, blocks: FirstBlocks, head: nn.Module) -> None:
        super().__init__()
        self.blocks = blocks
        self.head = head

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        features = self.blocks.run(args, kwargs)
        stop_recording()  # what comes now is not what training will compute
        kind, exact = features.device.type, nullcontext()
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            exact = torch.autocast(kind, enabled=False)  # under it, small gradients would become 0
        like = next((p for p in self.head.parameters() if p.is_floating_point()), None)
        with exact:
            if like is not None and features.is_floating_point():
                features = features.to(like.device, like.dtype)
            version = features._version
            outputs = self.head(features)
        if features._version != version:
            raise ConfigurationError(
                "the head writes to its input in place, which training may still need; let it "
                "begin with a layer that does not, such as ReLU() without inplace=True"
            )
        return outputs

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise AttributeError(
                f"losses= or outputs= asks the model for {name!r}, and scores of an early exit "
                "come from calling the model alone; call it as the training loop does"
            ) from None


def _likely_weights(losses: Scores, rate: float) -> Scores:
    """Return how likely each candidate is selected at a rate, as its rank in its batch tells.

    These are the odds of Selective-Backprop; other rules have similar ones. At rate 1 all are 1.
    """
    ranks = losses.detach().argsort().argsort()
    return ((ranks + 0.5) / losses.shape[0]) ** (1.0 / rate - 1.0)


class _RunningEarlyExit(RunningScorer):
    def __init__(
        self, model: _Exit, optimizer: Optimizer, losses: LossesOf, context: Context
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._losses = losses
        self._device = context.device
        self._rate = context.rate or 1.0
        self._window = context.window or context.batch_size
        # What the next step is taken on: sums of the gradients of losses times their weights, of
        # each parameter that learns, then the sum of the weights.
        self._waiting: list[Tensor] | None = None
        self._covered = 0  # training batches still to come from candidates it has learned from
        self.has_learned = False

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        # A head that learns from all alike, while the model learns from what it selects, finds
        # other examples hard: on digits overlap with exact scores stayed at chance instead of 0.8.
        count = None if indices is None else indices.shape[0]
        losses = self._take(batch, count, rate=self._rate)
        self._covered = max(1, -(-losses.shape[0] // self._window))
        return losses

    def learn(self, batch: Any) -> None:
        if self._covered:
            self._covered -= 1
        else:
            self._take(batch, None, rate=1.0)  # selected already, or as much as all are
        if self._waiting is not None:
            *sums, weight = self._waiting
            weight = weight.clamp(min=torch.finfo(weight.dtype).tiny)
            for parameter, total in zip(self._learning(), sums, strict=True):
                parameter.grad = total / weight
            self._optimizer.step()
            self._optimizer.zero_grad()
            self._waiting, self.has_learned = None, True

    def _take(self, batch: Any, candidates: int | None, *, rate: float) -> Scores:
        """Return a batch's losses, and keep their gradients for the next step.

        `candidates` is how many there must be, `rate` which share of them the model learns from.
        """
        with (
            torch.enable_grad(),
            kept_random_streams(self._device),
            uncached_autocast(self._device),
        ):
            losses = check_losses(self._losses(self._model, batch), candidates)
            if not losses.requires_grad:
                raise LossError(
                    "the losses have no gradient for the head to learn from; losses= must compute "
                    "them from what the model returns, and not under no_grad"
                )
            finite = losses.isfinite()
            weights = _likely_weights(losses, rate).where(finite, 0.0)
            found = torch.autograd.grad(
                (losses * weights).sum(),  # whatever it comes to: its gradient is the weights
                self._learning(),
                allow_unused=True,
                materialize_grads=True,
            )
            # A row that overflows on its way to the loss can reach all of a layer's gradient.
            whole = torch.stack([gradient.isfinite().all() for gradient in found]).all()
            found = [gradient.where(whole, 0.0) for gradient in found] + [weights.sum() * whole]
            if self._waiting is not None:
                found = [one + more for one, more in zip(self._waiting, found, strict=True)]
            self._waiting = found
        return losses.detach()

    def _learning(self) -> list[nn.Parameter]:
        return [p for p in self._model.head.parameters() if p.requires_grad]

    def state_dict(self) -> dict[str, Any]:
        # Copies, here and below: torch hands out and takes in an optimiser's own tensors.
        head, waiting = self._model.head, self._waiting
        made = not any(is_lazy(tensor) for tensor in (*head.parameters(), *head.buffers()))
        return {
            "head": copy.deepcopy(dict(head.state_dict())) if made else None,
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
            "waiting": None if waiting is None else [total.clone() for total in waiting],
            "covered": self._covered,
            "learned": self.has_learned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        head, optimizer, sums, covered, learned = Saved(state).fields(
            "head", "optimizer", "waiting", "covered", "learned"
        )
        waiting = sums.maybe(lambda each: self._read_waiting(head, each))
        count, known = covered.whole(), learned.flag()
        load_learner(self._model.head, self._optimizer, head, optimizer)
        self._waiting, self._covered, self.has_learned = waiting, count, known

    def _read_waiting(self, head: Saved, sums: Saved) -> list[Tensor]:
        """Return sums for the parameters that a saved head has, on the devices of the head's."""
        module = self._model.head
        saved = dict(zip(module.state_dict(), head.fields(*module.state_dict()), strict=True))
        named = [(name, p.device) for name, p in module.named_parameters() if p.requires_grad]
        *totals, weight = sums.items(len(named) + 1)
        found = []
        for each, (name, device) in zip(totals, named, strict=True):
            shape = tuple(getattr(saved[name].value, "shape", ()))
            total = each.tensor(*FLOATS, shape=shape, least=-FINITE, most=FINITE)
            found.append(total.to(device, copy=True))
        total = weight.tensor(*FLOATS, shape=(), least=0.0, most=FINITE)
        return [*found, total.to(found[0].device, copy=True)]
