"""Build the stages between a data loader and a training loop."""

from dataclasses import dataclass, replace
from functools import partial

from selective_backprop import scorers
from selective_backprop._batches.losses import average_examples, find_losses, find_outputs
from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._distributed.group import Alone, Group, Ranks, find_ranks
from selective_backprop._distributed.messages import Exchange
from selective_backprop._loader.epoch_sync import EpochHandshake
from selective_backprop._memory.history import History, SharedHistory
from selective_backprop._memory.ledger import Ledger
from selective_backprop._memory.pending_updates import PendingUpdates, find_sharers, held_by
from selective_backprop._pipeline.candidate_loader import CandidateLoader
from selective_backprop._pipeline.epoch_draw import EpochDraw
from selective_backprop._pipeline.epoch_length import LengthPlanner
from selective_backprop._pipeline.gate_feed import feed_of
from selective_backprop._pipeline.index_sampler import IndexSampler
from selective_backprop._pipeline.lockstep import LockstepBatches
from selective_backprop._pipeline.nonfinite import FiniteGuard, NonFinite
from selective_backprop._pipeline.options import LoaderOptions
from selective_backprop._pipeline.phases import PhasePlanner, Progress
from selective_backprop._pipeline.rows import Rows, Shape
from selective_backprop._pipeline.score_memory import ScoreMemory
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._pipeline.source import Source
from selective_backprop._pipeline.stages import Pipeline
from selective_backprop._pipeline.target_watch import TargetWatch
from selective_backprop._sampling.context import Context
from selective_backprop._sampling.draws import Draw
from selective_backprop.scorers import Needs, RunningScorer
from selective_backprop.scorers._abstract import scorer_parts, start_scorer
from selective_backprop.selectors import Terms
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._auto.entropies import ExcessLosses
from selective_backprop.strategies._collective import has_collective_forward

MOST_CANDIDATES = 2**53  # in a window: larger whole numbers are not exact as floats


@dataclass(frozen=True)
class LoaderParts:
    """The stages of a loader, and the objects that inspect them."""

    shape: Shape
    index_buffer: SelectionBuffer  # holds indices that are drawn before loading
    history: History | None  # None if no scores are ranked
    pipeline: Pipeline
    length_planner: LengthPlanner
    ranks: Ranks
    handshake: EpochHandshake | None  # None for a single process

    @property
    def held(self) -> Rows | None:
        """A full batch kept when another rank ended the epoch; the next epoch begins with it."""
        return None if self.pipeline.lockstep is None else self.pipeline.lockstep.held

    @property
    def cut(self) -> bool:
        """Whether another rank ended the last epoch before this one was done."""
        return self.pipeline.lockstep is not None and self.pipeline.lockstep.cut

    @property
    def ledger(self) -> Ledger | None:
        """The memory of each example's scores; None if nothing is remembered."""
        return None if self.pipeline.memory is None else self.pipeline.memory.ledger


