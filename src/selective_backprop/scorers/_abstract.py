"""What a scorer is: a way to get one number per candidate."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float32
from torch import Tensor

from selective_backprop._agreement import Agreement
from selective_backprop._context import Context
from selective_backprop._ledger import Ledger
from selective_backprop._options import check_number, check_whole, settle
from selective_backprop._types import RowIndices, Scores


class RunningScorer(ABC):
    """A scorer at work in one training."""

    @abstractmethod
    def score(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score the candidates of one batch; a higher score is more worth training on.

        Args:
            batch: the candidates as they will be trained on, on their device.
            indices: their indices in the data set, or None for a stream.

        Returns:
            One score per candidate, detached, on the model's device.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the scorer must remember to go on later."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""


class Remembering(ABC):
    """What a running scorer can do besides, if it knows scores before examples are loaded."""

    @abstractmethod
    def recall(self, ledger: Ledger, epoch: int) -> Float32[Tensor, " example"] | None:
        """Return every example's score as of the start of an epoch.

        Args:
            ledger: what is remembered.
            epoch: the number of the epoch that starts.

        Returns:
            On the host. NaN where an example must be loaded and scored anew, infinity where
            nothing is known and the example is to be trained on; None if all of it is NaN.
        """


class Learning(ABC):
    """What a running scorer can do besides, if it is trained beside the model."""

    @abstractmethod
    def learn(self, batch: Any) -> None:
        """Take a step on a batch that is about to be trained on."""


class Agreeing(ABC):
    """What a running scorer can do besides, if it knows how far it agrees with an exact one."""

    @property
    @abstractmethod
    def agreement(self) -> Agreement | None:
        """What the last check found; None before the first has ended, or if there is none."""

    @property
    @abstractmethod
    def checked(self) -> int:
        """How many candidates were scored a second time, exactly, so far."""

    @property
    def so_far(self) -> Agreement | None:
        """What a check that still runs has found, else what the last found; waits for the device.

        None before any batch was compared, or if there is no check.
        """
        return self.agreement


class Approximate(ABC):
    """What a running scorer can do besides, if it, or what is inside, stands in for another."""

    @abstractmethod
    def score_exactly(self, batch: Any, indices: RowIndices | None) -> Scores:
        """Score the candidates of one batch without what makes scoring cheap."""


class Deferring(ABC):
    """What a running scorer can do besides, if it scores while something else goes on."""

    @property
    @abstractmethod
    def ahead(self) -> int:
        """How many batches to begin before the first is waited for; 0 to defer nothing."""

    @abstractmethod
    def begin(self, batch: Any, indices: RowIndices | None) -> Callable[[], Scores]:
        """Begin to score the candidates of one batch, which stay as they are meanwhile.

        Args:
            batch: as for `score`.
            indices: as for `score`.

        Returns:
            What waits for the scores and returns them. Batches are answered in the order in
            which they were begun; one that nobody waits for is let go.
        """


@dataclass(frozen=True)
class Needs:
    """What a scorer needs.

    Attributes:
        passes: whether candidates are scored as they come, by a forward pass or otherwise;
            if not, `score` is never called.
        indices: whether it must know examples by their indices in the data set.
        remembers: whether it answers from memory where it can; its running scorer is then
            `Remembering`.
        outputs: whether it needs the model's outputs, and not only losses.
        recordings: whether it lives on the losses that `SelectiveLoader.record` is given.
        depth: how many scores of each example must be remembered.
        rescores: whether examples left out are scored at the epoch's end.
        model: whether it scores with the model in training, and not with one of its own.
        learns: whether it is trained beside the model; its running scorer is then `Learning`.
        defers: whether it scores while training goes on; its running scorer is then `Deferring`.
        fresh: the share of an epoch's candidates that passes score, in the mean of epochs and in
            (0, 1]; what a scorer that answers from memory saves.

    Raises:
        ConfigurationError: if a number is out of its range.
    """

    passes: bool = True
    indices: bool = False
    remembers: bool = False
    outputs: bool = False
    recordings: bool = False
    depth: int = 1
    rescores: bool = False
    model: bool = True
    learns: bool = False
    defers: bool = False
    fresh: float = 1.0

    def __post_init__(self) -> None:
        settle(self, check_whole, "depth")
        settle(self, check_number, "fresh", above=0, most=1)


class AbstractScorer(ABC):
    """A scorer's specification: immutable, reusable, started once per training."""

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """What must be there for it to work; the loader refuses otherwise."""

    @abstractmethod
    def start(self, context: Context) -> RunningScorer:
        """Return the scorer at work in the training that `context` describes."""
