"""The door: a data loader that yields full batches of the examples worth training on."""

import warnings
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from selective_backprop._agreement import Agreement
from selective_backprop._assembly import Wishes, assemble
from selective_backprop._batches import Layout
from selective_backprop._checks import (
    check_fit,
    check_length,
    check_paths,
    check_state,
    check_strategy,
    choose,
    find_device,
)
from selective_backprop._epoch import Epoch
from selective_backprop._errors import LoaderError, SelectionWarning
from selective_backprop._finite import NonFinite
from selective_backprop._funnel import FunnelState, Leftovers, Rows
from selective_backprop._losses import LossFunction
from selective_backprop._midway import Midway
from selective_backprop._outlook import Progress, Start
from selective_backprop._packing import on_device
from selective_backprop._pipeline import Position
from selective_backprop._selection import Selection
from selective_backprop._source import open_source
from selective_backprop._stats import Stats
from selective_backprop._stopwatch import Stopwatch
from selective_backprop._types import LossesOf, OutputsOf
from selective_backprop.scorers import Agreeing
from selective_backprop.strategies import Strategy

STATE_VERSION = 4


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
        process_group: the `torch.distributed` processes that share the data; by default all.
            They train on equally many batches, chosen against one history.

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
        process_group: Any = None,
    ) -> None:
        if isinstance(loader, SelectiveLoader):
            raise LoaderError("the loader is a SelectiveLoader already; wrap the one inside it")
        strategy = check_strategy(strategy)
        source = open_source(loader)
        if strategy.subset is not None:
            source = source.within(strategy.subset)
        check_fit(strategy, source, with_selection, losses, outputs)
        check_length(strategy, source, epochs, progress)
        wishes = Wishes(
            model=model,
            loss_fn=loss_fn,
            losses=losses,
            outputs=outputs,
            batch_size=batch_size,
            leftovers=choose(Leftovers, "leftovers", leftovers),
            with_selection=with_selection,
            layout=Layout(check_paths("whole", whole), dict(pad or {})),
            device=find_device(model, device),
            seed=generator.initial_seed() if generator else torch.initial_seed(),
            nonfinite=choose(NonFinite, "nonfinite", nonfinite),
            stopwatch=stopwatch,
            process_group=process_group,
        )
        self._source, self._strategy, self._wishes = source, strategy, wishes
        self._progress = Progress(source, epochs, progress)
        self._parts = assemble(source, strategy, self._progress, wishes)
        self._position = Position()
        self._tally: dict[str, Any] = asdict(Stats())
        self._next_epoch = 0
        self._live: weakref.ref[Epoch] | None = None
        self._start: Start | None = None  # of the epoch that runs
        self._began: dict[str, Any] = {}
        self._midway: Midway | None = None  # of an epoch that is to go on

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
        return self._parts.shape.batch_size

    @property
    def strategy(self) -> Strategy:
        """What is selected, and when."""
        return self._strategy

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that the next iteration begins, or goes on with."""
        return self._next_epoch

    @property
    def progress(self) -> float | None:
        """The fraction of training whose candidates have arrived, in [0, 1]; None if unknown."""
        return self._progress.at(max(0, self._position.epoch), self._position.drawn)

    @property
    def agreement(self) -> Agreement | None:
        """What the last check of a cheap scorer found; None before, or where none is checked."""
        scorer = self._parts.scorer
        return scorer.agreement if isinstance(scorer, Agreeing) else None

    @property
    def stats(self) -> Stats:
        """How many examples went where so far: one frozen snapshot."""
        stands = self._starts_at(self._next_epoch)
        now = {
            "waiting": stands.waiting,
            "dropped": stands.dropped,
            "nonfinite": self._parts.pipeline.finite.skipped,
        }
        return Stats(**self._tally | now)

    def set_epoch(self, epoch: int) -> None:
        """Number the next epoch, here and in the sampler, batch sampler or data set inside.

        The rest of another epoch that was to go on is left out.
        """
        if epoch != self._next_epoch:
            self._midway = None
        self._next_epoch = epoch
        self._source.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of batches of the coming epoch, or of the one that runs.

        Raises:
            TypeError: if it cannot be known in advance.
        """
        running = self._start if self._midway is None else self._midway.start
        accord, start = self._parts.accord, running or self._starts_at(self._next_epoch)
        if accord is None:
            return self._parts.outlook.batches(start)
        return accord.foresee(start) if running is None else accord.batches

    def lengths(self, epochs: int) -> list[int]:
        """Return the number of batches of each of the next epochs.

        Raises:
            TypeError: if they cannot be known in advance.
        """
        return self._parts.outlook.lengths(self._starts_at(self._next_epoch), epochs)

    def __bool__(self) -> bool:
        """Return True: a loader that would yield nothing is refused when it is wrapped."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the coming epoch, which starts at its first `next`."""
        return Epoch(self._begin)

    def record(self, selection: Selection, losses: Tensor) -> None:
        """Remember losses that training computed anyway, for strategies that select by them.

        They count from the next epoch on. A strategy that remembers nothing lets them pass, so
        that one loop serves them all.

        Args:
            selection: of a batch that this loader yielded, or a part of it.
            losses: one loss per row of it, `[row]`, not yet weighted; their gradients are left
                alone.

        Raises:
            LossError: if they are not one loss per row, or not finite where that is to raise.
            LoaderError: if the rows have no indices.
        """
        memory = self._parts.pipeline.memory
        if memory is not None:
            epoch = max(0, self._position.epoch)
            memory.record(selection, losses, self._wishes.nonfinite, epoch)

    def _starts_at(self, epoch: int) -> Start:
        draw, late = self._position.draw, self._parts.pipeline.funnel.state
        held = self._parts.held
        count = 0 if held is None else held.count
        return Start(epoch, draw.interludes, draw.funnel, late, draw.gathered, count)

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
        midway, self._midway = self._midway, None
        self._start = self._starts_at(number) if midway is None else midway.start
        self._tally["epoch"] = number
        self._began = dict(self._tally) if midway is None else midway.counted
        accord, pipeline = self._parts.accord, self._parts.pipeline
        try:
            if accord is not None:
                accord.open(self._start, begun=midway is not None)
            for rows in pipeline.run(number, self._position, self._count, midway):
                self._count(kept=rows.count, batches=1)
                yield self._hand_out(rows)
            came = self._tally["candidates"] - self._began["candidates"]
            if accord is not None:
                self._count(beyond=accord.beyond(came))
            self._note_ties()
            self._warn_if_barren(came)
        finally:
            self._start = None

    def _count(self, **increments: int) -> None:
        for name, more in increments.items():
            self._tally[name] += more

    def _hand_out(self, rows: Rows) -> Any:
        if not self._wishes.with_selection:
            return rows.batch
        weights = rows.weights
        if weights is None:
            weights = torch.ones(rows.count, device=self._wishes.device)
        return rows.batch, Selection(rows.indices, weights)

    def _note_ties(self) -> None:
        history = self._parts.history
        if history is not None and len(history):
            self._tally["ties"] = history.tie_share()

    def _warn_if_barren(self, came: int) -> None:
        after = self.stats
        if not came and not self._parts.cut:
            raise LoaderError("the loader yielded nothing: no candidate came up in this epoch")
        if after.batches == self._began["batches"]:
            warnings.warn(
                f"epoch {after.epoch} yielded no training batch: of {came} candidates "
                f"{after.waiting} wait for a full window or batch. {after.ties:.0%} of the recent "
                "scores are ties, which are never above one another.",
                SelectionWarning,
                stacklevel=4,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer of the batches stands, waiting rows included.

        Taken between two batches, it is of the middle of an epoch: the next iteration then yields
        the rest of that epoch, and what came up before is drawn once more but not loaded. Taken
        when an epoch is over, or was broken off, or of a stream whose loader does not know where
        it stands, the next iteration begins a new one. `torch.load(weights_only=True)` reads it.

        Raises:
            BatchError: if rows wait that cannot be saved.
        """
        parts, midway = self._parts, self._midway
        if self._start is not None and parts.pipeline.arrivals.can_go_on:
            midway = parts.pipeline.midway(self._start, self._began, self._position)
        return {
            "version": STATE_VERSION,
            "built": self._built(),
            "seed": parts.early.seed[0],
            "next_epoch": self._next_epoch if midway is None else midway.start.epoch,
            "midway": None if midway is None else midway.pack(),
            "position": self._position.pack(),
            "late": parts.pipeline.funnel.state.pack(),
            "held": FunnelState(chosen=() if parts.held is None else (parts.held,)).pack(),
            "skipped": parts.pipeline.finite.skipped,
            "stats": dict(self._tally),
            "parts": {name: part.state_dict() for name, part in self._stateful()},
        }

    def _stateful(self) -> Iterator[tuple[str, Any]]:
        """Yield what has a state of its own, by name."""
        for name in ("selector", "scorer", "gate", "history", "ledger", "journal"):
            part = getattr(self._parts, name)
            if part is not None:
                yield name, part

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`, with tensors on whichever device they were loaded to.

        Raises:
            ConfigurationError: if the state is of another version, or of a loader that was
                built otherwise; the difference is named.
        """
        check_state(state, STATE_VERSION, self._built())
        self._begin(None)
        parts, device = self._parts, self._wishes.device
        for name, part in self._stateful():
            moves = device if name in ("history", "ledger") else None  # which live with the scores
            part.load_state_dict(on_device(state["parts"][name], moves))
        for funnel in (parts.early, parts.pipeline.funnel):
            funnel.seed = (state["seed"], *funnel.seed[1:])
        self._next_epoch = state["next_epoch"]
        self._midway = None if state["midway"] is None else Midway.unpack(state["midway"])
        self._tally = asdict(Stats(**state["stats"]))
        self._position = Position.unpack(state["position"], self._tally)
        parts.clock.interludes.state = self._position.draw.interludes
        parts.pipeline.funnel.state = FunnelState.unpack(state["late"], device)
        parts.pipeline.finite.skipped = state["skipped"]
        if parts.accord is not None:
            parts.accord.turns.held = next(
                iter(FunnelState.unpack(state["held"], device).chosen), None
            )

    def _built(self) -> dict[str, Any]:
        return {
            "strategy": repr(self._strategy),
            "batch_size": self._parts.shape.batch_size,
            "examples": self._source.examples,
            "rank": self._parts.ranks.rank,
            "ranks": self._parts.ranks.size,
            "leftovers": str(self._wishes.leftovers),
        }
