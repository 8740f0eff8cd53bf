"""What `bench` times: passes and steps alone, every scorer, and an epoch of every strategy."""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.guide._scoring import ScoringGround
from selective_backprop.guide._spending import Arm, Clock, Spent, mean_of, timed
from selective_backprop.lab.bench.scorers import STALE, cheap_scorers, strategies
from selective_backprop.lab.bench.workload import Pupil, Specimen
from selective_backprop.lab.data.loader import ImageDataset, make_loader
from selective_backprop.lab.recipe import Precision
from selective_backprop.lab.training.failing import in_words

FULL_FORWARD = "fp32 forward alone"
_ADVICE = (
    "It is trained at the learning rate of the recipe: give it smaller weights or outputs to start "
    "with."
)


@dataclass
class Contestants:
    """Arms by name, and what became of scorers.

    Attributes:
        arms: each returns what it took, under one name or several.
        scorers: names of those that can be timed here.
        agreements: how far the scores of each agree with exact ones.
        remarks: what was said of a scorer, or why it is missing.
    """

    arms: dict[str, Arm] = field(default_factory=dict)
    scorers: list[str] = field(default_factory=list)
    agreements: dict[str, sb.scorers.Agreement] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)


def gather(
    specimen: Specimen,
    scorers: tuple[str, ...],
    clock: Clock | None = None,
    *,
    unwatched: bool | None = None,
) -> Contestants:
    """Return all that is timed, ready to run.

    Args:
        specimen: what on.
        scorers: names in `cheap_scorers`.
        clock: returns seconds; None for this process's CPU seconds on a CPU, and for the wall's
            on a GPU.
        unwatched: whether steps and epochs are also timed as wholes, from one synchronisation to
            the next; None for on a GPU, where synchronising at every phase would keep what runs
            beside the training from doing so.
    """
    on_gpu = specimen.device.type == "cuda"
    if clock is None:
        clock = time.perf_counter if on_gpu else time.process_time
    stand = _Stand(specimen, clock, on_gpu if unwatched is None else unwatched)
    found = Contestants({"forward alone": stand.forward("forward alone", specimen.precision)})
    if specimen.precision is not Precision.FP32:
        found.arms[FULL_FORWARD] = stand.forward(FULL_FORWARD, Precision.FP32)
    found.arms["step alone"] = stand.steps()
    known = cheap_scorers(specimen.data.image_size, specimen.device, specimen.precision)
    for name in scorers:
        _enter(found, stand, name, known[name])
    for name, strategy in strategies(specimen.rate, specimen.precision, found.scorers).items():
        with _named(name):
            found.arms[name] = stand.epochs(name, strategy)
    found.arms = {name: _named(name)(arm) for name, arm in found.arms.items()}
    return found


@contextmanager
def _named(name: str) -> Generator[None]:
    """Say of losses that cannot be selected by whose they are."""
    try:
        yield
    except sb.LossError as error:
        raise sb.LossError(in_words(name, error, _ADVICE)) from error


def _enter(
    found: Contestants, stand: "_Stand", name: str, scorer: sb.scorers.AbstractScorer
) -> None:
    """Add a scorer that can be timed here; take note of it where it cannot."""
    ground = stand.ground()
    tried = ground.try_out(scorer)
    if tried.remark is not None:
        found.remarks[name] = tried.remark
    if tried.running is None or tried.agreement is None:
        return
    found.agreements[name] = tried.agreement
    found.scorers.append(name)
    found.arms[f"scorer {name}"] = stand.scoring(name, ground, tried.running)


