"""The scores that a strategy remembers, which are known before examples are loaded."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from selective_backprop._batches.losses import (
    IGNORED,
    OF_LABELS,
    are_shares,
    check_losses,
    lacks_target,
    name_of,
)
from selective_backprop._core.errors import LoaderError, LossError, warn
from selective_backprop._core.types import NO_TARGET, Float64
from selective_backprop._distributed.group import Group
from selective_backprop._memory.history import History
from selective_backprop._memory.ledger import Ledger
from selective_backprop._memory.pending_updates import PendingUpdates, merge
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.options import Setup
from selective_backprop._pipeline.rows import Known
from selective_backprop._sampling.draws import Selection
from selective_backprop.scorers import RunningScorer
from selective_backprop.strategies._auto.entropies import check_entropies
from selective_backprop.strategies._auto.wrong_labels import LabelNoise

MAX_UNRECORDED_BATCHES = 2  # before a loss must be recorded: users may look at batches first
LEAST_COMPARED = 100  # examples whose classes are compared with those of a loaded state
MOST_RANKED = 2**20  # scores that an epoch ranks against; these fit into a processor's cache


def class_indices(targets: object, rows: int) -> Tensor | None:
    """Return class indices, `[rows]`; None without one per row. Floats above 0.5 are class 1.

    Of distributions over classes, `[row, class]`, the likeliest class counts. If a row is neither
    this nor NaN, the targets are several labels per row, and all are `IGNORED`.
    """
    if not isinstance(targets, Tensor) or targets.is_complex() or targets.is_nested:
        return None
    targets, soft = targets.detach().as_subclass(Tensor), targets.is_floating_point()
    if soft and targets.ndim == 2 and targets.shape[0] == rows and targets.shape[1] > 1:
        values = targets.float()
        known, bare = are_shares(values), values.isnan().all(1)
        return values.argmax(1).where(known & (known | bare).all(), IGNORED)
    if tuple(targets.shape) not in ((rows,), (rows, 1)):
        return None
    targets = targets.reshape(rows)
    return (targets > 0.5).long() if soft else targets


class ScoreMemory:
    """The scores that are known when an epoch begins: valid ones, or the scorer's predictions."""

    def __init__(self, setup: Setup, scorer: RunningScorer) -> None:
        assert setup.source.examples is not None  # an index is in a known range
        self.examples, self.needs = setup.source.examples, setup.needs
        depth, several = self.needs.depth, setup.ranks.size > 1
        self.ledger = Ledger(self.examples, depth, first=self.needs.first)
        # What this rank notes until all ranks merge it into their ledgers.
        self.pending = PendingUpdates(self.examples, depth) if several else None
        self.writer = self.ledger if self.pending is None else self.pending  # of new scores
        self.label_noise = LabelNoise()
        self._scorer = scorer
        self._confident = setup.terms.confidence
        self._unseen = self._confident  # until a batch was recorded
        self.handed = 0  # batches that went to the loop since this object was made
        self.runs = False  # whether an epoch runs or is to be continued
        self._known: Known | None = None
        self._asked: tuple[int, int] | None = None
        self._asks_classes = self.needs.classes  # until an epoch begins with all classes known
        # Whether the loss has several labels per row, which may look like shares of classes.
        self._labels = name_of(setup.loss_fn)[0] in OF_LABELS
        self._warned = False  # that no targets are recorded
        # After a state was loaded: how many examples have another class than it says, and how many
        # were compared; the rows that were recorded; and with how many of them the host looks.
        self._differ: Tensor | None = None
        self._rows, self._enough = 0, LEAST_COMPARED
        self.epoch_scores: EpochScores | None = None  # of the latest epoch

    def open(self, epoch: int, *, handed: int) -> "EpochScores":
        if self.needs.recordings and handed > MAX_UNRECORDED_BATCHES and self.ledger.recorded.empty:
            raise LossError(
                "the strategy selects by recorded losses, but none was recorded. Write loss_fn = "
                "loader.loss_fn before the loop and loss = loss_fn(model(inputs), targets) in it, "
                "or call loader.record(selection, losses)"
            )
        self.runs = False
        return self._begin(self.recall(epoch))

    def reopen(self, known: Known | None, exempt: Tensor, epoch: int) -> "EpochScores":
        """Return what was known when a continued epoch began; `exempt` examples stay exempt."""
        self._known, self._asked = known, None
        if not epoch:  # asking for a later epoch's length may have ended it
            self.label_noise.totals = self.ledger.wrong_labels = None
        epoch_scores = self._begin(known)
        epoch_scores.keep(exempt)
        return epoch_scores

    def _begin(self, known: Known | None) -> "EpochScores":
        self.runs = True
        self._asks_classes = self.needs.classes and not self.ledger.classes.complete
        self.epoch_scores = EpochScores(known, self.examples, self.needs.rescores)
        return self.epoch_scores

    def record(
        self,
        selection: Selection,
        losses: Tensor,
        policy: NonFinite,
        epoch: int,
        targets: object = None,
        outputs: tuple[object, object] | None = None,
        smoothing: float = 0.0,
    ) -> None:
        """Remember losses, or NaN for rows without a target, and classes if the scorer needs them.

        In the first epoch outputs are compared with their targets, to estimate how many labels are
        wrong; `smoothing` is the label smoothing of the loss.
        """
        if selection.indices is None:
            raise LoaderError("rows of a stream have no indices to record losses by")
        losses = check_losses(losses, selection.indices.shape[0]).detach()
        if self._unseen:  # later batches are checked when an epoch begins
            self._unseen = False
            check_entropies(losses, targets)
        on_host = losses.device.type == "cpu"
        if not (on_host and np.isfinite(losses.double().numpy()).all()):
            if on_host and policy is NonFinite.RAISE:
                finite = losses.isfinite()
                raise LossError(
                    f"{int((~finite).sum())} of {len(losses)} recorded losses are not finite: "
                    f"examples {selection.indices[~finite][:10].tolist()}. Fix the data or lower "
                    "the learning rate, or leave such rows out of your loss and pass "
                    'nonfinite="skip", which records them as unknown.'
                )
            if on_host or self.pending is not None:  # a ledger on a GPU does this when it is read
                losses = losses.nan_to_num(torch.nan, torch.nan, torch.nan)
        bare = lacks_target(losses, targets)
        if bare is not None:
            losses = losses.masked_fill(bare, torch.nan)
        self.writer.record(selection.indices, losses, epoch)
        if self._asks_classes and targets is None and not self._warned:
            self._warned = True
            warn(
                "losses were recorded without targets, so the strategy does not know the classes, "
                "and may drop a rare one. Call loader.record(selection, losses, targets=targets)"
            )
        if self._asks_classes or self._differ is not None:
            multi = self._labels and isinstance(targets, Tensor) and targets[:1].numel() > 1
            classes = None if multi else class_indices(targets, len(losses))
            if classes is not None:
                self._compare(selection.indices, classes)
                self.writer.classify(selection.indices, classes)
        if self.needs.classes and epoch == 0 and outputs is not None:
            # Parts of a batch share its memory. Batches that were cut from one do, too.
            batch = self.handed, selection.indices.untyped_storage().data_ptr()
            self.label_noise.observe(*outputs, smoothing, batch)

    def resume(self) -> None:
        """Compare the classes of the next batches with those of the state that was loaded."""
        if self.needs.classes and not self.ledger.classes.empty:
            self._differ, self._rows, self._enough = torch.zeros(2), 0, LEAST_COMPARED

    def _compare(self, indices: Tensor, classes: Tensor) -> None:
        if self._differ is None:
            return
        before = self.ledger.classes.newest(indices)
        classes = classes.to(before)
        both = ~before.isnan() & (before != IGNORED) & (classes != IGNORED)
        counts = torch.stack([(both & (before != classes)).sum(), both.sum()])
        self._differ, self._rows = self._differ.to(counts) + counts, self._rows + len(classes)
        if self._rows < self._enough:
            return
        self._enough *= 2  # the host waits for a GPU here
        differ, compared = self._differ.tolist()
        if compared < LEAST_COMPARED:
            return
        self._differ = None
        if 10 * differ > compared:
            warn(
                f"{differ} of {compared} examples have another class than when the state was "
                "saved: the data set seems to hold other examples, or in another order, so the "
                "remembered losses are of others. Build the same data set; if it comes from "
                "random_split, seed the split (generator=torch.Generator().manual_seed(0)). Ignore "
                "this only if your loop changes targets on purpose, as MixUp does"
            )

    @property
    def noted(self) -> int:
        return 0 if self.pending is None else len(self.pending)

    def merge(self, group: Group, noted: Sequence[int], epoch: int = 0) -> None:
        """File the pending updates of all ranks; every rank must call this, with their `noted`.

        As the second epoch begins, the ranks also share how many labels look wrong.
        """
        assert self.pending is not None  # each of several ranks has one
        merge(self.pending, self.ledger, group, noted)
        if self.needs.classes and epoch > 0 and self.label_noise.totals is None:
            own = self.label_noise.own()
            self._end(group.gather(own, "shares how many labels look wrong").sum(0).cpu())

    def _end(self, totals: Float64[Tensor, " sum"]) -> None:
        self.label_noise.totals = totals
        self.ledger.wrong_labels = self.label_noise.found

    def close(self) -> None:
        self.runs = False
        self.ledger.wrong_labels = self.label_noise.found

    def recall(self, epoch: int) -> Known | None:
        asked = epoch, self.ledger.changes
        if asked != self._asked and not self.runs:
            self._known, self._asked = self._ask(epoch), asked
        return self._known

    def _ask(self, epoch: int) -> Known | None:
        if epoch > 0 and self.pending is None and self.label_noise.totals is None:
            self._end(self.label_noise.own())
        self.ledger.fetch()
        if self._confident and not self.ledger.recorded.empty:
            # Checked before examples are left out by these losses.
            check_entropies(torch.from_numpy(self.ledger.recorded.on_host().scores[0]), None)
        known = self._scorer.recall(self.ledger, epoch)
        return None if known is None else self._drawn(known, epoch)

    def _drawn(self, known: Known, epoch: int) -> Known:
        """Give examples that lack a target random scores of others, to keep them at that rate."""
        lacking = known.numpy() == NO_TARGET
        if not lacking.any():
            return known
        last = [column.on_host().epochs[0] for column in (self.ledger.scored, self.ledger.recorded)]
        pool = known.numpy()[(np.maximum(*last) >= 0) & ~lacking & ~np.isnan(known.numpy())]
        known, generator = known.clone(), np.random.default_rng(epoch)
        some = generator.choice(pool, lacking.sum()) if len(pool) else np.inf
        known.numpy()[lacking] = some
        return known


