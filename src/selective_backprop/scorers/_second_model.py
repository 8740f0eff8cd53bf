"""Scorers that use a second loss: of a reference, of an example's first time, or of a proxy."""

import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from selective_backprop._batches.losses import check_losses
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.isolation import kept_random_streams
from selective_backprop._core.options import check_instance
from selective_backprop._core.saved_state import Saved, loaded
from selective_backprop._core.types import NO_TARGET, Float32, RowIndices, Scores
from selective_backprop._memory.ledger import Ledger
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.subset import check_numbers
from selective_backprop.scorers._abstract import (
    AbstractScorer,
    Delegating,
    Needs,
    RunningScorer,
    check_inner,
    start_scorer,
)
from selective_backprop.scorers._forward import Forward
from selective_backprop.scorers._remembered import Recalling


@final
@dataclass(frozen=True, repr=False)
class ReferenceLosses:
    """One loss per example of a data set, from a model that was trained beforehand.

    Args:
        losses: finite numbers `[example]`, in the data set's order. They are copied as float32.
    """

    losses: Float32[Tensor, " example"] = field(compare=False)
    _digest: str = field(init=False)

    def __post_init__(self) -> None:
        count = self.losses.numel() if isinstance(self.losses, Tensor) else 0
        losses = check_numbers("reference losses", self.losses, max(1, count)).float()
        digest = hashlib.blake2b(losses.numpy(), digest_size=6).hexdigest()
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "_digest", digest)

    def __len__(self) -> int:
        return self.losses.shape[0]

    def __repr__(self) -> str:
        return f"ReferenceLosses({len(self)} examples, digest {self._digest})"


@final
@dataclass(frozen=True)
class Excess(AbstractScorer):
    """Score each candidate by another scorer's score minus the example's reference loss.

    An example scores high if a reference model has learned it and the model in training has not. It
    scores low if both models find it hard, for example because it is noisy or ambiguous.

    `Excess(reference, Recorded())` uses recorded training losses, so examples are selected before
    they are loaded. With `Recorded()`, you may also pass `reference=None`: an example's loss is
    then compared with its own first recorded loss, and scores low if its loss has fallen far.

    Args:
        reference: one loss per example, from a reference model. Train the reference model on other
            data, so that it has not learned these examples by heart. May be None with `Recorded`.
        scorer: its scores minus the reference losses count. To remember scores, use `Recorded`.

    Source:
        Mindermann et al. 2022, arXiv:2206.07137 (reducible holdout loss).
    """

    reference: ReferenceLosses | None
    scorer: AbstractScorer

    def __post_init__(self) -> None:
        hint = "ReferenceLosses(losses)"
        check_instance("reference", self.reference, ReferenceLosses, hint, optional=True)
        check_instance("scorer", self.scorer, AbstractScorer, "Forward()")
        if not self._recalls:
            check_inner(self.scorer)
            if self.reference is None:
                raise ConfigurationError(
                    f"reference=None compares with each example's first recorded loss, but "
                    f"{self.scorer!r} uses no recorded losses; write Excess(None, Recorded()), or "
                    "pass ReferenceLosses(losses)"
                )

    @property
    def _recalls(self) -> bool:
        return self.scorer.needs.recordings and not self.scorer.needs.passes

    @property
    def needs(self) -> Needs:
        return replace(self.scorer.needs, indices=True, first=self.reference is None)

    def start(self, context: Context) -> RunningScorer:
        if self.reference is not None and context.examples != len(self.reference):
            raise ConfigurationError(
                f"there are reference losses of {len(self.reference)} examples, but the data set "
                f"has {context.examples}; one per example is needed"
            )
        inner, given = start_scorer(self.scorer, context), self.reference
        if not self._recalls:
            assert given is not None
            return _RunningExcess(given.losses, inner)

        def recall(ledger: Ledger, epoch: int) -> Float32[Tensor, " example"]:
            losses = inner.recall(ledger, epoch)
            assert losses is not None  # `Recorded` always recalls, infinity where it knows no loss
            excess = losses - (ledger.recorded.first() if given is None else given.losses)
            excess.masked_fill_(excess.isnan(), torch.inf)  # the first loss is unknown
            return excess.masked_fill_(losses == NO_TARGET, NO_TARGET)

        return Recalling(inner, recall)


class _RunningExcess(Delegating):
    def __init__(self, reference: Tensor, inner: RunningScorer) -> None:
        super().__init__(inner)
        self._reference = reference

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        scores = self.inner.score(batch, indices)
        self._reference = self._reference.to(scores.device)
        assert indices is not None  # the loader refuses streams
        return scores - self._reference[indices.to(scores.device)]


@final
@dataclass(frozen=True)
class Proxy(AbstractScorer):
    """Score each candidate by its loss under a proxy, a small model trained beside your own model.

    The proxy takes one optimiser step on every training batch that the loader yields, even before
    selection starts. It minimises the mean of its own losses. Its passes take time, too, so measure
    whether training is faster with it.

    Args:
        make_model: a function that returns the proxy, which takes the same batches as your model.
        make_optimizer: a function that takes the proxy's parameters and returns an optimiser.

    Source:
        Coleman et al. 2020, arXiv:1906.11829. In the paper, a proxy selects examples before the
        model is trained; here, proxy and model are trained at the same time.
    """

    make_model: Callable[[], nn.Module]
    make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]

    def __post_init__(self) -> None:
        for name, factory in vars(self).items():
            if isinstance(factory, nn.Module) or not callable(factory):
                raise ConfigurationError(
                    f"{name}={type(factory).__name__}: pass a function that makes a new one, "
                    "because every training run needs its own"
                )

    def __repr__(self) -> str:
        # Part of saved states, so it must be the same in every process: no addresses.
        makers = vars(self).values()
        named = (getattr(each, "__qualname__", type(each).__qualname__) for each in makers)
        return "Proxy(model={}, optimizer={})".format(*named)

    @property
    def needs(self) -> Needs:
        return Needs(model=False)

    def start(self, context: Context) -> RunningScorer:
        with kept_random_streams(context.device):  # making a loader must not advance them
            model = self.make_model()
        if context.device is not None:
            model = model.to(context.device)
        scorer = Forward().start(replace(context, model=model))
        return _RunningProxy(scorer, model, self.make_optimizer(model.parameters()), context)


class _RunningProxy(Delegating):
    def __init__(
        self, scorer: RunningScorer, model: nn.Module, optimizer: Optimizer, context: Context
    ) -> None:
        super().__init__(scorer)
        self._model, self._optimizer = model, optimizer
        self._losses: Any = context.losses  # `Forward` refuses None
        self._device = context.device

    def learn(self, batch: Any) -> None:
        self._model.train()
        with torch.enable_grad(), kept_random_streams(self._device):
            losses = check_losses(self._losses(self._model, batch), None)
            losses = losses.where(losses != NO_TARGET, 0.0)
            self._optimizer.zero_grad()
            losses.mean().backward()
        self._optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        # A copy, since torch returns the tensors themselves, which training changes.
        state = {"model": dict(self._model.state_dict()), "optimizer": self._optimizer.state_dict()}
        return copy.deepcopy(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # A copy, since an optimiser keeps its argument.
        parts = Saved(copy.deepcopy(state)).fields("model", "optimizer")
        with loaded(zip((self._model, self._optimizer), parts, strict=True)):
            pass