class _Stand:
    """Where arms are made and timed."""

    def __init__(self, specimen: Specimen, clock: Clock, unwatched: bool) -> None:
        self._specimen = specimen
        self._clock = clock
        self._unwatched = unwatched
        self._batches = specimen.batches(specimen.at_once)

    def _stopwatch(self) -> sb.Stopwatch:
        return sb.Stopwatch(self._specimen.device, clock=self._clock)

    def _whole(self, run: Callable[[], None]) -> float:
        """Return the seconds of what runs, its phases unseen."""
        stopwatch = self._stopwatch()
        stopwatch.start()
        run()
        stopwatch.stop()
        return stopwatch.total

    def forward(self, name: str, precision: Precision) -> Arm:
        """An eval forward over all candidates, and their losses: F, in the training's precision."""
        specimen, stopwatch = self._specimen, self._stopwatch()
        model = Pupil(specimen, self._stopwatch()).model.eval()

        def run() -> Mapping[str, Spent]:
            with timed(stopwatch, "score") as spent, torch.no_grad():
                for batch in self._batches:
                    with precision.autocast(specimen.device):
                        _losses(model, batch)
            return {name: Spent(spent, scored=specimen.examples)}

        return run

    def steps(self) -> Arm:
        """Ordinary training steps on as many batches as selection keeps: T."""
        stopwatch = self._stopwatch()
        pupil = Pupil(self._specimen, stopwatch)
        count = self._specimen.examples // self._specimen.window
        batches = self._specimen.batches()[:count]

        def train() -> None:
            for batch in batches:
                pupil.step(*batch)

        def run() -> Mapping[str, Spent]:
            with timed(stopwatch) as spent:
                train()
            whole = self._whole(train) if self._unwatched else None
            return {"step alone": Spent(spent, steps=count, whole=whole)}

        return run

    def ground(self) -> ScoringGround:
        """Return what a scorer is tried on: a copy of the model, and all candidates."""
        specimen = self._specimen
        return ScoringGround(
            model=Pupil(specimen, self._stopwatch()).model,
            losses=_losses,
            batches=self._batches,
            batch_size=specimen.recipe.batch_size,
            window=specimen.window,
            rate=specimen.rate,
            examples=specimen.examples,
            device=specimen.device,
        )

    def scoring(self, name: str, ground: ScoringGround, running: sb.scorers.RunningScorer) -> Arm:
        """A scorer's pass over all candidates, as after a step that has changed the weights."""
        run = ground.arm(running, self._stopwatch())
        return lambda: {f"scorer {name}": run()}

    def epochs(self, name: str, strategy: sb.Strategy) -> Arm:
        """An epoch of a strategy, or the epochs from one selection pass to the next."""
        stopwatch = self._stopwatch()
        pupil = Pupil(self._specimen, stopwatch)
        recipe = self._specimen.recipe
        loader = make_loader(
            self._specimen.data,
            batch_size=recipe.batch_size if strategy.scorer is None else self._specimen.at_once,
            seed=0,
            augmentation=recipe.augmentation,
        )
        door = sb.SelectiveLoader(
            loader,
            pupil.model,
            nn.CrossEntropyLoss(),
            strategy,
            batch_size=recipe.batch_size,
            with_selection=True,
            device=self._specimen.device,
            stopwatch=stopwatch,
            quiet=True,
        )
        recorded = strategy.scorer is not None and strategy.scorer.needs.recordings

        def train() -> None:
            dataset: Any = loader.dataset
            if isinstance(dataset, ImageDataset):
                dataset.set_epoch(dataset.epoch + 1)
            for (images, labels), selection in door:
                told = _recording(door, selection) if recorded else None
                pupil.step(images, labels, selection.weights.to(labels.device), told)

        def epoch() -> Spent:
            before = door.stats
            with timed(stopwatch) as spent:
                train()
            after = door.stats
            return Spent(spent, after.scored - before.scored, after.batches - before.batches)

        def cycle(length: int) -> list[Spent]:
            epochs = [epoch() for _ in range(length)]
            if not self._unwatched:
                return epochs
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


def _recording(door: sb.SelectiveLoader, selection: sb.Selection) -> Callable[[Tensor], None]:
    return lambda losses: door.record(selection, losses)


def _losses(model: nn.Module, batch: Any) -> Tensor:
    images, labels = batch
    return functional.cross_entropy(model(images), labels, reduction="none")
