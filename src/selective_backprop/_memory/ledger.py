"""What is remembered of each example: its scores, their epochs, and how often it was trained on."""

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from selective_backprop._batches.losses import IGNORED
from selective_backprop._core.options import check_flag, check_whole
from selective_backprop._core.saved_state import Saved, loaded
from selective_backprop._core.types import Float32, Int32, RowIndices, RowMask

NEVER = -1  # the epoch of no score
LAST_SHORT = 32_767  # the last epoch that fits into an int16
MOST_COUNTED = 16_000  # leaves room in an int16 for what is added before the clamp
LEAST_WRONG = 0.025  # with right labels of classes that are easy to tell apart, few are above 0.02
PARTS = "scored", "recorded", "classes"  # what of a ledger has a state
COUNTED_TOGETHER = 64  # batches, which are then counted by two kernels


class Observations(NamedTuple):
    """A copy of each example's last scores, newest first, and of their epochs, on the host."""

    scores: Float32[np.ndarray, "lag example"]  # NaN where there is none
    epochs: Int32[np.ndarray, "lag example"]  # in which it was computed; -1 where there is none


class ClassVisits(NamedTuple):
    """How often the examples of each class were trained on.

    Attributes:
        classes: the class indices seen so far, ascending.
        examples: number of examples seen so far, for each class.
        visits: how often the examples of each class were trained on, in all.
    """

    classes: tuple[int, ...]
    examples: tuple[int, ...]
    visits: tuple[int, ...]

    @property
    def least(self) -> float:
        """The lowest ratio of a class's share of the visits to its share of the examples."""
        mean = sum(self.visits) / sum(self.examples)
        if not mean:
            return 1.0
        return min(n / m for n, m in zip(self.visits, self.examples, strict=True)) / mean


class WrongShare(NamedTuple):
    """The estimated share of labels that look wrong, as if they had been drawn at random.

    Attributes:
        share: the estimate, in [0, 1].
        half_width: the 95 % interval is `share` ± `half_width`.
    """

    share: float
    half_width: float

    @property
    def is_clear(self) -> bool:
        """Whether the share is at least 0.025, and its interval excludes 0."""
        return self.share >= max(LEAST_WRONG, self.half_width)

    def __str__(self) -> str:
        return f"{self.share:.0%} ± {self.half_width:.1%} of the labels look wrong"


