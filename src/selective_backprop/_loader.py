"""The door: a data loader that yields full batches of the examples worth training on."""

import warnings
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from selective_backprop._batches import Layout
from selective_backprop._checks import (
    check_fit,
    check_length,
    check_paths,
    check_strategy,
    choose,
    find_device,
    full_batch,
    full_window,
)
from selective_backprop._context import Context
from selective_backprop._draw import DrawState, IndexDraw, PhaseClock
from selective_backprop._epoch import Epoch
from selective_backprop._errors import ConfigurationError, LoaderError, SelectionWarning
from selective_backprop._finite import FiniteGuard, NonFinite
from selective_backprop._funnel import (
    Funnel,
    FunnelState,
    Leftovers,
    Rows,
    Shape,
)
from selective_backprop._history import History
from selective_backprop._losses import LossFunction, find_losses
from selective_backprop._outlook import Outlook, Progress, Start
from selective_backprop._pipeline import Pipeline, Position
from selective_backprop._ranks import find_ranks
from selective_backprop._schedule import Interludes
from selective_backprop._selection import Draw, Selection
from selective_backprop._source import open_source
from selective_backprop._stats import Stats
from selective_backprop._stopwatch import Stopwatch
from selective_backprop._strategies import Strategy
from selective_backprop._types import LossesOf, OutputsOf

STATE_VERSION = 1


