"""Count host waits and kernels of a steady batch on a CUDA device that is made up.

`python -m benchmarks.launches` prints them as JSON, by strategy. It needs a process of its own: the
device must be there before torch is imported.
"""

import made_up_cuda  # first  # isort: skip

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, repeat
from typing import Any, NamedTuple

from torch import nn

import selective_backprop as sb
from benchmarks.tiny import BATCH, RATE, examples, in_step, net, steps_of, through_loader
from selective_backprop_lab.bench.workload import made_up
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.recipe import find_recipe
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig

EXAMPLES, EPOCHS, STEADY = 256, 4, 4


class Counts(NamedTuple):
    """What one batch of training takes: host waits, in the lab those of an epoch, and kernels."""

    waits: float
    kernels: float


def steady(steps: Iterator[Any]) -> Counts:
    """Return the counts of a batch, after the first, which finds things out."""
    next(steps)
    with made_up_cuda.watch() as seen:
        for _ in islice(steps, STEADY):
            pass
    return Counts(len(seen.waits) / STEADY, seen.kernels.total() / STEADY)


def plain() -> Counts:
    batches = examples(EXAMPLES, pinned=True)
    pairs = ([part.cuda(non_blocking=True) for part in batch] for batch in batches)
    return steady(steps_of(net("cuda"), pairs, nn.CrossEntropyLoss()))


def counted(strategy: sb.Strategy, *, rows: int = BATCH, **options: Any) -> Counts:
    """Count what a strategy takes in its last epoch, if it scores so many rows at once."""
    data, options = examples(EXAMPLES, pinned=True, size=rows), {"batch_size": BATCH, **options}
    return steady(through_loader(data, strategy, EPOCHS, "cuda", **options))


def in_steps(strategy: sb.Strategy) -> Counts:
    inputs, targets = (column.cuda() for column in next(iter(examples(EXAMPLES))))
    return steady(in_step(strategy, repeat((inputs, targets)), "cuda"))


def in_lab(arm: str, *, steady: int = 3) -> Counts:
    """Count what the lab's own loop takes in the last epochs of a run."""
    images = Augmentation(shift=4, flip=True, cutout=8)
    recipe = replace(find_recipe("cifar10"), model="linear", batch_size=BATCH, augmentation=images)
    length, options = Budget("epochs", float(steady + 3)), StrategyOptions()
    plan = RunConfig(recipe, arm, options, 0, length, evaluations=1, device="cuda")
    run = TrainingRun(plan, made_up("3x8x8/10", EXAMPLES))
    seen_at: list[tuple[int, int]] = []

    def count() -> bool:
        if run.loader.stats.candidates > (length.value - steady) * EXAMPLES:
            seen_at.append((len(seen.waits), seen.kernels.total()))
        return False

    with made_up_cuda.watch() as seen:
        run.advance(count)
    (waits, kernels), (all_waits, all_kernels) = seen_at[0], seen_at[-1]
    return Counts((all_waits - waits) / steady, (all_kernels - kernels) / (len(seen_at) - 1))


FULL = sb.selective_backprop(RATE, history=EXAMPLES)  # its history is full by the last epoch
STALE = sb.stale_sb(RATE, epochs=2, history=EXAMPLES)  # it scores in the last epoch
LAB = ("traditional", "random-backprop", "selective-backprop", "stale-sb", "auto")
ARMS: dict[str, Callable[[], Counts]] = {
    "plain loop": plain,
    "traditional": lambda: counted(sb.traditional()),
    "random_backprop": lambda: counted(sb.random_backprop(RATE)),
    "auto": lambda: counted(sb.auto()),
    "infobatch": lambda: counted(sb.infobatch()),
    "easy_skip": lambda: counted(sb.easy_skip()),
    "recorded_sb": lambda: counted(sb.recorded_sb(RATE)),
    "selective_backprop": lambda: counted(FULL),
    "selective_backprop, window at once": lambda: counted(FULL, rows=3 * BATCH),
    "stale_sb, scored": lambda: counted(STALE),
    "stale_sb, scored, window at once": lambda: counted(STALE, rows=3 * BATCH),
    "kath18": lambda: counted(sb.kath18()),
    "drop_zero": lambda: counted(sb.drop_zero()),
    'selective_backprop, nonfinite="skip"': lambda: counted(FULL, nonfinite="skip"),
    "SelectiveStep, random_backprop": lambda: in_steps(sb.random_backprop(RATE)),
    **{f"lab, {arm}": lambda arm=arm: in_lab(arm) for arm in LAB},
}

if __name__ == "__main__":
    print(json.dumps({name: count() for name, count in ARMS.items()}))