def assemble(
    source: Source, strategy: Strategy, progress: Progress, options: LoaderOptions
) -> LoaderParts:
    """Return the stages that apply a strategy to a data loader.

    1. draw: `CandidateLoader` loads what `IndexSampler` draws, which may select before loading;
    2. score: the scorer scores what arrives, unless `ScoreMemory` knows the scores already;
    3. select: a `SelectionBuffer` draws from each window of scored candidates;
    4. fill: chosen rows wait in the same buffer for a full training batch.
    """
    terms, needs = strategy.selector.terms, strategy.needs or Needs(passes=False)
    shape, window = _sizes(source, strategy, options)
    ranks = find_ranks(options.process_group, options.device)
    skips, measured = options.nonfinite is NonFinite.SKIP, progress.measured is not None
    together = has_collective_forward(strategy, options.model, skips, ranks, measured)
    context = _context(source, strategy, shape, options)
    selector = strategy.selector.start(context)
    scorer = None if strategy.scorer is None else start_scorer(strategy.scorer, context)
    gate = None if strategy.schedule.gate is None else strategy.schedule.gate.start(context)
    memory = None
    if scorer is not None and needs.remembers and source.examples is not None:
        memory = _remember(source.examples, scorer, needs, ranks, terms)
    history = terms.history_type(max(terms.history, window) * ranks.size) if terms.history else None
    lockstep, filing = _in_step(ranks, history if needs.passes else None, window, options)
    clock = PhasePlanner(strategy.schedule, progress, gate)

    # A gate or a memory reads the scores of each batch at once, so checks cannot come later.
    on_gpu = options.device is not None and options.device.type == "cuda"
    later = on_gpu and shape.window is not None and gate is None and memory is None
    finite = FiniteGuard(options.nonfinite, options.layout, later=later)
    # Other scorers may say by themselves which rows lack a target. A CPU is not slowed by marks.
    scoring = scorer_parts(strategy.scorer) if on_gpu else [None]
    own = all(type(each).__module__.startswith(scorers.__name__) for each in scoring)
    watch = TargetWatch(context.losses if own else None)
    indexed = options.with_selection or needs.indices or memory is not None
    seed = options.seed, ranks.rank
    buffer = partial(SelectionBuffer, selector, shape, exact=terms.exact)
    keys = buffer(ranks=terms.history > 0, seed=(*seed, 0))
    rows = buffer(
        history=history,
        filing=filing,
        layout=options.layout,
        sift=finite.sift if finite.later else None,
        indexed=indexed,
        watch=watch,
        seed=(*seed, 1),
    )

    ahead, draw = _draw(source, strategy, shape, options, clock, keys, memory)
    selects_early = draw is not None and draw.selects
    unseen = terms.keeps_everything and shape.unchanged and scorer is None
    candidates = CandidateLoader(
        source.copy_with(draw),
        draw,
        clock,
        scorer if scorer is not None and needs.passes and scorer.ahead else None,
        options,
        counts=options.with_selection or not unseen,
        takes=strategy.scores or not (selects_early or unseen),
        indexed=indexed,
        watch=watch,
    )
    pipeline = Pipeline(
        candidate_loader=candidates,
        clock=clock,
        selector=selector,
        scorer=scorer,
        needs=needs,
        feed=feed_of(gate, strategy.scorer),
        memory=memory,
        history=history,
        finite=finite,
        buffer=rows,
        lockstep=lockstep,
        options=options,
    )
    length_planner = LengthPlanner(
        source,
        clock,
        shape,
        options,
        scores=scorer is not None,
        selects_before_loading=scorer is None and draw is not None,
        memory=memory,
        ahead=ahead,
    )
    parts = LoaderParts(shape, keys, history, pipeline, length_planner, ranks, None)
    return replace(parts, handshake=_handshake(parts, strategy, progress, together))


def _in_step(
    ranks: Ranks, history: History | None, window: int, options: LoaderOptions
) -> tuple[LockstepBatches | None, SharedHistory | None]:
    """Return what keeps several ranks in step, and where they file the scores that they share."""
    if not isinstance(ranks, Group):
        return None, None
    filing = None if history is None else SharedHistory(history, window, options.device)
    exchange = Exchange(ranks, 0 if history is None else window)
    return LockstepBatches(exchange, filing, overlaps=options.overlap), filing


def _draw(
    source: Source,
    strategy: Strategy,
    shape: Shape,
    options: LoaderOptions,
    clock: PhasePlanner,
    keys: SelectionBuffer,
    memory: ScoreMemory | None,
) -> tuple[EpochDraw | None, IndexSampler | None]:
    """Return what draws from all examples when an epoch begins, and what draws batch by batch."""
    terms, ahead = strategy.selector.terms, None
    if memory is not None and terms.draw is Draw.BERNOULLI:
        ahead = EpochDraw(keys)
    if not source.indexed:
        return ahead, None
    first = keys if strategy.scorer is None or memory is not None else None
    size = source.batch_size or shape.batch_size or 1
    sampler = IndexSampler(source.indices(), clock, first, options, ahead=ahead, batch_size=size)
    return ahead, sampler