def rank_among(known: Known) -> History:
    """Return the scores that are finite, but at most `MOST_RANKED` of them, evenly spaced."""
    past = known[known.isfinite()]
    if len(past) > MOST_RANKED:  # these give every rank to within 5e-7
        ascending = past.numpy()
        ascending.sort()
        places = (np.arange(MOST_RANKED) + 0.5) * (len(ascending) / MOST_RANKED)
        past = torch.from_numpy(ascending[places.astype(np.int64)])
    history = History(max(1, len(past)))
    history.file(past)
    return history


class EpochScores:
    """The scores known when an epoch begins: NaN if an example must be scored, None if all must.

    `left_out` needs to track what happens to each example.
    """

    def __init__(self, known: Known | None, examples: int, tracks: bool) -> None:
        self.known, self._examples = known, examples
        self._fate = np.zeros(examples, np.int8) if tracks else None  # 1: candidate, 3: kept
        self.exempt: list[Tensor] = []  # examples that need no scoring at the epoch's end
        self.complete = known is not None and not bool(known.isnan().any())

    @cached_property
    def past(self) -> History:
        return rank_among(torch.empty(0) if self.known is None else self.known)

    def look_up(self, keys: object) -> tuple[Tensor, Tensor | None]:
        if not isinstance(keys, Tensor) or keys.is_floating_point():
            raise LoaderError(
                "the sampler yields keys that are no whole numbers, but this strategy remembers "
                "examples by their index in the data set"
            )
        if len(keys) and not (int(keys.min()) >= 0 and int(keys.max()) < self._examples):
            raise LoaderError(
                f"the sampler yields indices {int(keys.min())} to {int(keys.max())}, but this "
                f"strategy remembers examples by index, from 0 to {self._examples - 1}"
            )
        if self._fate is not None:
            self._fate[keys.numpy()] |= 1
        if self.known is None:
            return keys, None
        scores = self.known[keys]
        known = self.complete or not bool(scores.isnan().all())
        return keys, scores if known else None

    def keep(self, keys: object) -> None:
        if self._fate is not None and isinstance(keys, Tensor):
            self._fate[keys.numpy()] = 3
            self.exempt.append(keys)

    def left_out(self) -> Tensor:
        if self._fate is None:
            return torch.empty(0, dtype=torch.int64)
        return torch.from_numpy((self._fate == 1).nonzero()[0])
