"""Selection for loops that own their batch: it takes candidates and returns selected losses."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from selective_backprop._batches.losses import LossFunction, check_losses, find_losses, find_outputs
from selective_backprop._batches.serialization import on_device
from selective_backprop._batches.structure import Layout, check_layout, count_rows
from selective_backprop._core.errors import LoaderError, LossError, refuse
from selective_backprop._core.options import check_instance, check_paths, choose, find_device
from selective_backprop._core.saved_state import SEEDS, Saved, Stateful, check_state, loaded
from selective_backprop._core.stats import StepStats
from selective_backprop._core.types import (
    Float,
    LossesOf,
    OutputsOf,
    RowIndices,
    RowWeights,
    Scores,
)
from selective_backprop._distributed.group import Exchange, Group, Head, Status, compare, find_ranks
from selective_backprop._memory.history import History, load_history
from selective_backprop._pipeline.nonfinite import FiniteGuard, NonFinite
from selective_backprop._pipeline.row_checks import warn_of_axes
from selective_backprop._pipeline.rows import Rows, Shape
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Draw
from selective_backprop._sampling.schedule import Phase, Schedule
from selective_backprop.scorers._abstract import AbstractScorer, split_scored, start_scorer
from selective_backprop.scorers._agreement import Agreement
from selective_backprop.selectors._abstract import Terms
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._strategy import check_strategy, exactly, has_collective_forward

STATE_VERSION = 5
WINDOW = 2**20  # stands for any size: so long a window holds a rate to a millionth


class SelectedLosses(NamedTuple):
    """The losses of the rows that were selected from one batch.

    Attributes:
        loss: `(weights * losses).mean()`, to call `backward()` on.
        losses: one loss per selected row, `[row]`, with gradients; not weighted.
        rows: positions of the selected rows among the candidates, `[row]`.
        weights: each row's weight, `[row]`; all 1 if the strategy does not reweight.
    """

    loss: Float[Tensor, ""]
    losses: Float[Tensor, " row"]
    rows: RowIndices
    weights: RowWeights


class AbstractReuse(ABC):
    """Takes results of a step's selection pass into its training forward."""

    @abstractmethod
    def fit(self, scorer: AbstractScorer | None, model: nn.Module) -> None:
        """Refuse a scorer or a model that this cannot serve."""

    @abstractmethod
    def recording(self, candidates: int) -> AbstractContextManager[None]:
        """Return the context of a selection pass."""

    @abstractmethod
    def replaying(self, rows: RowIndices) -> AbstractContextManager[None]:
        """Return the context of the training forward of these rows of the candidates."""


