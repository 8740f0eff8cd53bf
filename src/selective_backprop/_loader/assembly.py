"""Put the stages of a loader together with the objects that look at them from outside."""

from dataclasses import dataclass, replace

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._distributed.group import Group, Ranks, find_ranks
from selective_backprop._loader.epoch_sync import EpochHandshake
from selective_backprop._memory.history import History
from selective_backprop._memory.ledger import Ledger
from selective_backprop._pipeline.epoch_length import LengthPlanner
from selective_backprop._pipeline.nonfinite import NonFinite
from selective_backprop._pipeline.options import LoaderOptions, Setup
from selective_backprop._pipeline.phases import Progress
from selective_backprop._pipeline.rows import Rows, Shape
from selective_backprop._pipeline.selection_buffer import SelectionBuffer
from selective_backprop._pipeline.source import Source
from selective_backprop._pipeline.stages import Pipeline
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._strategy import has_collective_forward


@dataclass(frozen=True)
class LoaderParts:
    """The stages of a loader, and the objects that inspect them."""

    shape: Shape
    index_buffer: SelectionBuffer  # holds indices that are drawn before loading
    history: History | None  # None if no scores are ranked
    pipeline: Pipeline
    length_planner: LengthPlanner
    ranks: Ranks
    handshake: EpochHandshake | None = None  # None for a single process

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
    """Return the stages that apply a strategy to a data loader, and what inspects them."""
    setup = Setup(source, strategy, progress, options)
    shape, ranks = setup.shape, setup.ranks
    skips, measured = options.nonfinite is NonFinite.SKIP, progress.measured is not None
    together = has_collective_forward(strategy, options.model, skips, ranks, measured)
    pipeline = Pipeline(setup)
    planner = LengthPlanner(setup, pipeline)
    parts = LoaderParts(shape, pipeline.keys, pipeline.history, pipeline, planner, ranks)
    if not isinstance(ranks, Group) or pipeline.lockstep is None:
        return parts
    built: dict[str, object] = {
        "strategy": strategy,
        "batch_size": shape.batch_size,
        "window": shape.window,
        "leftovers": options.leftovers,
        "nonfinite": options.nonfinite,
        "epochs": progress.epochs,
        "overlap": options.overlap,
        # ranks share scores by index, so an index must mean the same example on all ranks
        "examples": source.examples if setup.remembers else None,
    }
    handshake = EpochHandshake(
        ranks,
        pipeline.lockstep,
        built=built,
        buffers=(pipeline.keys, pipeline.buffer),
        history=pipeline.history,
        memory=pipeline.memory,
        length_planner=planner,
        collective_forward=together,
    )
    return replace(parts, handshake=handshake)


def refuse_if_late(options: LoaderOptions) -> None:
    """Refuse to go on alone if a process group was formed after the loader was built."""
    if isinstance(find_ranks(options.process_group, options.device), Group):
        raise ConfigurationError(
            "the loader was built before init_process_group(), so it does not know of the other "
            "processes. Build it afterwards"
        )
