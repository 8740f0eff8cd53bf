"""What `bench` times: passes and steps alone, every scorer, and an epoch of every strategy."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.lab.loaders import ImageDataset, make_loader
from selective_backprop.lab.specimen import Pupil, Specimen

STALE = 3
Clock = Callable[[], float]


@dataclass(frozen=True)
class Spent:
    """What an arm took in a round.

    Attributes:
        phases: seconds of each phase.
        scored: candidates that were scored.
        steps: training steps.
    """

    phases: Mapping[str, float]
    scored: float = 0
    steps: float = 0

    @property
    def seconds(self) -> float:
        """Of all phases."""
        return sum(self.phases.values())


Arm = Callable[[], Mapping[str, Spent]]


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
    agreements: dict[str, sb.Agreement] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)


def cheap_scorers(side: int) -> dict[str, sb.AbstractScorer]:
    """Return the scorers that are timed, by name.

    Args:
        side: of an image, in pixels.
    """
    found: dict[str, sb.AbstractScorer] = {
        "forward": sb.Forward(),
        "int8": sb.Int8(sb.Forward(), check=None),
        "bf16": sb.LowPrecision(sb.Forward(), check=None),
        "synced": sb.Synced(sb.Forward(), every=8, check=None),
    }
    if side >= 16:
        found["half-resolution"] = sb.LowResolution(sb.Forward(), check=None)
    found["compiled"] = sb.Compiled(sb.Forward(), check=None)
    return found


def default_scorers(side: int, device: torch.device) -> tuple[str, ...]:
    """Return the names of the scorers that are timed where none are named.

    On a CPU compiling takes longer than all the rest, so it must be asked for.
    """
    names = tuple(cheap_scorers(side))
    return names if device.type == "cuda" else names[:-1]


def gather(specimen: Specimen, scorers: tuple[str, ...], clock: Clock | None = None) -> Contestants:
    """Return all that is timed, ready to run.

    Args:
        specimen: what on.
        scorers: names in `cheap_scorers`.
        clock: returns seconds; None for this process's CPU seconds on a CPU, and for the wall's,
            synchronised, on a GPU.
    """
    if clock is None:
        clock = time.perf_counter if specimen.device.type == "cuda" else time.process_time
    stand = _Stand(specimen, clock)
    found = Contestants({"forward alone": stand.forward(), "step alone": stand.steps()})
    known = cheap_scorers(specimen.data.image_size)
    for name in scorers:
        _enter(found, stand, name, known[name])
    for name, strategy in _strategies(specimen.rate, found).items():
        found.arms[name] = stand.epochs(name, strategy)
    return found


def _enter(found: Contestants, stand: "_Stand", name: str, scorer: sb.AbstractScorer) -> None:
    """Add a scorer that can be timed here; take note of it where it cannot."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            running, model = stand.start(scorer)
            found.agreements[name] = stand.agreement(running)
        except Exception as error:  # a model of the user's, or a compiler, may raise anything
            found.remarks[name] = f"{type(error).__name__}: {error}"
            return
    if isinstance(scorer, sb.Int8):
        share = scorer.calibration_batches / scorer.recalibrate_every
        found.remarks[name] = (
            f"a calibration costs a forward pass over {share:.1%} of all candidates, at first over "
            "more; it falls into few rounds, so that no median shows it"
        )
    said = [str(w.message) for w in caught if issubclass(w.category, sb.SelectionWarning)]
    if said:
        found.remarks[name] = said[0]
    found.scorers.append(name)
    found.arms[f"scorer {name}"] = stand.scoring(name, running, model)


def _strategies(rate: float, found: Contestants) -> dict[str, sb.Strategy]:
    strategies = {
        "traditional": sb.traditional(),
        "random-backprop": sb.random_backprop(rate),
        "selective-backprop": sb.selective_backprop(rate),
        "stale-sb": sb.stale_sb(rate, epochs=STALE),
        "recorded-sb": sb.recorded_sb(rate),
    }
    if "int8" in found.scorers:
        scorer = sb.Int8(sb.Forward(), check=None)
        strategies["int8-sb"] = sb.selective_backprop(rate, scorer=scorer)
        strategies["int8-stale-sb"] = sb.stale_sb(rate, epochs=STALE, scorer=scorer)
    return strategies


