"""What a loader prints and warns of while it trains."""

import math
import sys

from selective_backprop._core.errors import LoaderError, warn
from selective_backprop._loader.assembly import LoaderParts
from selective_backprop._loader.checkpoint import LoaderState
from selective_backprop._pipeline.rows import Shape
from selective_backprop._pipeline.source import Source
from selective_backprop.strategies import Strategy

EPOCHS_TO_SEE = 3  # after these, a line is printed if hardly anything is skipped
MOSTLY = 0.98  # share of examples kept so far; the line is printed if at least so many were
ORDERED = (
    "examples of one class come together, so it cannot be told how many labels look wrong; "
    "DataLoader(…, shuffle=True) mixes them"
)
LACKING = "examples without a target have no score; they are kept at the rate of the others"
UNPINNED = (
    "the CPU waits while each batch is copied to the GPU; DataLoader(…, pin_memory=True) avoids it"
)


class Messages:
    """Print lines to standard error, each once, unless `silent`, and give warnings."""

    def __init__(
        self, parts: LoaderParts, strategy: Strategy, state: LoaderState, silent: bool
    ) -> None:
        self._parts, self._strategy, self._state = parts, strategy, state
        self._progress = parts.pipeline.clock.progress
        self._silent = self._said_lacking = silent or parts.ranks.rank > 0
        self._said = 0  # how many of the stages of `batch_comes` are over

    def resumed(self) -> None:
        """Leave out the line that is printed when training begins."""
        self._said = max(self._said, 1)

    def epoch_begins(self, epoch: int) -> None:
        """Warn if training goes on after `epochs` epochs, and nothing is selected any more."""
        epochs = self._progress.epochs
        over = epochs is not None and epoch == math.ceil(epochs)
        if over and not self._strategy.schedule.selects(epoch, 1.0):
            warn(
                f"epoch {epoch + 1} begins, but epochs={epochs:g} were given. From now on "
                f"{self._strategy.name} trains on everything. Pass the number of epochs that you "
                "train"
            )

    def batch_comes(self, epoch: int) -> None:
        """Print lines at the first batch, after one epoch, and from the third epoch's end on."""
        if self._silent:
            return
        if not self._said:
            self._said = 1
            self._say(summarise(self._strategy, self._parts.shape, self._progress.source))
            if self._parts.pipeline.candidate_loader.unpinned:
                print(UNPINNED, file=sys.stderr)
        if epoch and self._said == 1:
            self._said, memory = 2, self._parts.pipeline.memory
            wrong = None if memory is None else memory.ledger.wrong_labels
            if wrong is not None and wrong.is_clear:
                self._say(f"{wrong}; sb.guide.audit(loader.ledger).top() lists them")
            if memory is not None and memory.label_noise.ordered:
                self._say(ORDERED)
        if epoch >= EPOCHS_TO_SEE and self._said in (2, 3):
            terms, before = self._strategy.selector.terms, self._state.counts_at_epoch_start
            kept = before["kept"] / max(1, before["candidates"])
            little = kept >= MOSTLY and not (terms.promises or terms.keeps_everything)
            if little == (self._said == 2):  # it is said once, and taken back once
                why = "hardly anything to skip so far" if little else "by now it skips some"
                self._say(f"kept {kept:.0%} of the examples in {epoch} epochs: {why}")
            self._said = 3 if little else 4

    def _say(self, text: str) -> None:
        print(f"{self._strategy.name}: {text}", file=sys.stderr)

    def epoch_ends(self) -> None:
        """Say once that examples have no target; warn if the epoch yielded no batch."""
        memory, rows = self._parts.pipeline.memory, self._parts.pipeline.buffer.lacking
        remembered = memory is not None and memory.lacking
        if not self._said_lacking and (remembered or (rows is not None and bool(rows.any()))):
            self._said_lacking = True
            self._say(LACKING)
        if self._state.stats.batches == self._state.counts_at_epoch_start["batches"]:
            self._warn_if_barren()

    def _warn_if_barren(self) -> None:
        after, candidates_seen = self._state.stats, self._state.candidates_seen
        if not candidates_seen and not self._parts.cut:
            raise LoaderError("the wrapped data loader yielded nothing in this epoch")
        why = ""
        if after.ties:
            why += (
                f" {after.ties:.0%} of the recent scores are ties, which never outrank each other."
            )
        if after.nonfinite:
            why += f" So far, {after.nonfinite} were skipped because their losses are not finite."
        if after.dropped:
            why += f" So far, {after.dropped} were dropped because they did not fill a batch."
        warn(
            f"epoch {after.epoch + 1} yielded no training batch: it had {candidates_seen} "
            f"candidates, and {after.waiting} examples wait until they fill a batch.{why} If this "
            "happens in every epoch, use leftovers='carry' or a smaller batch size."
        )


def summarise(strategy: Strategy, shape: Shape, source: Source) -> str:
    """Return what is selected, from when on, and how many steps to expect."""
    size = f"batches of {shape.batch_size}" if shape.batch_size else ""
    return " · ".join(filter(None, (_selection(strategy), size, _steps(strategy, shape, source))))


def _selection(strategy: Strategy) -> str:
    terms, schedule, subset = strategy.selector.terms, strategy.schedule, strategy.subset
    examples = "everything" if subset is None else f"{len(subset)} examples"
    if terms.keeps_everything:
        return f"trains on {examples}"
    text = "selects" + (f" {terms.rate:.0%}" if terms.promises else "")
    if subset is not None:
        text += f" {'of' if terms.promises else 'among'} {examples}"
    if schedule.gate is not None:
        return f"{text} while that pays"
    if schedule.start:
        return f"{text} later on"
    return f"{text} from epoch {schedule.warmup_epochs + 1}" if schedule.warmup_epochs else text


def _steps(strategy: Strategy, shape: Shape, source: Source) -> str:
    """Return how many steps an epoch with selection has; an empty string if that is unknown."""
    terms, most = strategy.selector.terms, source.batches
    if not shape.unchanged and most is not None:
        rows = None if source.batch_size is None else most * source.batch_size
        most = None if rows is None or shape.batch_size is None else -(-rows // shape.batch_size)
    if most is None:
        return ""
    if terms.keeps_everything:
        return f"{most} steps an epoch"
    if not terms.promises:
        return f"at most {most} steps an epoch"
    least = f"{most * terms.rate:.0f}"
    if strategy.schedule.gate is not None:  # while it is shut, an epoch trains on everything
        return f"{least} to {most} steps an epoch"
    return f"about {least} of {most} steps an epoch"
