"""`SelectiveLoader`: yields full batches of the examples worth training on."""

import copy
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from selective_backprop._batches.losses import (
    IGNORED,
    LossFunction,
    class_weights,
    ignored_label,
    label_smoothing,
    without_ignored,
)
from selective_backprop._batches.structure import Layout
from selective_backprop._core import options
from selective_backprop._core.errors import ConfigurationError, LoaderError
from selective_backprop._core.stats import ScoreStats, Stats
from selective_backprop._core.stopwatch import Stopwatch
from selective_backprop._core.types import LossesOf, OutputsOf
from selective_backprop._loader import messages
from selective_backprop._loader.checkpoint import LoaderState
from selective_backprop._loader.epoch import Epoch, Epochs
from selective_backprop._loader.weighted_loss import WeighingLoss
from selective_backprop._memory.ledger import ClassVisits, Ledger, WrongShare
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.options import Setup
from selective_backprop._pipeline.rows import Leftovers
from selective_backprop._pipeline.source import open_source
from selective_backprop._pipeline.stages import Pipeline
from selective_backprop._sampling.draws import Selection
from selective_backprop.scorers._agreement import Agreement
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._strategy import check_strategy


class SelectiveLoader:
    """Wrap a data loader, and yield full batches of the examples worth training on.

    Iterate over this loader instead of yours, whose examples are called candidates. The current
    model scores each batch of candidates, usually by their losses, and the strategy chooses some of
    them, which wait until they fill a training batch. If a strategy needs no scores from the
    current model, it chooses before loading, so skipped examples are never loaded.

    Scoring changes neither the model's mode and buffers, nor a random generator, nor your data
    loader. If the strategy scores with the model, use this loader only in the thread that trains.

    Args:
        loader: a `torch.utils.data.DataLoader` with any data set, sampler and collate function.
        model: the model that you train; it scores candidates, which are moved to its device.
        loss_fn: your loss, called as `loss_fn(outputs, targets)`. It must have a `reduction`
            option, or return one loss per example. None will do with `losses`, or without scoring.
        strategy: what to select and when, such as `selective_backprop(rate=1/3)`.
        losses: `callable(model, batch)` that returns one loss per example, `[candidate]`, for
            batches that are not pairs `(inputs, targets)`.
        outputs: `callable(model, batch)` that returns the `(outputs, targets)` that `loss_fn` is
            called with; by default `(model(inputs), targets)`.
        batch_size: number of rows in a training batch; by default the batch size of `loader`. On a
            GPU, scoring is fastest if batches of `loader` have `batch_size / rate` rows.
        epochs: number of epochs to train, for strategies that select in only a part of training.
            Such strategies train on everything if you train longer; others go on as before.
        progress: `callable()` that returns the fraction of training done, in [0, 1], instead of
            `epochs`, if a time limit or so ends training. Workers call it a few batches ahead.
        leftovers: what happens at an epoch's end to rows that do not fill a batch, or a window (the
            candidates that one batch is chosen from): `"carry"` keeps them for the next epoch,
            `"flush"` makes a shorter batch, `"drop"` discards them.
        with_selection: yield `(batch, selection)`, for loops that weight and record losses
            themselves. The `Selection` holds each row's weight and its index in the data set.
        pad: maps the path of a tensor in the batch to the number that fills it up on the right, if
            its width differs between batches. A path consists of the keys, field names and
            positions that lead to the tensor, joined by dots.
        whole: paths of the parts of a batch that are the same in every batch, and passed on whole.
        device: candidates are scored and yielded on this device; by default the model's.
        generator: its initial seed is used for the random draws; by default `torch.initial_seed()`.
            Drawing does not change its state.
        nonfinite: if a loss is infinite or NaN, `"raise"` an error, `"skip"` or `"select"` the row.
        stopwatch: counts the seconds spent on `"load"`, `"score"` and `"select"`.
        process_group: the `torch.distributed` processes that share the data; by default all.
        overlap: let processes exchange scores while a batch is trained on, if all know that they
            have equally many. If one fails, the others train, or wait in DDP, for one batch more.
        quiet: print nothing; by default, rank 0 prints what is selected to standard error.

    Raises:
        ConfigurationError: if an option or a combination of options cannot work, such as
            `MSELoss` with a strategy that needs a cross-entropy.
        LoaderError: if the loader cannot be wrapped, or cannot be used with this strategy.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        model: nn.Module | None,
        loss_fn: LossFunction | None,
        strategy: Strategy,
        *,
        losses: LossesOf | None = None,
        outputs: OutputsOf | None = None,
        batch_size: int | None = None,
        epochs: float | None = None,
        progress: Callable[[], float] | None = None,
        leftovers: Leftovers | str = Leftovers.CARRY,
        with_selection: bool = False,
        pad: Mapping[str, float] | None = None,
        whole: Collection[str] = (),
        device: torch.device | str | int | None = None,
        generator: torch.Generator | None = None,
        nonfinite: NonFinite | str = NonFinite.RAISE,
        stopwatch: Stopwatch | None = None,
        process_group: Any = None,
        overlap: bool = False,
        quiet: bool = False,
    ) -> None:
        strategy, source = check_strategy(strategy), open_source(loader)
        if batch_size is not None:
            batch_size = int(options.check_whole("batch_size", batch_size))
        if strategy.subset is not None:
            source = source.within(strategy.subset, batch_size)
        loss_fn = WeighingLoss.unwrapped(loss_fn)  # of an earlier loader: a cell was run again
        messages.check_fit(strategy, source, loss_fn, losses, outputs)
        self._source = source
        self._setup = setup = Setup(
            source,
            strategy,
            messages.check_length(strategy, source, epochs, progress),
            model=model,
            loss_fn=loss_fn,
            losses=losses,
            outputs=outputs,
            batch_size=batch_size,
            leftovers=options.choose("leftovers", leftovers, Leftovers),
            with_selection=options.check_flag("with_selection", with_selection),
            layout=Layout(options.check_paths("whole", whole), options.check_pad(pad)),
            device=options.find_device(model, device),
            seed=generator.initial_seed() if generator else torch.initial_seed(),
            nonfinite=options.choose("nonfinite", nonfinite, NonFinite),
            stopwatch=stopwatch,
            process_group=process_group,
            overlap=options.check_flag("overlap", overlap),
        )
        self._pipeline = pipeline = Pipeline(setup)
        messages.warn_of_sampler(setup)
        self._state = LoaderState(pipeline)
        silent = options.check_flag("quiet", quiet)
        self._epochs = Epochs(pipeline, self._state, silent)
        self._thread = threading.get_ident() if strategy.scores else None
        self._ignored, self._smoothing = ignored_label(loss_fn), label_smoothing(loss_fn)
        # Class weights and such a sampler shift the probabilities that the model learns.
        weighs = loss_fn is not None and class_weights(loss_fn) is not None
        self._calibrated = not (weighs or setup.source.balances)

    @property
    def dataset(self) -> Any:
        """The data set of the wrapped loader."""
        return self._source.loader.dataset

    @property
    def sampler(self) -> Any:
        """The sampler of the wrapped loader."""
        return self._source.loader.sampler

    @property
    def batch_size(self) -> int | None:
        """Number of rows in a full training batch; None if your batches are passed on unchanged."""
        return self._setup.shape.batch_size

    @property
    def strategy(self) -> Strategy:
        """What is selected, and when."""
        return self._setup.strategy

    @property
    def loss_fn(self) -> Callable[[Any, Any], Any]:
        """Your loss, wrapped so that it also weights and records losses; call it in your loop.

        A loss belongs to the batch that the loader handed out last, row by row, in order. So read
        this attribute before the loop, and compute the loss of a batch before you take the next.
        You may cast, encode or flatten the targets. If you compute the loss in parts, pass slices
        of the batch's own targets, or changed targets in order, and all of them. If your loop takes
        batches ahead, pass `with_selection` to the loader, and weight and record losses yourself.

        Each loss is multiplied by the weight of its row, and the sum divided as in your loss: with
        row weights of 1 you get your own loss, except 0 instead of NaN if all targets are ignored.
        The first call of a loss that is no module of torch compares the two.

        The recorded loss of a row is the mean over its tokens or pixels. For strategies that need
        cross-entropies, such as `auto`, the effect of label smoothing, class weights and soft
        targets is removed: a loss as low as possible is recorded as 0.

        Your loss is called unchanged, and nothing is recorded, with gradients off, with the model
        in eval mode, or if the strategy neither weights nor remembers rows. If this happens for a
        whole epoch, as after a forgotten `model.train()`, the next one raises a `LossError`, once
        there were more than 8 such batches.

        Raises:
            ConfigurationError: if the loader was built without a loss.
            LossError: when it is called, if a loss may belong to other examples, or if the wrapped
                loss with row weights of 1 differs from yours.
        """
        if self._epochs.loss is None:
            if self._setup.loss_fn is None:
                raise ConfigurationError(
                    "the loader was built with no loss function: pass your loss as loss_fn"
                )
            weighs = self._setup.strategy.selector.terms.reweights or self.ledger is not None
            works = weighs or self._pipeline.feed is not None
            self._epochs.loss = WeighingLoss(
                self._setup.loss_fn,
                self.record if works else None,
                self._setup.model,
                weighs=weighs,
                confidence=self._setup.strategy.selector.terms.confidence,
            )
        return self._epochs.loss

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that the next iteration begins or, from a state, continues."""
        return self._state.next_epoch

    @property
    def progress(self) -> float | None:
        """The fraction of training that is done, in [0, 1]; None if unknown.

        If your data loader has no length, the fraction changes only between epochs.
        """
        if self._epochs.handshake is not None and self._source.batches:
            return self._setup.progress.at(0, self.candidate_batches or 0)
        cursor = self._pipeline.cursor
        return self._setup.progress.at(max(0, cursor.epoch), cursor.drawn)

    @property
    def candidate_batches(self) -> int | None:
        """The number of batches that your data loader has offered; None if it has no length.

        A past epoch counts with all its batches, even if your loop left it early. With several
        processes, all get the same number: that of the process that has come least far.
        """
        if self._source.batches is None:
            return None
        lockstep = self._pipeline.lockstep
        if lockstep is None:
            return self._pipeline.drawn()
        lockstep.settle()
        return lockstep.drawn

    @property
    def planned_batches(self) -> int | None:
        """The number of your data loader's batches in all `epochs`; None if unknown."""
        epochs, batches = self._setup.progress.epochs, self._source.batches
        return None if epochs is None or batches is None else round(epochs * batches)

    @property
    def agreement(self) -> Agreement | None:
        """The last check of an approximate scorer against exact scores; None if there was none."""
        scorer = self._pipeline.scorer
        return None if scorer is None else scorer.agreement

    @property
    def ledger(self) -> Ledger | None:
        """The memory of each example's scores; None for a strategy that remembers nothing."""
        memory = self._pipeline.memory
        return None if memory is None else memory.ledger

    @property
    def class_visits(self) -> ClassVisits | None:
        """How often each class was trained on; None if classes are not known.

        `auto` knows the classes if the targets of `loss_fn` are class indices, floats of 0 (no) and
        1 (yes), or probabilities of classes (the likeliest class counts). Reading this makes the
        CPU wait for the GPU. With several processes, the running epoch is not yet counted.
        """
        return None if self.ledger is None else self.ledger.class_visits

    @property
    def stats(self) -> Stats:
        """The counts of examples so far, as one frozen snapshot."""
        return self._state.stats

    @property
    def scores(self) -> ScoreStats | None:
        """Statistics of the remembered scores, as the epoch began, or else of recent scores.

        None before there are any. Reading this makes the CPU wait for the GPU.
        """
        memory, history = self._pipeline.memory, self._pipeline.history
        epoch_scores = None if memory is None else memory.epoch_scores
        known = None if epoch_scores is None else epoch_scores.past.summary()
        return history.summary() if known is None and history is not None else known

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch's number in this loader and your sampler, batch sampler or data set.

        Numbers begin at 0. If the loader was about to continue another epoch, from a saved state or
        because your loop left it in the middle, the rest of that epoch is given up.
        """
        epoch = options.check_whole("epoch", epoch, least=0)
        self._state.set_epoch(epoch)
        self._source.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of batches of the running epoch or, between epochs, of the next one.

        A strategy that draws by remembered scores, such as `auto`, knows it once the previous epoch
        has ended, unless your data loader drops its last batch. With a subset, a sampler of your
        own is taken to draw each example once, unless its attribute `replacement` is True.

        Raises:
            TypeError: if the number is not known in advance.
        """
        return self._epochs.length()

    def lengths(self, epochs: int) -> list[int]:
        """Return the number of batches of each of `epochs` epochs; TypeError if unknown.

        The first of these epochs is the running one or, between epochs, the next one.
        """
        return self._epochs.lengths(options.check_whole("epochs", epochs, least=0))

    def __bool__(self) -> bool:
        """Return True, since an empty data loader cannot be wrapped."""
        return True

    def __reduce__(self) -> NoReturn:
        """Raise a TypeError: a copy would score with another model than the one in training."""
        raise TypeError(
            "a SelectiveLoader cannot be pickled: it scores with the model in training. Build it "
            "in the process that trains, and call load_state_dict(loader.state_dict()) there."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> "SelectiveLoader":
        """Return a copy with copies of all parts, including the model; it has no running epoch."""
        memo[id(self)] = clone = object.__new__(type(self))
        vars(clone).update(copy.deepcopy(vars(self), memo))
        clone._epochs.break_off()
        return clone

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the next epoch, which begins when the first batch is taken.

        Raises:
            ConfigurationError: if the strategy weights rows or uses recorded losses, but you have
                neither taken `loss_fn` from this loader nor passed `with_selection=True`.
        """
        if self._epochs.loss is None:
            if not self._setup.with_selection:
                messages.check_use(self._setup.strategy)
            messages.warn_of_loss(self._setup.strategy, self._setup.loss_fn)
        return Epoch(self._epochs.begin, self._thread)

    def record(
        self,
        selection: Selection,
        losses: Tensor,
        outputs: tuple[Any, Any] | None = None,
        *,
        targets: Any = None,
        smoothing: float | None = None,
    ) -> None:
        """Record the losses of a training step, for strategies that select by recorded losses.

        `loader.loss_fn` does this by itself. Recorded losses are used from the next epoch on, but
        a gate, which decides when to select, reads them at once. Other strategies ignore them.

        Args:
            selection: the selection that this loader yielded with the batch, or a part of it.
            losses: one loss per row of the selection, `[row]`, not multiplied by the row's weight.
            outputs: the pair `(outputs, targets)` of these rows, for `wrong_labels` and `kath18`.
            targets: the targets of these rows, by default those in `outputs`. `auto` reads each
                example's class from them, as `class_visits` says, and warns if there are none. A
                row has no target if its loss is 0 and its targets are all ignored by `loss_fn`, or
                NaN.
            smoothing: label smoothing of your loss, for `wrong_labels`; by default of `loss_fn`.

        Raises:
            LossError: if the numbers of losses and rows differ, if losses on the CPU are not finite
                and `nonfinite="raise"`, or if the strategy needs cross-entropies and gets others.
            LoaderError: if `selection` is not a `Selection`, or its rows have no indices.
        """
        if not isinstance(selection, Selection):
            raise LoaderError(
                "record needs the selection that the loader yields with with_selection=True, not a "
                f"{type(selection).__name__}: for (inputs, targets), selection in loader"
            )
        pipeline = self._pipeline
        given = options.check_number("smoothing", smoothing, least=0, below=1, optional=True)
        smoothing = self._smoothing if given is None else given
        if self._epochs.loss is not None:
            self._epochs.loss.used = True
        if targets is None and outputs is not None:
            targets = outputs[1]
        if self._ignored != IGNORED:  # it might be taken for a class
            targets = without_ignored(self._ignored, targets)
            if outputs is not None:
                outputs = outputs[0], without_ignored(self._ignored, outputs[1])
        if pipeline.memory is not None:
            policy, epoch = self._setup.nonfinite, max(0, pipeline.cursor.epoch)
            shown = outputs if self._calibrated else None
            pipeline.memory.record(selection, losses, policy, epoch, targets, shown, smoothing)
        if pipeline.feed is not None:
            pipeline.tally["observed"] += pipeline.feed.take(selection, losses, outputs)

    @property
    def wrong_labels(self) -> WrongShare | None:
        """The share of labels that look wrong, with its 95 % interval; None if it is not estimated.

        `auto` estimates it in the second half of the first epoch, from the outputs that `loss_fn`
        gets, and targets that are class indices, or floats of 0 and 1. Only labels that the model
        finds improbable count, so mix-ups between classes that look alike are missed. Nothing is
        estimated if examples are stored by class and not shuffled, if the loss weighs classes, or
        if a `WeightedRandomSampler` draws. If examples are few, it may be clear by chance.
        """
        return None if self.ledger is None else self.ledger.wrong_labels

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state after the last batch that your training loop received.

        It includes the examples that wait to fill a batch. In the middle of an epoch, also after
        `break` or an error, training continues with the rest of that epoch; `set_epoch` and a new
        epoch give this rest up. If examples have no indices and your data loader cannot save its
        position, training continues with a new epoch. `torch.load(weights_only=True)` can read it.

        Raises:
            BatchError: if waiting examples contain objects that cannot be saved.
        """
        return self._state.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict()`; its tensors may be on any device.

        `auto` then warns if more than a tenth of the first examples have another class than before.

        Raises:
            ConfigurationError: if the state is damaged, or comes from an incompatible release or a
                loader that was built differently. The loader is then unchanged.
        """
        self._state.load_state_dict(state, self._epochs.close)
        self._epochs.messages.said |= 1  # the line that is printed when training begins
