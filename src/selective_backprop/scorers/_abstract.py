"""The interface of scorers, and base classes for scorers that wrap another scorer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from selective_backprop._core.errors import ConfigurationError, LossError
from selective_backprop._core.options import check_instance, check_whole, settle
from selective_backprop._core.types import Float32, RowIndices, Scores
from selective_backprop._memory.ledger import Ledger
from selective_backprop._sampling.context import Context, Running
from selective_backprop.scorers._agreement import Agreement


class RunningScorer(Running):
    """A scorer at work in one training run; `AbstractScorer.start` returns it."""

    @abstractmethod
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score one batch of candidates; candidates with higher scores are more useful to train on.

        Args:
            batch: candidates to select from, with a training batch's structure and device.
            indices: the candidates' indices in the data set; None if they are unknown.

        Returns:
            One score per candidate, detached, on the model's device. A candidate without a target
            has a score of -2^100, and is kept at the same rate as the others. With
            `Needs(features=True)`, a pair of these scores and features, `[candidate, feature]`.
        """

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        """Return the score of every example from memory, before epoch `epoch` (from 0) loads any.

        If you override this, set `remembers=True` in the scorer's `Needs`. Scores are on the CPU;
        None if all would be NaN. An example with a score of NaN is loaded and scored, one of
        infinity is trained on as soon as the selector's rate allows, and one of -2^100 has no
        target, and is kept at the same rate as the others.
        """
        return None

    def learn(self, batch: Any) -> None:
        """Train the scorer itself on a training batch, before the model trains on this batch."""

    @property
    def ahead(self) -> int:
        """How many batches are scored ahead of training; with 0, each is scored when needed."""
        return 0

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        """Begin to `score` one batch; return a function that waits for the scores.

        Batches are scored in the order of these calls, and must not change until they are.
        """
        scores = self.score(batch, indices)
        return lambda: scores

    @property
    def agreement(self) -> Agreement | None:
        """How far `score` agreed with exact scores in the last check; None before any check."""
        return None

    @property
    def checked(self) -> int:
        """How many candidates were also scored exactly, to check an approximate `score`."""
        return 0


@dataclass(frozen=True)
class Needs:
    """What a scorer needs, and what it can do.

    Attributes:
        passes: whether `score` is called for candidates when they are loaded. If not, it is called
            only to rescore skipped examples (see `rescores`).
        indices: whether the scorer needs the examples' indices in the data set.
        remembers: whether its `RunningScorer` overrides `recall`, to score examples from memory.
        outputs: whether it needs the model's outputs as well as losses.
        features: whether `score` returns `(scores, features)`, for selectors that use features.
        recordings: whether it uses the losses that training records, through
            `SelectiveLoader.loss_fn` or `SelectiveLoader.record`.
        depth: how many of each example's last scores must be remembered, at least 1.
        first: whether each example's first recorded loss must be remembered.
        classes: whether it uses each example's class. Classes are known if targets are class
            indices, floats of 0 (no) and 1 (yes), or distributions over classes (the likeliest).
        rescores: whether examples that an epoch skipped are scored at the end of this epoch.
        model: whether it scores with the model that your loop trains, not with its own model.
        plain_forward: whether each call of `score` runs exactly one forward pass of the whole model
            that your loop trains. If False, the scorer is refused with FSDP and, if it scores in
            training mode, with SyncBatchNorm: their forward passes wait for all processes.
    """

    passes: bool = True
    indices: bool = False
    remembers: bool = False
    outputs: bool = False
    features: bool = False
    recordings: bool = False
    depth: int = 1
    first: bool = False
    classes: bool = False
    rescores: bool = False
    model: bool = True
    plain_forward: bool = False

    def __post_init__(self) -> None:
        settle(self, check_whole, "depth")


class AbstractScorer(ABC):
    """The settings of a scorer. They never change; each training run calls `start` once."""

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """What the scorer needs; the loader refuses the scorer if something is missing."""

    @abstractmethod
    def start(self, context: Context) -> RunningScorer:
        """Return a new `RunningScorer` for the training run that `context` describes."""


class Delegating(RunningScorer):
    """A base class for a running scorer that wraps another one, `inner`.

    What you do not override is the inner scorer's, except `recall`, `ahead` and `begin`.
    """

    def __init__(self, inner: RunningScorer) -> None:
        self.inner = inner
        self.parts = (inner,)

    @property
    def agreement(self) -> Agreement | None:
        return self.inner.agreement

    @property
    def checked(self) -> int:
        return self.inner.checked

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self.inner.score(batch, indices)

    def learn(self, batch: Any) -> None:
        for part in self.parts:
            part.learn(batch)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


def start_scorer(scorer: AbstractScorer, context: Context) -> RunningScorer:
    """Start a scorer; refuse it unless `Needs.remembers` says whether it overrides `recall`."""
    running = scorer.start(context)
    recalls = type(running).recall is not RunningScorer.recall
    if recalls != scorer.needs.remembers:
        raise ConfigurationError(
            f"{type(running).__name__} {'has' if recalls else 'has no'} recall(), but "
            f"{type(scorer).__name__}.needs says remembers={scorer.needs.remembers}; write "
            f"Needs(remembers={recalls})"
        )
    return running


def overrides(running: RunningScorer, name: str) -> bool:
    """Return whether a scorer, or one that it wraps, overrides a default of `RunningScorer`."""
    own = getattr(type(running), name)
    if isinstance(running, Delegating) and own is getattr(Delegating, name):
        return any(overrides(part, name) for part in running.parts)
    return own is not getattr(RunningScorer, name)


def scorer_parts(scorer: Any) -> Iterator[Any]:
    """Yield a scorer, then each scorer that it wraps."""
    while scorer is not None:
        yield scorer
        scorer = getattr(scorer, "scorer", None) or getattr(scorer, "rescore", None)


def check_inner(scorer: Any) -> None:
    """Refuse to wrap a scorer that scores from memory, or that returns more than scores."""
    check_instance("scorer", scorer, AbstractScorer, "Forward()")
    needs = scorer.needs
    if not needs.passes or needs.remembers or needs.features:
        raise ConfigurationError(
            f"{scorer!r} remembers scores itself or returns features, so it cannot be wrapped; "
            "wrap a scorer that only computes scores, such as Forward()"
        )


def split_scored(found: Any, count: int) -> tuple[Any, Tensor]:
    """Return the scores and features that `score` returned for `count` candidates."""
    scores, features = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != count:
        shape = getattr(features, "shape", None)
        raise LossError(
            f"the features of {count} candidates have shape {shape}: with Needs(features=True), "
            "return (scores, features), tensors [candidate] and [candidate, feature]"
        )
    return scores, features.detach()
