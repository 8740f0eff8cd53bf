"""What `bench` times: passes and steps alone, every scorer, and an epoch of every strategy."""

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.guide._scoring import ScoringGround
from selective_backprop.guide._spending import Arm, Clock, Spent, mean_of, timed
from selective_backprop.lab.bench.workload import TimedModel, Workload
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.recipe import Precision
from selective_backprop.lab.training.failing import in_words

FORWARD, FULL_FORWARD, STEP = "forward alone", "fp32 forward alone", "step alone"
STALE = 3
_ADVICE = (
    "It is trained at the learning rate of the recipe: give it smaller weights or outputs to start "
    "with."
)


@dataclass
class Cases:
    """What is timed, by name, and what became of scorers."""

    arms: dict[str, Arm] = field(default_factory=dict)  # each returns what one or several took
    agreements: dict[str, sb.scorers.Agreement] = field(default_factory=dict)  # with exact scores
    remarks: dict[str, str] = field(default_factory=dict)  # on a scorer, or why it is missing


def gather(
    workload: Workload,
    scorers: Sequence[str],
    clock: Clock | None = None,
    *,
    unwatched: bool | None = None,
) -> Cases:
    """Return all that is timed, ready to run, with the scorers that are named.

    The clock is this process's CPU seconds on a CPU, and the wall's on a GPU. Where `unwatched`, as
    on a GPU, steps and epochs are also timed as wholes: synchronising at every phase would keep
    what runs beside the training from doing so.
    """
    on_gpu = workload.device.type == "cuda"
    clock = clock or (time.perf_counter if on_gpu else time.process_time)
    make = _Maker(workload, clock, on_gpu if unwatched is None else unwatched)
    found = Cases({FORWARD: make.forward(FORWARD, workload.precision)})
    if workload.precision is not Precision.FP32:
        found.arms[FULL_FORWARD] = make.forward(FULL_FORWARD, Precision.FP32)
    found.arms[STEP] = make.steps()
    known = cheap_scorers(workload.data.image_size, workload.device, workload.precision)
    for name in scorers:
        make.scoring(name, known[name], found)
    for name, strategy in strategies(workload.rate, workload.precision, found.agreements).items():
        with _named(name):
            found.arms[name] = make.epochs(name, strategy)
    found.arms = {name: _named(name)(arm) for name, arm in found.arms.items()}
    return found


def cheap_scorers(
    side: int, device: torch.device, precision: Precision = Precision.FP32
) -> dict[str, sb.scorers.AbstractScorer]:
    """Return the scorers that can be timed for images so many pixels wide, by name.

    Names of a precision score in that, all others in the training's. What would be the same twice
    has one name. What gains time but no work can be told apart on a GPU alone.
    """
    exact, full = exact_scorer(precision), precision is Precision.FP32
    found: dict[str, sb.scorers.AbstractScorer] = {"forward": exact}
    if not full:
        found["fp32"] = sb.scorers.Forward()
    found["int8"] = sb.scorers.Int8(sb.scorers.Forward(), check=None)
    if full:
        found["bf16"] = sb.scorers.LowPrecision(sb.scorers.Forward(), check=None)
    if side >= 16:
        found["half-resolution"] = sb.scorers.LowResolution(exact, check=None)
    if device.type == "cuda":
        # One batch ahead, since each is a whole window.
        found["pipelined"] = sb.scorers.Pipelined(exact, every=8, ahead=1, check=None)
    return found


def exact_scorer(precision: Precision) -> sb.scorers.AbstractScorer:
    """Return the scorer that does what a training's own forward pass does."""
    exact, dtype = sb.scorers.Forward(), precision.dtype
    return exact if dtype is None else sb.scorers.LowPrecision(exact, dtype, check=None)


def strategies(rate: float, precision: Precision, timed: Collection[str]) -> dict[str, sb.Strategy]:
    """Return the strategies whose epochs are timed, by name; `timed` names the timed scorers."""
    exact = exact_scorer(precision)
    found = {
        "traditional": sb.traditional(),
        "random-backprop": sb.random_backprop(rate),
        "selective-backprop": sb.selective_backprop(rate, scorer=exact),
        "stale-sb": sb.stale_sb(rate, epochs=STALE, scorer=exact),
        "recorded-sb": sb.recorded_sb(rate),
    }
    if "int8" in timed:
        scorer = sb.scorers.Int8(sb.scorers.Forward(), check=None)
        found["int8-sb"] = sb.selective_backprop(rate, scorer=scorer)
        found["int8-stale-sb"] = sb.stale_sb(rate, epochs=STALE, scorer=scorer)
    if "pipelined" in timed:
        scorer = sb.scorers.Pipelined(exact, every=8, ahead=1, check=None)
        found["pipelined-sb"] = sb.selective_backprop(rate, scorer=scorer)
    return found


@contextmanager
def _named(name: str) -> Generator[None]:
    """Say of losses that cannot be selected by whose they are."""
    try:
        yield
    except sb.LossError as error:
        raise sb.LossError(in_words(name, error, _ADVICE)) from error