class SelectiveLoader:
    """Wrap a data loader so that it yields full batches of the examples worth training on.

    Iterate it in the loader's place; the rest of the loop stays as it was. Each candidate batch
    is scored by the model as it is at that moment, examples are chosen, and chosen examples
    wait until there is a full training batch of them. Strategies that need no scores choose
    before anything is loaded, so that what they skip is never read.

    Scoring leaves the model's modes and buffers, and every random stream, as they were. The
    loader that was passed in is not changed and can be used beside this one.

    Args:
        loader: a `torch.utils.data.DataLoader`, of any data set, sampler and collate function.
        model: the model in training. It scores candidates, and its device is where they go.
        loss_fn: the loss of `(outputs, targets)`, a module or function with a `reduction`, or
            one that returns a loss per example. May be None where `losses` is given or
            nothing is scored.
        strategy: what to select and when, such as `selective_backprop(rate=1/3)`.
        losses: `callable(model, batch)` that returns one loss per example, `[candidate]`: for
            batches that are no pair `(inputs, targets)`.
        outputs: `callable(model, batch)` that returns `(outputs, targets)` for `loss_fn`.
        batch_size: rows of a training batch; by default as many as the loader's.
        epochs: how long training will be, in epochs; needed by strategies that select during a
            fraction of it.
        progress: `callable()` that returns the fraction of training done, where something else
            than epochs ends it; called when indices are drawn, so with workers a little early.
        leftovers: what becomes of an incomplete window or batch at an epoch's end: `"carry"`
            keeps it for the next epoch, `"flush"` trains on a proportional short batch,
            `"drop"` lets it go.
        with_selection: yield `(batch, selection)`, with each row's data-set index and weight.
        pad: right-padding value by path in the batch, for tensors of varying trailing length.
        whole: paths in the batch that belong to it as a whole, not row by row.
        device: where candidates are moved before they are scored, and yielded.
        generator: its initial seed is the draws' seed; by default `torch.initial_seed()` is.
            Neither is moved.
        nonfinite: what to do with losses that are infinite or not a number: `"raise"`,
            `"skip"` such examples, or `"select"` them.
        stopwatch: charged with the seconds spent on `"load"`, `"score"` and `"select"`.

    Raises:
        ConfigurationError: if an option, or a combination of them, cannot work.
        LoaderError: if the loader cannot be wrapped, or not with this strategy.

    Example:
        >>> import torch, selective_backprop as sb
        >>> data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.arange(64) % 2)
        >>> model, loss_fn = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss()
        >>> loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        >>> strategy = sb.selective_backprop(rate=1 / 2, warmup_epochs=0)
        >>> loader = sb.SelectiveLoader(loader, model, loss_fn, strategy)
        >>> [len(targets) for inputs, targets in loader]
        [8, 8, 8, 8]
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
    ) -> None:
        if isinstance(loader, SelectiveLoader):
            raise LoaderError("the loader is a SelectiveLoader already; wrap the one inside it")
        source = open_source(loader)
        strategy = check_strategy(strategy)
        terms = strategy.selector.terms
        check_fit(strategy, source, with_selection)
        check_length(strategy, source, epochs, progress)
        ranks = find_ranks()
        batch = full_batch(source, batch_size, terms)
        window = full_window(batch or 1, terms)
        exact = terms.draw is Draw.EXACT
        shape = Shape(
            batch,
            window if exact else None,
            unchanged=batch is None or batch == source.batch_size,
            keeps_everything=terms.keeps_everything,
        )
        self._source, self._strategy, self._shape = source, strategy, shape
        self._progress = Progress(source, epochs, progress)
        self._with_selection = with_selection
        kept = choose(Leftovers, "leftovers", leftovers)
        policy = choose(NonFinite, "nonfinite", nonfinite)
        layout = Layout(check_paths("whole", whole), dict(pad or {}))
        place = find_device(model, device)
        seed = generator.initial_seed() if generator else torch.initial_seed()
        context = Context(
            batch_size=batch or 1,
            window=shape.window,
            model=model,
            losses=None if strategy.scorer is None else find_losses(loss_fn, losses, outputs),
            outputs=outputs,
            device=place,
            examples=source.examples,
            ranks=ranks,
        )
        self._selector = strategy.selector.start(context)
        self._history = History(max(terms.history * ranks.size, window)) if terms.history else None
        plain_every = strategy.schedule.plain_every
        interludes = Interludes(plain_every, batch_size=batch or 1, window=window)
        self._clock = PhaseClock(strategy.schedule, interludes, self._progress.at)
        early = Funnel(
            self._selector, shape, history=None, layout=Layout(), seed=(seed, ranks.rank, 0)
        )
        late = Funnel(
            self._selector, shape, history=self._history, layout=layout, seed=(seed, ranks.rank, 1)
        )
        self._funnels = early, late
        first = early if strategy.scorer is None else None
        draw = None
        if source.indexed:
            draw = IndexDraw(source.indices(), self._clock, first, kept)
        self._pipeline = Pipeline(
            candidates=source.copy_with(draw),
            draw=draw,
            clock=self._clock,
            scorer=None if strategy.scorer is None else strategy.scorer.start(context),
            finite=FiniteGuard(policy, layout),
            funnel=late,
            layout=layout,
            leftovers=kept,
            counts=with_selection
            or strategy.scorer is not None
            or not (terms.keeps_everything and shape.unchanged),
            device=place,
            stopwatch=stopwatch,
        )
        self._outlook = Outlook(
            source,
            strategy.schedule,
            interludes,
            self._progress,
            shape,
            kept,
            skips=strategy.scorer is not None and policy is NonFinite.SKIP,
        )
        self._position = Position()
        self._tally: dict[str, Any] = asdict(Stats())
        self._next_epoch = 0
        self._live: weakref.ref[Epoch] | None = None
        self._start: Start | None = None  # of the epoch that runs

    @property
    def dataset(self) -> Any:
        """The data set of the loader inside."""
        return self._source.loader.dataset

    @property
    def sampler(self) -> Any:
        """The sampler of the loader inside."""
        return self._source.loader.sampler

    @property
    def batch_size(self) -> int | None:
        """Rows of a full training batch; None if batches are passed on as they come."""
        return self._shape.batch_size

    @property
    def strategy(self) -> Strategy:
        """What is selected, and when."""
        return self._strategy

    @property
    def progress(self) -> float | None:
        """The fraction of training whose candidates have arrived, in [0, 1]; None if unknown."""
        return self._progress.at(max(0, self._position.epoch), self._position.drawn)

    @property
    def stats(self) -> Stats:
        """How many examples went where so far: one frozen snapshot."""
        waits = self._pipeline.waits(self._position)
        now = {
            "waiting": waits.candidates + waits.rows,
            "dropped": waits.dropped,
            "nonfinite": self._pipeline.finite.skipped,
        }
        return Stats(**self._tally | now)

    def set_epoch(self, epoch: int) -> None:
        """Number the next epoch, here and in the sampler, batch sampler or data set inside."""
        self._next_epoch = epoch
        loader = self._source.loader
        told: list[Any] = []
        for part in (
            loader.batch_sampler,
            getattr(loader.batch_sampler, "sampler", None),
            loader.sampler,
            loader.dataset,
        ):
            tell = getattr(part, "set_epoch", None)
            if tell is not None and not any(part is other for other in told):
                told.append(part)
                tell(epoch)

    def __len__(self) -> int:
        """Return the number of batches of the coming epoch, or of the one that runs.

        Raises:
            TypeError: if it cannot be known in advance.
        """
        return self._outlook.batches(self._start or self._starts_at(self._next_epoch))

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the coming epoch, which starts at its first `next`."""
        return Epoch(self._begin)

    def _starts_at(self, epoch: int) -> Start:
        position = self._position
        return Start(epoch, position.draw.interludes, self._pipeline.waits(position))

    def _begin(self, epoch: Epoch | None) -> Generator[Any]:
        """Make `epoch` the only pass that lives, and return its batches."""
        live = None if self._live is None else self._live()
        if live is not None:
            live.close()
        # Weakly, so that a loop which breaks off frees its iterator, and that its workers.
        self._live = None if epoch is None else weakref.ref(epoch)
        return self._run()

    def _run(self) -> Generator[Any]:
        """Yield the coming epoch's batches."""
        number, self._next_epoch = self._next_epoch, self._next_epoch + 1
        self._start = self._starts_at(number)
        self._tally["epoch"] = number
        before = dict(self._tally)
        try:
            for rows in self._pipeline.run(number, self._position, self._count):
                self._count(kept=rows.count, batches=1)
                yield self._hand_out(rows)
            self._note_ties()
            self._warn_if_barren(before)
        finally:
            self._start = None

    def _count(self, **increments: int) -> None:
        for name, more in increments.items():
            self._tally[name] += more

    def _hand_out(self, rows: Rows) -> Any:
        if not self._with_selection:
            return rows.batch
        weights = rows.weights
        if weights is None:
            weights = torch.ones(rows.count, device=self._pipeline.device)
        return rows.batch, Selection(rows.indices, weights)

    def _note_ties(self) -> None:
        if self._history is not None and len(self._history):
            self._tally["ties"] = self._history.tie_share()

    def _warn_if_barren(self, before: dict[str, Any]) -> None:
        after = self.stats
        came = after.candidates - before["candidates"]
        if not came:
            raise LoaderError("the loader yielded nothing: no candidate came up in this epoch")
        if after.batches == before["batches"]:
            warnings.warn(
                f"epoch {after.epoch} yielded no training batch: of {came} candidates "
                f"{after.waiting} wait for a full window or batch. {after.ties:.0%} of the recent "
                "scores are ties, which are never above one another.",
                SelectionWarning,
                stacklevel=4,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer of the batches stands, waiting rows included.

        The sampler's own position is not part of it: after loading, the next iteration begins a
        new epoch.
        """
        pipeline, position = self._pipeline, self._position
        return {
            "version": STATE_VERSION,
            "built": self._built(),
            "seed": self._pipeline.funnel.seed[0],
            "next_epoch": self._next_epoch,
            "drawn": position.drawn,
            "interludes": position.draw.interludes,
            "early": position.draw.funnel.pack(),
            "late": pipeline.funnel.state.pack(),
            "history": None if self._history is None else self._history.state_dict(),
            "scorer": None if pipeline.scorer is None else pipeline.scorer.state_dict(),
            "selector": self._selector.state_dict(),
            "skipped": pipeline.finite.skipped,
            "stats": dict(self._tally),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`.

        Raises:
            ConfigurationError: if the state is of another version, or of a loader that was
                built otherwise; the difference is named.
        """
        if state["version"] != STATE_VERSION:
            raise ConfigurationError(
                f"the state has version {state['version']}; this release reads {STATE_VERSION}"
            )
        for name, value in self._built().items():
            if state["built"][name] != value:
                raise ConfigurationError(
                    f"the state is of a loader with {name}={state['built'][name]}, this one has "
                    f"{name}={value}"
                )
        self._begin(None)
        for funnel in self._funnels:
            funnel.seed = (state["seed"], *funnel.seed[1:])
        self._next_epoch = state["next_epoch"]
        self._tally = asdict(Stats(**state["stats"]))
        draw = DrawState(tuple(state["interludes"]), FunnelState.unpack(state["early"]))
        self._position = Position(
            self._tally["epoch"], state["drawn"], draw, scored=self._tally["scored"] > 0
        )
        self._clock.interludes.state = draw.interludes
        self._pipeline.funnel.state = FunnelState.unpack(state["late"])
        self._pipeline.finite.skipped = state["skipped"]
        self._selector.load_state_dict(state["selector"])
        if self._history is not None:
            self._history.load_state_dict(state["history"])
        if self._pipeline.scorer is not None:
            self._pipeline.scorer.load_state_dict(state["scorer"])

    def _built(self) -> dict[str, Any]:
        return {
            "strategy": repr(self._strategy),
            "batch_size": self._shape.batch_size,
            "examples": self._source.examples,
        }