def _handshake(
    parts: LoaderParts, strategy: Strategy, progress: Progress, collective_forward: bool
) -> EpochHandshake | None:
    """Return what begins an epoch on all ranks; None for a single process."""
    pipeline, ranks = parts.pipeline, parts.ranks
    lockstep, memory, options = pipeline.lockstep, pipeline.memory, pipeline.options
    if not isinstance(ranks, Group) or lockstep is None:
        return None
    built: dict[str, object] = {
        "strategy": strategy,
        "batch_size": parts.shape.batch_size,
        "window": parts.shape.window,
        "leftovers": options.leftovers,
        "nonfinite": options.nonfinite,
        "epochs": progress.epochs,
        "overlap": options.overlap,
        # ranks share scores by index, so an index must mean the same example on all ranks
        "examples": None if memory is None else progress.source.examples,
    }
    return EpochHandshake(
        ranks,
        lockstep,
        built=built,
        buffers=(parts.index_buffer, pipeline.buffer),
        history=parts.history,
        memory=memory,
        length_planner=parts.length_planner,
        collective_forward=collective_forward,
    )


def refuse_if_late(options: LoaderOptions) -> None:
    """Refuse to go on alone if a process group was formed after the loader was built."""
    if isinstance(find_ranks(options.process_group, options.device), Group):
        raise ConfigurationError(
            "the loader was built before init_process_group(), so it does not know of the other "
            "processes. Build it afterwards"
        )


def _sizes(source: Source, strategy: Strategy, options: LoaderOptions) -> tuple[Shape, int]:
    """Return the sizes for the buffers, and how many candidates a full batch is drawn from."""
    terms, batch = strategy.selector.terms, options.batch_size or source.batch_size
    if batch is None and not terms.keeps_everything:
        raise ConfigurationError(
            "the data loader does not say how many examples its batches have: pass batch_size= for "
            "the training batches"
        )
    rows = batch or 1
    if not rows / terms.rate < MOST_CANDIDATES:
        raise ConfigurationError(
            f"rate={terms.rate:g}: a batch of {rows} would be drawn from {rows / terms.rate:g} "
            "candidates, which is too many. Pass a larger rate"
        )
    window = max(rows, round(rows / terms.rate))
    exact = terms.draw is Draw.EXACT
    if exact and abs(rows / window / terms.rate - 1) > 0.01:
        warn(
            f"each batch of {rows} is drawn from {window} candidates, a whole number, so "
            f"{rows / window:.4f} of them are kept, not {terms.rate:.4f} as rate= says"
        )
    unchanged = batch is None or batch == source.batch_size
    return Shape(batch, window if exact else None, unchanged, terms.keeps_everything), window


def _context(source: Source, strategy: Strategy, shape: Shape, options: LoaderOptions) -> Context:
    """Return what scorers, selectors and gates are told."""
    losses = None
    if strategy.scores:
        average = ExcessLosses() if strategy.selector.terms.confidence else average_examples
        losses = find_losses(options.loss_fn, options.losses, options.outputs, average=average)
    return Context(
        batch_size=shape.batch_size or 1,
        window=shape.window,
        model=options.model,
        losses=losses,
        outputs=find_outputs(options.losses, options.outputs),
        device=options.device,
        examples=source.examples,
        rate=strategy.selector.terms.rate,
    )


def _remember(
    examples: int, scorer: RunningScorer, needs: Needs, ranks: Ranks, terms: Terms
) -> ScoreMemory:
    """Return a scorer's memory, or this rank's shard of it."""
    if isinstance(ranks, Alone):
        ledger = Ledger(examples, needs.depth, first=needs.first)
        return ScoreMemory(ledger, scorer, needs, confident=terms.confidence, exact=terms.exact)
    sharers = find_sharers(examples, needs.depth, ranks, first=needs.first)
    held = held_by(sharers.rank, sharers, examples)
    return ScoreMemory(
        Ledger(held, needs.depth, first=needs.first),
        scorer,
        needs,
        confident=terms.confidence,
        exact=terms.exact,
        pending=PendingUpdates(examples, needs.depth),
        sharers=sharers,
        examples=examples,
    )