class _Maker:
    """Makes what is timed, each on a copy of the model and with a stopwatch of its own."""

    def __init__(self, workload: Workload, clock: Clock, unwatched: bool) -> None:
        self._workload = workload
        self._clock = clock
        self._unwatched = unwatched
        self._batches = workload.batches(workload.at_once)

    def _copy(self) -> tuple[TimedModel, sb.Stopwatch]:
        stopwatch = sb.Stopwatch(self._workload.device, clock=self._clock)
        return TimedModel(self._workload, stopwatch), stopwatch

    def _whole(self, run: Callable[[], None]) -> float | None:
        """Return the seconds of what runs, its phases unseen; None where that is not asked for."""
        if not self._unwatched:
            return None
        stopwatch = sb.Stopwatch(self._workload.device, clock=self._clock)
        stopwatch.start()
        run()
        stopwatch.stop()
        return stopwatch.total

    def forward(self, name: str, precision: Precision) -> Arm:
        """An eval forward over all candidates, and their losses: F, in the training's precision."""
        copied, stopwatch = self._copy()
        model = copied.model.eval()

        def run() -> Mapping[str, Spent]:
            with timed(stopwatch, "score") as spent, torch.no_grad():
                for batch in self._batches:
                    with precision.autocast(self._workload.device):
                        _losses(model, batch)
            return {name: Spent(spent, scored=self._workload.examples)}

        return run

    def steps(self) -> Arm:
        """Ordinary training steps on as many batches as selection keeps: T."""
        copied, stopwatch = self._copy()
        count = self._workload.examples // self._workload.window
        batches = self._workload.batches()[:count]

        def train() -> None:
            for batch in batches:
                copied.step(*batch)

        def run() -> Mapping[str, Spent]:
            with timed(stopwatch) as spent:
                train()
            return {STEP: Spent(spent, steps=count, whole=self._whole(train))}

        return run

    def scoring(self, name: str, scorer: sb.scorers.AbstractScorer, found: Cases) -> None:
        """Add a scorer's pass over all candidates, as after a step that has changed the weights."""
        workload = self._workload
        ground = ScoringGround(
            model=self._copy()[0].model,
            losses=_losses,
            batches=self._batches,
            batch_size=workload.recipe.batch_size,
            window=workload.window,
            rate=workload.rate,
            examples=workload.examples,
            device=workload.device,
        )
        tried = ground.try_out(scorer)
        if tried.remark is not None:
            found.remarks[name] = tried.remark
        if tried.running is not None and tried.agreement is not None:
            found.agreements[name] = tried.agreement
            run = ground.arm(tried.running, sb.Stopwatch(workload.device, clock=self._clock))
            found.arms[f"scorer {name}"] = lambda: {f"scorer {name}": run()}

    def epochs(self, name: str, strategy: sb.Strategy) -> Arm:
        """An epoch of a strategy, or the epochs from one selection pass to the next."""
        copied, stopwatch = self._copy()
        recipe = self._workload.recipe
        loader = make_loader(
            self._workload.data,
            batch_size=recipe.batch_size if strategy.scorer is None else self._workload.at_once,
            seed=0,
            augmentation=recipe.augmentation,
        )
        door = sb.SelectiveLoader(
            loader,
            copied.model,
            nn.CrossEntropyLoss(),
            strategy,
            batch_size=recipe.batch_size,
            with_selection=True,
            device=self._workload.device,
            stopwatch=stopwatch,
            quiet=True,
        )
        recorded = strategy.scorer is not None and strategy.scorer.needs.recordings

        def train() -> None:
            dataset: Any = loader.dataset
            dataset.set_epoch(dataset.epoch + 1)
            for (images, labels), selection in door:
                told = partial(door.record, selection) if recorded else None
                copied.step(images, labels, selection.weights.to(labels.device), told)

        def epoch() -> Spent:
            before = door.stats
            with timed(stopwatch) as spent:
                train()
            after = door.stats
            return Spent(spent, after.scored - before.scored, after.batches - before.batches)

        def cycle(length: int) -> list[Spent]:
            epochs = [epoch() for _ in range(length)]
            return [replace(each, whole=self._whole(train)) for each in epochs]

        epoch()  # the first keeps everything
        if not isinstance(strategy.scorer, sb.scorers.Stale):
            return lambda: {name: cycle(1)[0]}
        return lambda: _by_kind(name, cycle(STALE))


def _by_kind(name: str, epochs: list[Spent]) -> Mapping[str, Spent]:
    """Return the mean of a cycle, of its epochs that score, and of those that remember."""
    kinds = {
        name: epochs,
        f"{name} scored": [each for each in epochs if each.scored],
        f"{name} recalled": [each for each in epochs if not each.scored],
    }
    return {kind: mean_of(some) for kind, some in kinds.items() if some}


def _losses(model: nn.Module, batch: Any) -> Tensor:
    images, labels = batch
    return functional.cross_entropy(model(images), labels, reduction="none")
