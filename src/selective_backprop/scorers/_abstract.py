"""The interface of scorers, which give one number per candidate, and of their wrappers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance, check_number, check_whole, settle
from selective_backprop._core.saved_state import Saved
from selective_backprop._core.types import Float32, RowIndices, Scores
from selective_backprop._memory.ledger import Ledger
from selective_backprop._sampling.context import Context
from selective_backprop.scorers._agreement import Agreement


class RunningScorer(ABC):
    """The part of a scorer that runs in one training; `AbstractScorer.start` returns it.

    `recall`, `learn` and `begin` have defaults. A scorer that overrides `recall` must set
    `remembers=True` in its `Needs`, which the loader reads before it starts the scorer.
    """

    @abstractmethod
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score the candidates of one batch; a higher score means more useful to train on.

        Args:
            batch: the candidates, as training will see them and on the same device.
            indices: the candidates' indices in the data set, or None for a stream.

        Returns:
            One score per candidate, detached, on the model's device.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the scorer needs to continue later."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""

    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        """Return every example's score when an epoch starts, before any example is loaded.

        Args:
            ledger: the remembered scores and losses.
            epoch: the number of the epoch that starts.

        Returns:
            Scores on the host, or None if all would be NaN. A NaN says that the example must be
            loaded and scored anew. Infinity says that nothing is known about the example, so it is
            trained on.
        """
        return None

    def learn(self, batch: Any) -> None:  # noqa: B027
        """Train the scorer itself on a batch that the model is about to be trained on."""

    @property
    def ahead(self) -> int:
        """How many batches to `begin` before waiting for the scores of the first; 0: no delay."""
        return 0

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        """Begin to score the candidates of one batch; the batch must not change meanwhile.

        Args:
            batch: as for `score`.
            indices: as for `score`.

        Returns:
            A function that waits for the scores and returns them. Batches are scored in the order
            in which they were begun. If the function is never called, the scores are dropped.
        """
        scores = self.score(batch, indices)
        return lambda: scores

    def score_exactly(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score the candidates of one batch exactly, even if `score` only approximates."""
        return self.score(batch, indices)

    @property
    def agreement(self) -> Agreement | None:
        """The result of the last check against exact scores; None before the first check."""
        return None

    @property
    def checked(self) -> int:
        """How many candidates were scored a second time, exactly, to check the cheap scores."""
        return 0


@dataclass(frozen=True)
class Needs:
    """What a scorer needs, and what it can do.

    Attributes:
        passes: whether candidates are scored as they arrive, by a forward pass or otherwise;
            if not, `score` is called only to rescore.
        indices: whether it needs the examples' indices in the data set.
        remembers: whether it remembers scores of examples by index. Its `RunningScorer` must then
            override `recall`.
        outputs: whether it needs the model's outputs as well as losses.
        recordings: whether it selects by the losses that your loop passes to
            `SelectiveLoader.record`.
        depth: how many scores of each example must be remembered.
        first: whether each example's first recorded loss must be remembered.
        classes: whether it uses each example's class. Classes are known if targets are class
            indices, or floats of 0 (no) and 1 (yes).
        rescores: whether it scores, at an epoch's end, the examples that the epoch left out.
        model: whether it scores with the model in training; False if it has a model of its own.
        plain_forward: whether each call of `score` runs exactly one forward pass of the whole
            model in training. False for a scorer that uses a part or a copy of the model. Such a
            scorer is refused under FSDP, and with SyncBatchNorm in training mode, because there a
            forward pass waits for all ranks.
        fresh: the share of candidates that `score` is called for in an average epoch, in (0, 1].
            Below 1 if the scorer knows some scores from memory.

    Raises:
        ConfigurationError: if a number is out of its range.
    """

    passes: bool = True
    indices: bool = False
    remembers: bool = False
    outputs: bool = False
    recordings: bool = False
    depth: int = 1
    first: bool = False
    classes: bool = False
    rescores: bool = False
    model: bool = True
    plain_forward: bool = False
    fresh: float = 1.0

    def __post_init__(self) -> None:
        settle(self, check_whole, "depth")
        settle(self, check_number, "fresh", above=0, most=1)


class AbstractScorer(ABC):
    """A scorer's specification: immutable, reusable, started once per training."""

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """What the scorer needs; the loader refuses the scorer if something is missing."""

    @abstractmethod
    def start(self, context: Context) -> RunningScorer:
        """Return a new `RunningScorer` for the training that `context` describes."""


class Delegating(RunningScorer):
    """A running scorer that wraps another scorer and leaves memory and learning to it.

    Args:
        inner: the wrapped scorer.
        beside: one more scorer, whose `learn` is called, too.

    """

    def __init__(self, inner: RunningScorer, beside: RunningScorer | None = None) -> None:
        self.inner = inner
        self.parts = (inner,) if beside is None else (inner, beside)

    @property
    def agreement(self) -> Agreement | None:
        return self.inner.agreement

    @property
    def checked(self) -> int:
        return self.inner.checked

    def learn(self, batch: Any) -> None:
        for part in self.parts:
            part.learn(batch)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


class PassThrough(Delegating):
    """A running scorer that scores as the wrapped scorer does, at the same time."""

    @property
    def ahead(self) -> int:
        return self.inner.ahead

    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        return self.inner.score(batch, indices)

    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        return self.inner.begin(batch, indices)


class Stateless(RunningScorer):
    """A running scorer without memory: scores depend only on a batch and its indices."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        Saved(state).fields()


def start_scorer(scorer: AbstractScorer, context: Context) -> RunningScorer:
    """Start a scorer, and refuse it if its `Needs` say nothing of its memory, or too much."""
    running = scorer.start(context)
    check_instance(
        f"what {type(scorer).__name__}.start returned", running, RunningScorer, "a RunningScorer"
    )
    recalls = type(running).recall is not RunningScorer.recall
    if recalls != scorer.needs.remembers:
        raise ConfigurationError(
            f"Needs(remembers={scorer.needs.remembers}) of {type(scorer).__name__}, and "
            f"{type(running).__name__} {'has' if recalls else 'has no'} recall(); say in its Needs "
            "whether it answers from memory"
        )
    return running


def learns(running: RunningScorer) -> bool:
    """Return whether a scorer, or one that it wraps, is trained beside the model."""
    if type(running).learn is Delegating.learn:
        return any(map(learns, running.parts))
    return type(running).learn is not RunningScorer.learn


def checks(running: RunningScorer) -> bool:
    """Return whether a scorer, or the one that it wraps, scores some candidates twice."""
    while isinstance(running, Delegating) and type(running).checked is Delegating.checked:
        running = running.inner
    return type(running).checked is not RunningScorer.checked


def scorer_parts(scorer: object) -> Iterator[object]:
    """Yield a scorer, then each scorer that it wraps."""
    while scorer is not None:
        yield scorer
        scorer = getattr(scorer, "scorer", None) or getattr(scorer, "rescore", None)


def check_inner(scorer: Any) -> None:
    """Refuse to wrap a scorer that remembers."""
    check_instance("scorer", scorer, AbstractScorer, "Forward()")
    if not scorer.needs.passes or scorer.needs.remembers:
        raise ConfigurationError(
            f"{scorer!r} remembers scores itself; wrap one that takes them, such as Forward()"
        )
