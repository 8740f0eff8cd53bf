"""What a loader refuses before training, and what it prints and warns of while it trains."""

import math
import sys
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref

from selective_backprop._batches.losses import (
    class_weights,
    find_outputs,
    is_no_cross_entropy,
    label_smoothing,
)
from selective_backprop._core.errors import ConfigurationError, LoaderError, warn
from selective_backprop._core.options import check_number
from selective_backprop._loader.checkpoint import LoaderState
from selective_backprop._loader.weighted_loss import BY_HAND, TAKE
from selective_backprop._pipeline.options import Progress, Setup
from selective_backprop._pipeline.source import STREAM, Source
from selective_backprop._pipeline.stages import Pipeline
from selective_backprop.strategies import Strategy
from selective_backprop.strategies._strategy import check_loss

ORDERED = (
    "examples of one class come together, so it cannot be told how many labels look wrong; "
    "DataLoader(…, shuffle=True) mixes them"
)
UNPINNED = (
    "the CPU waits while each batch is copied to the GPU; DataLoader(…, pin_memory=True) avoids it"
)
# Of a model: its last data set, and how many loaders in a row ran one epoch and skipped nothing.
SINGLE_EPOCHS: WeakKeyDictionary[Any, tuple[Any, int]] = WeakKeyDictionary()


class Messages:
    """Print lines to standard error, each once, unless `silent`, and give warnings."""

    def __init__(self, pipeline: Pipeline, state: LoaderState, silent: bool) -> None:
        self._pipeline, self._setup, self._state = pipeline, pipeline.setup, state
        self._strategy = pipeline.setup.strategy
        self.said = 2 if silent or pipeline.setup.ranks.rank else 0  # how many of both times

    def epoch_begins(self, epoch: int) -> None:
        epochs = self._setup.progress.epochs
        over = epochs is not None and epoch == math.ceil(epochs)
        if over and not self._strategy.schedule.selects(epoch, 1.0):
            warn(
                f"epoch {epoch + 1} begins, but epochs={epochs:g} were given: from now on "
                f"{self._strategy.name} trains on everything. Pass epochs= as many as you train"
            )

        data, self._single_epochs = self._setup.source.loader.dataset, 0
        with suppress(TypeError):  # there is no model
            last, count = SINGLE_EPOCHS.pop(self._setup.model, (lambda: None, 0))
            self._single_epochs = count if not epoch and last() is data else 0
        if self._single_epochs == 2:
            warn(
                "two SelectiveLoaders trained this model on these data for one epoch each, and "
                f"{self._strategy.name} skipped nothing. Now a third one begins. Build one loader "
                "before the loop over epochs: it selects in its later epochs"
            )

    def batch_comes(self, epoch: int) -> None:
        if not self.said:
            self.said = 1
            rows = self._setup.shape.batch_size
            self._say(_selection(self._strategy) + (f" · batches of {rows}" if rows else ""))
            if self._pipeline.candidate_loader.unpinned:
                print(UNPINNED, file=sys.stderr)
        if epoch and self.said == 1:
            self.said, memory = 2, self._pipeline.memory
            if memory is not None:
                wrong = memory.ledger.wrong_labels
                # In 6 of 36 trials with 400 to 800 right labels of MNIST, 7 % or more looked wrong.
                if wrong is not None and wrong.is_clear and memory.ledger.examples >= 1000:
                    self._say(f"{wrong}; sb.guide.audit(loader.ledger).top() lists them")
                if memory.label_noise.ordered:
                    self._say(ORDERED)

    def _say(self, text: str) -> None:
        print(f"{self._strategy.name}: {text}", file=sys.stderr)

    def epoch_ends(self) -> None:
        after = self._state.stats
        selects = not self._strategy.selector.terms.keeps_everything
        if selects and not after.epoch and after.kept + after.waiting == after.candidates:
            with suppress(TypeError):  # there is no model, or the data are a list
                data = ref(self._setup.source.loader.dataset)
                SINGLE_EPOCHS[self._setup.model] = data, self._single_epochs + 1
        if after.batches != self._state.counted["batches"]:
            return
        candidates_seen, lockstep = self._state.candidates_seen, self._pipeline.lockstep
        if not candidates_seen and (lockstep is None or not lockstep.cut):
            raise LoaderError("the wrapped data loader yielded nothing in this epoch")
        ties = f" {after.ties:.0%} of the recent scores are ties, which never outrank each other."
        warn(
            f"epoch {after.epoch + 1} yielded no training batch: it had {candidates_seen} "
            f"candidates.{ties * bool(after.ties)} Counts {after}. If this happens in every epoch, "
            "use leftovers='carry' or a smaller batch size."
        )


def _selection(strategy: Strategy) -> str:
    terms, schedule, subset = strategy.selector.terms, strategy.schedule, strategy.subset
    examples = "everything" if subset is None else f"{len(subset)} examples"
    if terms.keeps_everything:
        return f"trains on {examples}"
    text = f"selects {terms.rate:.0%}" if terms.promises else "selects by loss"
    if subset is not None:
        text += f" {'of' if terms.promises else 'among'} {examples}"
    if schedule.gate is not None:
        return f"{text} while that pays"
    if schedule.start:
        return f"{text} later on"
    return f"{text} from epoch {schedule.warmup_epochs + 1}" if schedule.warmup_epochs else text