class _Stand:
    """Where arms are made and timed."""

    def __init__(self, specimen: Specimen, clock: Clock) -> None:
        self._specimen = specimen
        self._clock = clock
        self._batches = specimen.batches()

    def _stopwatch(self) -> sb.Stopwatch:
        return sb.Stopwatch(self._specimen.device, clock=self._clock)

    def forward(self) -> Arm:
        """An eval forward over all candidates, and their losses: F."""
        model, stopwatch = Pupil(self._specimen, self._stopwatch()).model.eval(), self._stopwatch()

        def run() -> Mapping[str, Spent]:
            with _timed(stopwatch, "score") as spent, torch.no_grad():
                for batch in self._batches:
                    _losses(model, batch)
            return {"forward alone": Spent(spent, scored=self._specimen.examples)}

        return run

    def steps(self) -> Arm:
        """Ordinary training steps on as many batches as selection keeps: T."""
        stopwatch = self._stopwatch()
        pupil = Pupil(self._specimen, stopwatch)
        count = self._specimen.examples // self._specimen.window

        def run() -> Mapping[str, Spent]:
            with _timed(stopwatch) as spent:
                for batch in self._batches[:count]:
                    pupil.step(*batch)
            return {"step alone": Spent(spent, steps=count)}

        return run

    def start(self, scorer: sb.AbstractScorer) -> tuple[sb.RunningScorer, nn.Module]:
        """Start a scorer on a copy of the model, and return that too."""
        specimen = self._specimen
        model = Pupil(specimen, self._stopwatch()).model
        context = sb.Context(
            batch_size=specimen.recipe.batch_size,
            window=specimen.window,
            model=model,
            losses=_losses,
            device=specimen.device,
            examples=specimen.examples,
            rate=specimen.rate,
        )
        return scorer.start(context), model

    def agreement(self, running: sb.RunningScorer) -> sb.Agreement:
        """Hold all candidates' scores against exact ones, at once."""
        exact, _ = self.start(sb.Forward())
        scores, truth = (
            torch.cat([scorer.score(batch, None) for batch in self._batches])
            for scorer in (running, exact)
        )
        return sb.Agreement.between(scores, truth, rate=self._specimen.rate)

    def scoring(self, name: str, running: sb.RunningScorer, model: nn.Module) -> Arm:
        """A scorer's pass over all candidates, as after a step that has changed the weights."""
        stopwatch = self._stopwatch()
        weights = [weight.detach() for weight in model.parameters()]

        def run() -> Mapping[str, Spent]:
            torch._foreach_mul_(weights, 1.0)
            with _timed(stopwatch, "score") as spent:
                for batch in self._batches:
                    running.score(batch, None)
            return {f"scorer {name}": Spent(spent, scored=self._specimen.examples)}

        return run

    def epochs(self, name: str, strategy: sb.Strategy) -> Arm:
        """An epoch of a strategy, or the epochs from one selection pass to the next."""
        stopwatch = self._stopwatch()
        pupil = Pupil(self._specimen, stopwatch)
        recipe = self._specimen.recipe
        loader = make_loader(
            self._specimen.data,
            batch_size=recipe.batch_size,
            seed=0,
            augmentation=recipe.augmentation,
        )
        door = sb.SelectiveLoader(
            loader,
            pupil.model,
            nn.CrossEntropyLoss(),
            strategy,
            with_selection=True,
            device=self._specimen.device,
            stopwatch=stopwatch,
        )
        recorded = strategy.scorer is not None and strategy.scorer.needs.recordings

        def epoch() -> Spent:
            dataset: Any = loader.dataset
            if isinstance(dataset, ImageDataset):
                dataset.set_epoch(dataset.epoch + 1)
            before = door.stats
            with _timed(stopwatch) as spent:
                for (images, labels), selection in door:
                    told = _recording(door, selection) if recorded else None
                    pupil.step(images, labels, selection.weights.to(labels.device), told)
            after = door.stats
            return Spent(spent, after.scored - before.scored, after.batches - before.batches)

        epoch()  # the first keeps everything
        if not isinstance(strategy.scorer, sb.Stale):
            return lambda: {name: epoch()}
        return lambda: _by_kind(name, [epoch() for _ in range(STALE)])


def _by_kind(name: str, epochs: list[Spent]) -> Mapping[str, Spent]:
    """Return the mean of a cycle, of its epochs that score, and of those that remember."""
    kinds = {
        name: epochs,
        f"{name} scored": [each for each in epochs if each.scored],
        f"{name} recalled": [each for each in epochs if not each.scored],
    }
    return {kind: mean_of(some) for kind, some in kinds.items() if some}


def mean_of(epochs: list[Spent]) -> Spent:
    """Return what an epoch took in the mean."""
    count = len(epochs)
    names = dict.fromkeys(name for each in epochs for name in each.phases)
    return Spent(
        {name: sum(each.phases.get(name, 0.0) for each in epochs) / count for name in names},
        sum(each.scored for each in epochs) / count,
        sum(each.steps for each in epochs) / count,
    )


def _recording(door: sb.SelectiveLoader, selection: sb.Selection) -> Callable[[Tensor], None]:
    return lambda losses: door.record(selection, losses)


def _losses(model: nn.Module, batch: Any) -> Tensor:
    images, labels = batch
    return functional.cross_entropy(model(images), labels, reduction="none")


class _timed:
    """Charge a body to a phase, and give what each phase took in it."""

    def __init__(self, stopwatch: sb.Stopwatch, phase: str = "other") -> None:
        self._stopwatch = stopwatch
        self._phase = stopwatch.phase(phase)
        self._spent: dict[str, float] = {}

    def __enter__(self) -> dict[str, float]:
        self._before = self._stopwatch.seconds
        self._stopwatch.start()
        self._phase.__enter__()
        return self._spent

    def __exit__(self, *error: Any) -> None:
        self._phase.__exit__(*error)
        self._stopwatch.stop()
        for name, seconds in self._stopwatch.seconds.items():
            self._spent[name] = seconds - self._before.get(name, 0.0)
