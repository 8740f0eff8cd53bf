"""One run: a recipe trained with one strategy and seed, a slice at a time, recorded as it goes."""

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop.lab.arms import Settings, find_arm
from selective_backprop.lab.comparison import Length
from selective_backprop.lab.datasets import ImageData
from selective_backprop.lab.loaders import make_loader, make_test_loader
from selective_backprop.lab.metering import Meter
from selective_backprop.lab.noise import UniformFlip
from selective_backprop.lab.outfits import Outfit, Task
from selective_backprop.lab.pacing import (
    Course,
    Follows,
    Standing,
    check_pace,
    followed,
    schedule_share,
)
from selective_backprop.lab.probing import Probe, Scene
from selective_backprop.lab.recipes import Recipe
from selective_backprop.lab.records import Observation, Point


@dataclass(frozen=True)
class Plan:
    """Everything that decides how a run goes, and so everything its record must say.

    Attributes:
        recipe: what is trained, and how.
        arm: name of the strategy.
        settings: what the strategies have in common.
        seed: of the weights, the order of the data, the augmentation and the draws.
        length: epochs, or a budget of cost or seconds, after which the run ends.
        evaluations: how often the test set is looked at, evenly over the run.
        limit: training examples, a fixed and stratified part of the data set; None for all.
        device: where to train.
        noise: share of the training labels that `UniformFlip` replaced by wrong ones.
        lr_follows: what the learning rate follows; selection follows the run in any case.
        probes: what to look for on the way; no part of what is trained, nor of `config`.
    """

    recipe: Recipe
    arm: str
    settings: Settings
    seed: int
    length: Length
    evaluations: int = 20
    limit: int | None = None
    device: str = "cpu"
    noise: float = 0.0
    lr_follows: Follows = Follows.RUN
    probes: tuple[Probe, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.length.value < math.inf:
            raise sb.ConfigurationError(
                f"{self.length.words}: the length of a run must be positive and finite"
            )
        if self.length.unit == "epochs" and self.length.value != int(self.length.value):
            raise sb.ConfigurationError(f"{self.length.words}: runs have whole epochs")
        if self.evaluations < 1:
            raise sb.ConfigurationError(
                f"evaluations={self.evaluations}: a run is judged by at least one"
            )
        arm = find_arm(self.arm)
        arm.words(self.settings)
        UniformFlip(self.noise)
        check_pace(self.lr_follows, self.length)
        if arm.young and self.length.unit == "seconds":
            raise sb.ConfigurationError(
                f"{self.arm} trains other models for a share of the run's epochs, and a budget in "
                "seconds has none; give it epochs or a budget of cost"
            )

    def config(self) -> dict[str, Any]:
        """Return the plan as a record keeps it."""
        recipe = self.recipe.config()
        length = (
            {"epochs": self.length.value}
            if self.length.unit == "epochs"
            else {
                "budget": self.length.value,
                "budget_unit": self.length.unit,
            }
        )
        return {
            "data": recipe.pop("data"),
            "model": recipe.pop("model"),
            "limit": self.limit,
            # Left out where there is none, so that records from before there was noise still count.
            **({"noise": self.noise} if self.noise else {}),
            "arm": self.arm,
            "seed": self.seed,
            "strategy": find_arm(self.arm).words(self.settings),
            **length,
            "recipe": {key: value for key, value in recipe.items() if key != "epochs"},
            "schedules_follow": followed(self.lr_follows, self.length),
            "evaluations": self.evaluations,
            "device": self.device,
            "threads": torch.get_num_threads(),
        }


class TrainingRun:
    """A run at work: `advance` trains until the next evaluation, and evaluates.

    Runs can take turns within one process: each keeps torch's random streams of its own, on its
    GPU too, and leaves the global ones as it found them.

    Args:
        plan: what to run.
        data: the plan's data set.
    """

    def __init__(self, plan: Plan, data: ImageData) -> None:
        self.plan = plan
        self._device = torch.device(plan.device)
        recipe = plan.recipe
        self.model = recipe.make_model(data, seed=plan.seed).to(self._device)
        self._loss_fn = nn.CrossEntropyLoss()
        self._optimizer = recipe.make_optimizer(self.model.parameters())
        self.meter = Meter(len(data.train_labels), self._device)
        self._course = Course(plan.length, len(data.train_labels), recipe.batch_size)
        self._data = data
        self._arm = find_arm(plan.arm)
        # What takes no preparing is refused here, before any arm of a comparison has trained.
        ready = self._arm.outfit is None
        self._loader = self._wrap(self._arm.make(plan.settings, Outfit())) if ready else None
        self._test = make_test_loader(data, batch_size=1000)
        self._gpus = [self._device] if self._device.type == "cuda" else []
        self._random = [
            torch.Generator(device).manual_seed(plan.seed).get_state()
            for device in (torch.device("cpu"), *self._gpus)
        ]
        self._batches = self._train()
        self._losses = torch.zeros((), device=self._device)
        self._last = sb.Stats()
        self._trained = 0
        self._seen = sb.Stats()
        self.points: list[Point] = []
        scene = Scene(self.model, data, self._device)
        self._probes = {probe.words: probe.start(scene) for probe in plan.probes}

    @property
    def progress(self) -> float:
        """Fraction of the run that is done, 0 to 1."""
        if self.plan.length.unit != "epochs":
            return self._spent()
        return 0.0 if self._loader is None else self._loader.progress or 0.0

    @property
    def finished(self) -> bool:
        """Whether the last evaluation is done."""
        return len(self.points) >= self.plan.evaluations

    def advance(self) -> Point:
        """Train until the next evaluation is due, evaluate, and return what is known then."""
        due = (len(self.points) + 1) / self.plan.evaluations
        with self._own_random_streams():
            self.model.train()
            self.meter.start()
            # The last evaluation waits for the very end, leftover rows included.
            while (due >= 1.0 or self.progress < due) and next(self._batches, None) is not None:
                pass
            self.meter.stop()
            point = self._evaluate()
        self.points.append(point)
        return point

    def look(self) -> list[Observation]:
        """Ask the plan's probes what they see, after an evaluation."""
        progress = self.points[-1].progress
        self.model.eval()
        with torch.random.fork_rng(self._gpus):
            seen = {words: probe.look(progress) for words, probe in self._probes.items()}
        return [
            Observation(probe=words, progress=progress, seen=found)
            for words, found in seen.items()
            if found is not None
        ]

    def meters(self) -> dict[str, Any]:
        """Return what the whole run was metered at, for the end of its record."""
        return {
            **asdict(self.loader.stats),
            "prepared_cost": self.meter.prepared,
            "peak_memory_bytes": self.meter.peak_memory,
        }

    @property
    def loader(self) -> sb.SelectiveLoader:
        """The loader; what the arm needs is prepared when it is first asked for."""
        if self._loader is None:
            self._loader = self._outfit()
        return self._loader

    def _wrap(self, strategy: sb.Strategy) -> sb.SelectiveLoader:
        plan, recipe = self.plan, self.plan.recipe
        needs = strategy.needs
        self._records = needs is not None and needs.recordings
        budgeted = plan.length.unit != "epochs"
        return sb.SelectiveLoader(
            make_loader(
                self._data,
                batch_size=recipe.batch_size,
                seed=plan.seed,
                augmentation=recipe.augmentation,
            ),
            self.model,
            self._loss_fn,
            strategy,
            epochs=None if budgeted else plan.length.value,
            progress=self._spent if budgeted else None,
            with_selection=True,
            generator=torch.Generator().manual_seed(plan.seed),
            stopwatch=self.meter.stopwatch,
        )

    def _outfit(self) -> sb.SelectiveLoader:
        """Prepare what the arm needs, on the arm's own bill."""
        plan, outfit = self.plan, Outfit()
        if self._arm.outfit is not None:
            task = Task(plan.recipe, self._data, plan.seed, plan.length.value, self._device)
            with self.meter.stopwatch.phase("prepare"):
                outfit = self._arm.outfit(task, plan.settings)
        self.meter.prepared, self.meter.price = outfit.cost, outfit.price
        if self._exhausted:
            raise sb.ConfigurationError(
                f"preparing {plan.arm} costs {outfit.cost:.2f} traditional epochs, all of "
                f"{plan.length.words}; give it a larger one"
            )
        return self._wrap(self._arm.make(plan.settings, outfit))

    @property
    def _exhausted(self) -> bool:
        return self.plan.length.unit != "epochs" and self._spent() >= 1.0

    def _spent(self) -> float:
        length = self.plan.length
        used = self.meter.seconds if length.unit == "seconds" else self._cost(self._seen)
        return min(1.0, used / length.value)

    def _cost(self, stats: sb.Stats) -> float:
        return self.meter.cost(stats.scored, stats.checked)

    def _train(self) -> Iterator[int]:
        """Train to the end of the run, yielding the size of each batch."""
        epochs = math.inf
        if self.plan.length.unit == "epochs":
            epochs = self.plan.length.value
        epoch, loader = 0, self.loader
        while epoch < epochs and not self._exhausted:
            loader.set_epoch(epoch)
            for (inputs, targets), selection in loader:
                self._seen = loader.stats
                for probe in self._probes.values():
                    probe.selected(selection.indices)
                # Counted first: a learning rate belongs to the progress that its batch completes,
                # as the loader counts it where epochs end the run.
                self.meter.updated(len(targets))
                for group in self._optimizer.param_groups:
                    group["lr"] = self._learning_rate()
                self._step(inputs, targets, selection)
                yield len(targets)
                if self._exhausted:
                    return
            self._seen = loader.stats  # also in an epoch that yields no batch
            epoch += 1

    def _step(self, inputs: Tensor, targets: Tensor, selection: sb.Selection) -> None:
        phase = self.meter.stopwatch.phase
        with phase("forward"):
            losses = nn.functional.cross_entropy(self.model(inputs), targets, reduction="none")
            if self._records:
                self.loader.record(selection, losses)
            loss = (selection.weights * losses).mean()
        with phase("backward"):
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with phase("step"):
            self._optimizer.step()
            self._losses += loss.detach()

    def _learning_rate(self) -> float:
        standing = Standing(self.progress, self.loader.stats, self.meter)
        share = schedule_share(self.plan.lr_follows, self._course, standing)
        return self.plan.recipe.learning_rate_at(share)

    def _evaluate(self) -> Point:
        error, loss = evaluate(self.model, self._test, self._device)
        stats, meter, before = self.loader.stats, self.meter, self._last
        updates = meter.updates - (self.points[-1].updates if self.points else 0)
        candidates = stats.candidates - before.candidates
        rows = meter.trained - self._trained
        point = Point(
            progress=1.0 if len(self.points) + 1 == self.plan.evaluations else self.progress,
            epoch=stats.candidates / len(self._data.train_labels),
            cost=self._cost(stats),
            seconds=meter.seconds,
            cpu_seconds=meter.cpu_seconds,
            updates=meter.updates,
            candidates=stats.candidates,
            loaded=stats.loaded,
            scored=stats.scored + stats.checked,
            trained=meter.trained,
            test_error=error,
            test_loss=loss,
            train_loss=float(self._losses) / updates if updates else math.nan,
            rate=rows / candidates if candidates else math.nan,
            phases=meter.phases,
        )
        self._losses.zero_()
        self._last, self._trained = stats, meter.trained
        return point

    @contextmanager
    def _own_random_streams(self) -> Generator[None]:
        with torch.random.fork_rng(self._gpus):
            torch.set_rng_state(self._random[0])
            for gpu, state in zip(self._gpus, self._random[1:], strict=True):
                torch.cuda.set_rng_state(state, gpu)
            try:
                yield
            finally:
                of_gpus = (torch.cuda.get_rng_state(gpu) for gpu in self._gpus)
                self._random = [torch.get_rng_state(), *of_gpus]


@torch.no_grad()
def evaluate(model: nn.Module, loader: Any, device: torch.device) -> tuple[float, float]:
    """Return the error in per cent, and the mean cross-entropy, over a loader's examples."""
    model.eval()
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    loss = torch.zeros((), dtype=torch.float64, device=device)
    examples = 0
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        outputs: Tensor = model(inputs)
        loss += nn.functional.cross_entropy(outputs, targets, reduction="sum")
        wrong += (outputs.argmax(1) != targets).sum()
        examples += len(targets)
    return 100.0 * float(wrong) / examples, float(loss) / examples