class Column:
    """The last `depth` scores of each example from one source, on the scores' own device.

    With `first`, the first one is remembered too. With `finite`, infinite scores are read as NaN.
    """

    def __init__(
        self, examples: int, depth: int = 1, *, first: bool = False, finite: bool = False
    ) -> None:
        self._depth, self._finite = depth, finite
        shape = depth, examples
        self._shapes: dict[str, tuple[int, ...]] = {"scores": shape, "epochs": shape}
        if first:
            self._shapes["first"] = (examples,)
        self._held: dict[str, Tensor] = {}  # with the names and shapes above; {} if nothing is
        self.host: Observations | None = None  # a copy of what a GPU holds
        self.changes = 0

    def file(
        self, indices: RowIndices, scores: Tensor, epoch: int, new: RowMask | None = None
    ) -> None:
        """Remember one score for each of some examples; it replaces the oldest one.

        If `new` is False for an example, it replaces the newest one instead.
        """
        scores = scores.detach().to(torch.float32)
        if not self._held:
            held = {name: scores.new_full(each, torch.nan) for name, each in self._shapes.items()}
            held["epochs"] = torch.full_like(held["scores"], NEVER, dtype=torch.int16)
            self._held = held  # all at once, even if Ctrl-C comes
        if epoch > LAST_SHORT:
            self._held["epochs"] = self._held["epochs"].int()
        self.changes += 1
        self.host = None
        newest, epochs = self._held["scores"], self._held["epochs"]
        place: dict[str, Any] = {"device": newest.device, "non_blocking": newest.is_cuda}
        rows, scores = indices.to(**place), scores.to(**place)
        new = None if new is None else new.to(**place)
        if (first := self._held.get("first")) is not None:
            known = first[rows]
            first[rows] = torch.where(known.isfinite(), known, scores)
        for lag in range(self._depth - 1, 0, -1):
            for column in (newest, epochs):
                older = column[lag - 1][rows]
                if new is not None:  # a mask: selecting by it would make the host wait
                    older = torch.where(new, older, column[lag][rows])
                column[lag][rows] = older
        newest[0][rows] = scores
        # Assigning a number at indices would copy it to the device, so the host would wait.
        epochs[0].index_fill_(0, rows, epoch)

    @property
    def empty(self) -> bool:
        return not self._held

    @property
    def complete(self) -> bool:
        """Whether every example has a score. Waits for the device."""
        return not self.empty and not bool(np.isnan(self.on_host().scores[0]).any())

    def newest(self, indices: RowIndices) -> Float32[Tensor, " row"]:
        """Return the last scores of some examples, on the scores' device, if it is not `empty`."""
        scores = self._held["scores"][0]
        return scores[indices.to(scores.device)]

    def observe(self) -> Observations:
        """Return the remembered scores and epochs, as a copy on the host. Waits for the device."""
        scores, epochs = self.on_host()
        return Observations(scores.copy(), epochs.astype(np.int32))

    def on_host(self) -> Observations:
        """Return the same as `observe`, read only and without a copy; epochs may be int16."""
        if self.empty:
            shape = self._shapes["scores"]
            nothing = np.broadcast_to(np.float32(np.nan), shape)
            return Observations(nothing, np.broadcast_to(np.int32(NEVER), shape))
        if self.host is None:
            _fetch([self])
        return cast(Observations, self.host)

    def parts(self) -> list[Tensor]:
        scores = self._held["scores"]
        if self._finite and scores.device.type != "cpu":
            scores.nan_to_num_(torch.nan, torch.nan, torch.nan)
        return [scores, self._held["epochs"]]

    def first(self) -> Float32[Tensor, " example"]:
        """Return each example's first score, on the host; NaN if none. Waits for the device."""
        if "first" not in self._held:
            return torch.full(self._shapes["scores"][1:], torch.nan)
        return self._held["first"].cpu().nan_to_num(torch.nan, torch.nan, torch.nan)

    def state_dict(self) -> dict[str, Any]:
        return {name: tensor.clone() for name, tensor in self._held.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        shapes = self._shapes if state else {}
        held = {}
        for (name, shape), each in zip(shapes.items(), Saved(state).fields(*shapes), strict=True):
            kinds = (torch.int16, torch.int32) if name == "epochs" else (torch.float32,)
            held[name] = each.tensor(*kinds, shape=shape, nan=True).clone()
        self._held, self.host = held, None
        self.changes += 1


def _fetch(columns: Iterable[Column], *more: Tensor) -> list[Tensor]:
    """Keep what columns hold on the host until they change, and return `more` there."""
    changed = [each for each in columns if each.host is None and not each.empty]
    found = iter(to_host(*(part for each in changed for part in each.parts()), *more))
    for each in changed:
        each.host = Observations(next(found).numpy(), next(found).numpy())
    return list(found)


class AwaitedLosses:
    """Which examples were handed out for training and have no recorded loss since.

    A step may evaluate its loss several times, as SAM and LBFGS do. The first loss after a
    hand-out is added to the example's earlier ones, and each further loss replaces it. With a
    `depth` of 1, only one loss is remembered, so nothing is tracked.
    """

    def __init__(self, examples: int, depth: int) -> None:
        self._examples = examples
        self._tracks = depth > 1
        self._flags: Tensor | None = None
        self._fresh: Tensor | None = None  # the last hand-out, if not flagged yet

    def hand_out(self, indices: RowIndices) -> None:
        if self._tracks:
            self._flag_fresh()
            self._fresh = indices

    def _flag_fresh(self) -> None:
        if self._fresh is not None:
            if self._flags is None:
                device = self._fresh.device
                self._flags = torch.zeros(self._examples, dtype=torch.bool, device=device)
            self._flags.index_fill_(0, self._fresh.to(self._flags.device), True)
            self._fresh = None

    def answer(self, indices: RowIndices) -> RowMask | None:
        """Return which recorded losses are the first since a hand-out; None if all are."""
        if not self._tracks:
            return None
        new = None
        if indices is self._fresh:  # nearly always: the losses of the whole batch
            self._fresh = None
        else:
            self._flag_fresh()
            if self._flags is None:  # nothing was handed out yet
                return torch.zeros_like(indices, dtype=torch.bool)
            new = self._flags[indices.to(self._flags.device)]
        if self._flags is not None:
            self._flags.index_fill_(0, indices.to(self._flags.device), False)
        return new

    def state(self) -> Tensor | None:
        self._flag_fresh()
        return None if self._flags is None else self._flags.clone()

    def load(self, saved: Saved) -> None:
        if not self._tracks:
            saved.nothing()
        shape = (self._examples,)
        self._fresh = None
        flags = saved.maybe(lambda each: each.tensor(torch.bool, shape=shape, nan=True))
        self._flags = None if flags is None else flags.clone()


class Ledger:
    """Remembers each example's last scores, their epochs, and how often it was trained on.

    Scores of extra forward passes are kept apart from training losses, because in these passes the
    model may be in another mode, and examples may be augmented differently.

    Each score of an example takes 6 bytes (8 from epoch 32,768 on), its class 6, and how often it
    was trained on 2. With several scores, one more byte notes whether its last loss is recorded.

    Args:
        examples: number of examples in the data set.
        depth: how many scores and how many training losses to remember of each example, at least 1.
        first: whether to remember the first training loss of each example, too, in 4 more bytes.

    Attributes:
        scored: the scores of extra forward passes.
        recorded: the training losses that your loop recorded.
        classes: the class index of each example, as a float32, exact up to 2^24.
        wrong_labels: the estimated share of wrong labels (`SelectiveLoader.wrong_labels`), or None.
    """

    def __init__(self, examples: int, depth: int = 1, *, first: bool = False) -> None:
        self.examples = examples = int(check_whole("examples", examples, least=0))
        depth = int(check_whole("depth", depth))
        self.scored = Column(examples, depth)
        self.score = self.scored.file  # as `record` and `classify`, but not one call more
        self.recorded = Column(examples, depth, first=check_flag("first", first), finite=True)
        self.classes = Column(examples)
        self.wrong_labels: WrongShare | None = None
        self._awaited = AwaitedLosses(examples, depth)
        self._selected = torch.zeros(self.examples, dtype=torch.int16)
        self._uncounted: list[RowIndices] = []  # the last batches
        self._host: Tensor | None = None  # the counts, as `fetch` left them on the host

    @property
    def changes(self) -> int:
        """A number that grows whenever scores or losses are filed."""
        return self.scored.changes + self.recorded.changes

    def fetch(self, *more: Tensor) -> list[Tensor]:
        """Copy what a GPU holds to the host, with `more`, and return that; the host waits once."""
        columns, counts = (self.scored, self.recorded, self.classes), self._host
        *found, self._host = _fetch(columns, *more, self._counts() if counts is None else counts)
        return found

    def hand_out(self, indices: RowIndices) -> None:
        """Take note of examples in a training batch, whose losses may be recorded later."""
        self._awaited.hand_out(indices)
        self.count(indices)

    def record(self, indices: RowIndices, losses: Tensor, epoch: int) -> None:
        """Remember one loss of each example.

        The first one after `hand_out` stands beside earlier losses; each further one replaces it.
        """
        self.recorded.file(indices, losses, epoch, self._awaited.answer(indices))

    def classify(self, indices: RowIndices, classes: Tensor) -> None:
        """Remember the classes of some examples."""
        self.classes.file(indices, classes, 0)

    @property
    def class_visits(self) -> ClassVisits | None:
        """How often each class was trained on; None if no class is known. Waits for the device."""
        known = self.classes.observe().scores[0]
        noted = ~np.isnan(known) & (known != IGNORED)
        if not noted.any():
            return None
        classes, places, examples = np.unique(known[noted], return_inverse=True, return_counts=True)
        visits = np.bincount(places, weights=self.selected.numpy()[noted])
        return ClassVisits(*(tuple(map(int, each)) for each in (classes, examples, visits)))

    def count(self, indices: RowIndices) -> None:
        """Count examples that go into a training batch. An index given twice counts twice."""
        self._host = None
        self._uncounted.append(indices)
        if len(self._uncounted) == COUNTED_TOGETHER:
            self._counts()

    def _counts(self) -> Tensor:
        """Return the counts, those of the last batches included, none above 16,000."""
        if self._uncounted:
            device = self._uncounted[0].device
            rows = torch.cat([each.to(device) for each in self._uncounted])
            self._uncounted = []
            self._selected = counts = self._selected.to(device)
            counts.index_add_(0, rows, counts.new_ones(1).expand(len(rows)))
            counts.clamp_(max=MOST_COUNTED)
        return self._selected

    @property
    def selected(self) -> Int32[Tensor, " example"]:
        """How often each example was trained on, at most 16,000. Waits for the device."""
        return self._counts().to("cpu", torch.int32, copy=True)

    def visits(self) -> tuple[int, int]:
        """Return the sum of `selected`, and how many examples were ever trained on."""
        counts = (self._counts().cpu() if self._host is None else self._host).numpy()
        return int(counts.sum(dtype=np.int64)), int(np.count_nonzero(counts))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the ledger remembers."""
        parts = {name: getattr(self, name).state_dict() for name in PARTS}
        counts = self._counts().clone()
        return parts | {"awaited": self._awaited.state(), "selected": counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`. A state that is refused changes nothing."""
        *saved, awaited, selected = Saved(state).fields(*PARTS, "awaited", "selected")
        counts = selected.tensor(torch.int16, shape=(self.examples,), least=0, most=MOST_COUNTED)
        parts = [getattr(self, name) for name in PARTS]
        with loaded(zip(parts, saved, strict=True)):
            self._awaited.load(awaited)
            self._selected, self._host, self._uncounted = counts.clone(), None, []


def to_host(*tensors: Tensor) -> list[Tensor]:
    """Return tensors on the host. It waits once for those that are on a GPU."""
    # By falling size of their numbers, so that each begins where its numbers may begin.
    away = sorted((each for each in tensors if each.is_cuda), key=lambda each: -each.itemsize)
    found = {id(each): each.cpu() for each in tensors if not each.is_cuda}
    if away:
        packed = torch.cat([each.reshape(-1).view(torch.uint8) for each in away]).cpu()
        parts = packed.split([each.nbytes for each in away])
        for each, part in zip(away, parts, strict=True):
            found[id(each)] = part.view(each.dtype).reshape(each.shape)
    return [found[id(each)] for each in tensors]