def check_fit(strategy: Strategy, source: Source, loss_fn: Any, losses: Any, outputs: Any) -> None:
    needs, draws_early = strategy.needs, _draws_early(strategy)
    by_index = needs is not None and (needs.indices or needs.remembers)
    if not source.indexed and (draws_early or by_index):
        why = "selects examples by index before they are loaded"
        raise LoaderError(
            f"{strategy.name} {why if draws_early else 'knows examples by index'}, but this loader "
            f"yields {STREAM}. Use a strategy that scores examples as they come, such as "
            "sb.auto(stream=True) or sb.selective_backprop(rate=1/3), or give the loader a "
            "map-style data set."
        )
    if needs is not None and needs.outputs and find_outputs(losses, outputs) is None:
        raise ConfigurationError(
            f"{strategy.name} needs the model's outputs, but losses= gives only losses. Pass "
            "outputs=callable(model, batch) -> (outputs, targets)."
        )
    check_loss(strategy, is_no_cross_entropy(loss_fn))


def _draws_early(strategy: Strategy) -> bool:
    needs = strategy.needs
    return not strategy.selector.terms.keeps_everything and (needs is None or not needs.passes)


def warn_of_sampler(setup: Setup) -> None:
    strategy, source, shape, ranks = setup.strategy, setup.source, setup.shape, setup.ranks
    remembers = setup.needs.remembers
    if remembers and ranks.size > 1 and ranks.rank == 0 and source.draws_all:
        warn(
            f"each of the {ranks.size} ranks draws all {source.examples:,} examples. To divide "
            "them, pass DataLoader(data, sampler=DistributedSampler(data)). If each rank has other "
            f"data, join them in one data set: to {strategy.name}, an index is one example"
        )
    if source.balances and strategy.needs is not None and not strategy.selector.terms.reweights:
        warn(
            f"{strategy.name} undoes a part of what WeightedRandomSampler balances: classes drawn "
            "often are learned soon, and are then skipped most. Weigh classes in the loss "
            "instead (torch.nn.CrossEntropyLoss(weight=…)), or take random_backprop(rate=1 / 2)"
        )
    how = "draws before loading and "
    if not (_draws_early(strategy) or strategy.subset is not None or remembers):
        # Another sampler may yield single indices, of examples that are batches themselves.
        if source.attribute != "batch_sampler" or (shape.unchanged and shape.keeps_everything):
            return
        how = ""
        if shape.window is not None and shape.batch_size is not None:
            # Whole windows, and whole batches where everything is kept, never join two groups.
            whole = math.lcm(shape.window, shape.batch_size)
            if source.batch_size is not None and source.batch_size % whole == 0:
                return
            how = f"draws from {whole} examples at a time and "
    if source.own_batches:
        warn(
            f"{strategy.name} {how}regroups the drawn examples into batches, which will mix the "
            f"groups that your batch sampler makes ({source.kind})"
        )


def warn_of_loss(
    strategy: Strategy,
    loss_fn: Any,
    do: str = "take the loss from the loader before the loop, loss_fn = loader.loss_fn",
) -> None:
    """Warn of a loss that a strategy misreads if it is recorded as it is; `do` something else."""
    why = {
        "smooths labels": label_smoothing(loss_fn),
        "weighs classes": loss_fn is not None and class_weights(loss_fn) is not None,
    }
    found = [reason for reason, given in why.items() if given]
    needs = strategy.needs
    if strategy.selector.terms.confidence and found and needs is not None and needs.recordings:
        warn(
            f"{strategy.name} takes exp(-loss) for the probability of the label, but the loss "
            f"{' and '.join(found)}, so learned examples may not look learned: {do}, or record "
            "plain cross-entropies"
        )


def check_use(strategy: Strategy) -> None:
    reweights, needs = strategy.selector.terms.reweights, strategy.needs
    if reweights or (needs is not None and needs.recordings):
        does = "reweights examples" if reweights else "selects by losses that training records"
        raise ConfigurationError(f"{strategy.name} {does}, so write{TAKE}Or {BY_HAND}")


def check_length(strategy: Strategy, source: Source, epochs: Any, progress: Any) -> Progress:
    epochs = check_number("epochs", epochs, above=0, optional=True)
    if epochs is not None and progress is not None:
        raise ConfigurationError("epochs= and progress= were both given: pass only one of them")
    strategy.schedule.check_length(epochs, source.batches)
    fractions = strategy.schedule.uses_fractions or strategy.selector.terms.paced
    if fractions and progress is None and None in (epochs, source.batches):
        raise ConfigurationError(
            f"{strategy.name} depends on how far training is, which is not known: pass epochs= or, "
            "if the data loader has no length or something else ends training, pass "
            "progress=callable() -> fraction of training done"
        )
    return Progress(source, epochs, progress)