class SelectiveStep:
    """Select rows of a batch of candidates, and return their losses for training.

    It is for loops that make their own batches; if a data loader does, use `SelectiveLoader`. Each
    call scores the candidates, selects the share that the strategy sets, and runs the model forward
    on the selected rows. Your loop does the backward pass and the optimiser step. To warm up, train
    on whole batches without a `SelectiveStep`.

    Args:
        model: the model that you train.
        loss_fn: as for `SelectiveLoader`, like `losses`, `outputs`, `whole`, `generator`,
            `nonfinite` and `process_group`; may be None if `losses` is given.
        strategy: what to select. A step knows of no epochs: pass `selective_backprop` the option
            `warmup_epochs=0`, and other strategies that warm up `schedule=sb.Schedule()`.
        reuse: spares most of the training forward, such as `sb.experimental.ReuseActivations()`.

    Raises:
        ConfigurationError: if an option, or a combination of them, cannot work.

    Example:
        >>> import torch, selective_backprop as sb
        >>> model, loss_fn = torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss()
        >>> strategy = sb.selective_backprop(rate=1 / 4, warmup_epochs=0)
        >>> step = sb.SelectiveStep(model, loss_fn, strategy)
        >>> selected = step((torch.randn(32, 3), torch.arange(32) % 2))
        >>> selected.loss.backward()
        >>> len(selected.rows)
        8
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction | None,
        strategy: Strategy,
        *,
        losses: LossesOf | None = None,
        outputs: OutputsOf | None = None,
        whole: Collection[str] = (),
        generator: torch.Generator | None = None,
        nonfinite: NonFinite | str = NonFinite.RAISE,
        process_group: Any = None,
        reuse: AbstractReuse | None = None,
    ) -> None:
        strategy = check_strategy(strategy)
        _check_fit(strategy)
        scorer, terms = strategy.scorer, strategy.selector.terms
        self._model, self._terms, self._device = model, terms, find_device(model, None)
        self._losses = find_losses(loss_fn, losses, outputs, marks=False)
        self._ranks = ranks = find_ranks(process_group, self._device)
        policy = choose("nonfinite", nonfinite, NonFinite)
        # Refuses a strategy whose ranks would wait for each other in unequal numbers of forwards.
        has_collective_forward(strategy, model, False, ranks)
        found = find_losses(loss_fn, losses, outputs), find_outputs(losses, outputs)
        batch_size, rate = max(1, round(WINDOW * terms.rate)), terms.rate
        context = Context(batch_size, WINDOW, model, *found, self._device, rate=rate)
        self._built = {"strategy": repr(strategy), "rank": ranks.rank, "ranks": ranks.size}
        self._scorer = None if scorer is None else start_scorer(scorer, context)
        self._selector = strategy.selector.start(context)
        self._paired = scorer is not None and scorer.needs.features
        self._layout = Layout(check_paths("whole", whole))
        self._guard = FiniteGuard(policy, self._layout)
        self._seed = generator.initial_seed() if generator else torch.initial_seed()
        self._history: History | None = None
        self._joint = None
        if ranks.size > 1 and terms.history:
            self._joint = JointHistory(ranks, {"strategy": strategy, "nonfinite": policy})
        check_instance("reuse", reuse, AbstractReuse, "ReuseActivations()", optional=True)
        if reuse is not None:
            reuse.fit(scorer, model)
        self._reuse = reuse
        self._counts = Counter(steps=0, candidates=0, kept=0)

    @property
    def stats(self) -> StepStats:
        """The counts so far, as a frozen snapshot."""
        return StepStats(**self._counts, nonfinite=self._guard.skipped)

    @property
    def agreement(self) -> Agreement | None:
        """The last check of an approximate scorer against exact scores; None if there was none."""
        return None if self._scorer is None else self._scorer.agreement

    def __call__(self, batch: Any) -> SelectedLosses:
        """Select rows of a batch of candidates, which is on the model's device.

        Raises:
            BatchError: if the batch cannot be divided into rows.
            LossError: if there is not one finite loss per row.
        """
        with nullcontext() if self._joint is None else self._joint.sharing_failure():
            candidates = count_rows(batch, self._layout)
            if not self._counts["steps"]:
                check_layout(batch, self._layout)
                warn_of_axes(batch, self._layout, candidates)
            terms, history = self._terms, self._history
            if self._joint is not None:
                opened = self._joint.open(history, terms, candidates, self._seed)
                self._history, self._seed = opened
            elif history is None and terms.history:  # not shorter than a batch
                self._history = terms.history_type(max(terms.history, candidates))
            chosen = self._select(batch, candidates, *self._score(batch, candidates))
        if self._scorer is not None:
            self._scorer.learn(chosen.batch)
        assert chosen.indices is not None
        reuse = self._reuse
        with nullcontext() if reuse is None else reuse.replaying(chosen.indices):
            losses = check_losses(self._losses(self._model, chosen.batch), chosen.count)
        self._counts.update(steps=1, candidates=candidates, kept=chosen.count)
        weights, loss = chosen.weights, losses
        if weights is None:
            weights = torch.ones(chosen.count, device=losses.device)
        else:
            loss = weights * losses
        return SelectedLosses(loss.mean(), losses, chosen.indices, weights)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming."""
        return {
            "version": STATE_VERSION,
            "built": dict(self._built),
            "seed": self._seed,
            "stats": asdict(self.stats),
            "history": self._history.state_dict() if self._history else None,
            "selector": self._selector.state_dict(),
            "scorer": None if self._scorer is None else self._scorer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()` of a step with the same strategy and rank.

        Raises:
            ConfigurationError: if the state is damaged or of another kind. The step is unchanged.
        """
        check_state("step", state, STATE_VERSION, self._built)
        names = "version", "built", "seed", "stats", "history", "selector", "scorer"
        _, _, seed, stats, past, selector, scorer = Saved(state).fields(*names)
        counts, number = asdict(stats.record(StepStats)), seed.whole(0, SEEDS - 1)
        history = past.maybe(self._read_history)
        parts: list[tuple[Stateful, Saved]] = [(self._selector, selector)]
        if self._scorer is None:
            scorer.nothing()
        else:
            parts.append((self._scorer, scorer))
        with loaded(parts):
            self._seed, self._history = number, history
            self._guard.skipped, self._counts = counts.pop("nonfinite"), Counter(counts)

    def _read_history(self, saved: Saved) -> History:
        if not self._terms.history:
            saved.nothing()
        with saved.inside():
            moved = on_device(saved.value, self._device)
        history = load_history(self._terms.history_type, Saved(moved, saved.path))
        if not len(history):
            raise saved.refuse("a history with scores")
        return history

    def _score(self, batch: Any, candidates: int) -> tuple[Scores | None, Tensor | None]:
        if self._scorer is None:
            return None, None
        with nullcontext() if self._reuse is None else self._reuse.recording(candidates):
            found = self._scorer.score(batch, None)
            scores, features = split_scored(found, candidates) if self._paired else (found, None)
            scores = check_losses(scores, candidates).detach()
        if self._joint is not None or scores.dtype in (torch.float16, torch.bfloat16):
            scores = scores.float()  # ranks send float32, and half precision would tie many scores
        return scores, features if self._terms.features else None

    def _select(
        self, batch: Any, candidates: int, scores: Scores | None, features: Tensor | None
    ) -> Rows:
        """Return the selected rows; their indices are positions among the candidates."""
        device = self._device if scores is None else scores.device
        places = torch.arange(candidates, device=device)
        # Only skipping needs places here: other policies would report them as data-set indices.
        skips = self._guard.policy is NonFinite.SKIP
        rows = Rows(batch, candidates, places if skips else None, scores, features=features)
        rows = self._guard.pass_on(rows)
        if not rows.count:
            raise LossError(f"none of {candidates} losses is finite: there is nothing to train on")
        if rows.indices is None:
            rows = rows._replace(indices=places)
        ranks = (self._ranks.rank,) if self._ranks.size > 1 else ()
        buffer = SelectionBuffer(
            self._selector,
            Shape(None, None, keeps_everything=self._terms.keeps_everything),
            history=self._history,
            filing=self._joint,
            layout=self._layout,
            seed=(self._seed, self._counts["steps"], *ranks),
        )
        return next(buffer.route(Phase.SELECT, rows))


class JointHistory:
    """Rank each rank's candidates against the scores of all ranks, by one exchange a step."""

    def __init__(self, group: Group, built: Mapping[str, object]) -> None:
        self._group, self._built = group, built
        self._history: History | None = None
        self._exchange: Exchange | None = None
        self._steps = 0

    def open(
        self, history: History | None, terms: Terms, candidates: int, seed: int
    ) -> tuple[History | None, int]:
        """Return the history to use, and the seed; at the first step agree on sizes and seed."""
        if self._exchange is None:
            mine = [candidates, 0 if history is None else history.filed, seed % 2**64]
            sizes, counts, seeds = zip(*compare(self._group, self._built, mine), strict=True)
            if len(set(counts)) > 1:
                raise LoaderError(
                    f"the ranks' histories hold {', '.join(map(str, counts))} scores; let each "
                    "rank load its own state of the same moment"
                )
            self._exchange, seed = Exchange(self._group, max(sizes)), seeds[0]
            if history is None:
                history = terms.history_type(max(terms.history, *sizes) * self._group.size)
        self._history = history
        return history, seed

    def file(self, scores: Scores) -> None:
        assert self._history is not None
        self._history.file(torch.cat(self._swap(Status.READY, scores)).to(scores.device))

    @contextmanager
    def sharing_failure(self) -> Generator[None]:
        """Run the body; if it fails before scores are filed, tell the other ranks."""
        steps = self._steps
        try:
            yield
        except Exception:
            # Before the first step, ranks do not know yet how long their messages are.
            if self._steps == steps and self._exchange is not None:
                with suppress(LoaderError):  # show the body's error, not the exchange's
                    self._swap(Status.FAILED, torch.empty(0))
            raise

    def _swap(self, status: Status, scores: Scores) -> list[Tensor]:
        assert self._exchange is not None
        head = Head(status, 0, self._steps)
        self._steps += 1
        return self._exchange.send(head, [scores[-self._exchange.rows :]])()[1]


def _check_fit(strategy: Strategy) -> None:
    needs, terms = strategy.needs, strategy.selector.terms
    memory = needs is not None and (not needs.passes or needs.indices or needs.remembers)
    ours = strategy.name == "selective-backprop"
    always = "warmup_epochs=0, and no start= or end=" if ours else "schedule=sb.Schedule()"
    other = "use SelectiveLoader, or top_k(rate=1 / 3)"
    problems = {
        f"remembers examples by their indices, and a step gets none: {other}": memory,
        "trains on a subset of the data set: draw the batches from it": strategy.subset is not None,
        f"draws a number of rows that varies: {exactly(strategy)}": terms.draw is not Draw.EXACT,
        f"changes during training, and a step does not know how far it is: {other}": terms.paced,
        f"has {strategy.schedule!r}, but a step knows of no epochs: pass it {always}, or use "
        "SelectiveLoader": strategy.schedule != Schedule(),
    }
    refuse({f"{strategy.name} {problem}": found for problem, found in problems.items()})
