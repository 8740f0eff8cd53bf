"""One run: a recipe trained with one strategy and seed, a slice at a time, recorded as it goes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.loader import make_loader, make_test_loader
from selective_backprop.lab.meter import Meter
from selective_backprop.lab.preparation import Preparation, TrainingSetup
from selective_backprop.lab.records.example_history import ExampleHistory
from selective_backprop.lab.records.schema import Observation, Point
from selective_backprop.lab.strategies import find_strategy
from selective_backprop.lab.training.callbacks import Scene
from selective_backprop.lab.training.example_log import ExampleLog
from selective_backprop.lab.training.lr_schedule import Follows
from selective_backprop.lab.training.rng import Streams
from selective_backprop.lab.training.run_config import RunConfig


class TrainingRun:
    """A run at work: `advance` trains until the next evaluation, and evaluates.

    Runs can take turns within one process: each keeps torch's random streams of its own, on its
    GPU too, and leaves the global ones as it found them. Where it `follows`, it keeps what becomes
    of each training example.
    """

    def __init__(self, plan: RunConfig, data: ImageData, *, follows: bool = False) -> None:
        self.plan = plan
        self._device = torch.device(plan.device)
        recipe = plan.recipe
        self.meter = Meter(len(data.train_labels), self._device)
        with self.meter.beside():
            self.model = recipe.make_model(data, seed=plan.seed).to(self._device)
        self._loss_fn = nn.CrossEntropyLoss(reduction="none")
        self._weighing: Callable[[Any, Any], Any] | None = None
        self._optimizer = recipe.make_optimizer(self.model.parameters())
        self._data = data
        self._follower = _follow(plan, data) if follows else None
        self._arm = find_strategy(plan.arm)
        self._outfit: Preparation | None = None
        self._loader: sb.SelectiveLoader | None = None
        if self._arm.outfit is None:  # refused here, before any arm of a comparison has trained
            self._wrap(Preparation())
        self._test = make_test_loader(data, batch_size=1000)
        self._streams = Streams(plan.seed, self._device)
        self._batches = self._train()
        self._losses = torch.zeros((), device=self._device)
        self._seen = sb.Stats()
        self.points: list[Point] = []
        self.observations: list[Observation] = []
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

    def advance(self, pause: Callable[[], bool] = lambda: False) -> Point | None:
        """Train until the next evaluation is due, evaluate, and return what is known then.

        `pause` is called after each update, and may take the state. Where it says to stop, None is
        returned, and `advance` takes the run up again.
        """
        due = (len(self.points) + 1) / self.plan.evaluations
        with self._streams.own():
            self.model.train()
            self.meter.start()
            # The last evaluation waits for the very end, leftover rows included.
            while (due >= 1.0 or self.progress < due) and next(self._batches, None) is not None:
                if pause():
                    self.meter.stop()
                    return None
                if self._follower is not None and self._follower.is_full:
                    with self.meter.paused():
                        self._follower.settle()
            self.meter.stop()
            point = self._evaluate()
            if self._follower is not None:
                self._follower.evaluate(point.progress)
        self.points.append(point)
        return point

    def look(self) -> list[Observation]:
        """Ask the plan's probes what they see, after an evaluation."""
        progress = self.points[-1].progress
        self.model.eval()
        with self._streams.apart():
            looks = [(words, probe.look(progress)) for words, probe in self._probes.items()]
        found = [
            Observation(probe=words, progress=progress, seen=seen)
            for words, seen in looks
            if seen is not None
        ]
        self.observations.extend(found)
        return found

    def meters(self) -> dict[str, Any]:
        """Return what the whole run was metered at, for the end of its record."""
        return {
            **asdict(self.loader.stats),
            "prepared_cost": self.meter.prepared,
            "peak_memory_bytes": self.meter.peak_memory,
        }

    def history(self) -> ExampleHistory | None:
        """Return what became of each training example so far; None where none was followed."""
        if self._follower is None:
            return None
        subset = self._outfit.subset if self._outfit else None
        drawn_from = self._data.train_labels if subset is None else subset
        passes = self.loader.stats.candidates / len(drawn_from)
        return self._follower.history(self._data, passes=passes)

    @property
    def done(self) -> float:
        """The share of its evaluations that a run has come to, by which runs take turns."""
        return len(self.points) / self.plan.evaluations

    @property
    def begun(self) -> bool:
        """Whether an update was taken, so that there is a state worth keeping."""
        return self.meter.updates > 0

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the run depends on, between two updates or at rest."""
        loader = self.loader.state_dict()
        return {
            "outfit": self._outfit.pack() if self._outfit else None,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "loader": loader,
            "streams": self._streams.state_dict(),
            "meter": self.meter.state_dict(),
            "points": [asdict(point) for point in self.points],
            "observations": [asdict(observation) for observation in self.observations],
            "losses": self._losses,
            "probes": {words: probe.state_dict() for words, probe in self._probes.items()},
            "examples": None if self._follower is None else self._follower.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the `state_dict()` of a run of the same plan and data, before the first step.

        What the arm needs is not prepared again where the state holds it.

        Raises:
            RecordError: if the weights are those of another model, or this is no such state; the
                run is then of no more use.
        """
        try:
            self._go_on(state)
        except sb.RecordError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise sb.RecordError(
                f"what was kept is no state of this run ({why}); begin the run anew"
            ) from error

    def _go_on(self, state: dict[str, Any]) -> None:
        if self._loader is None and state["outfit"] is not None:
            self._wrap(Preparation.unpack(state["outfit"]))
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise sb.RecordError(
                f"the weights that were kept do not fit the model {self.plan.recipe.model!r} as it "
                "is made now; make it as it was, or begin the run anew"
            ) from error
        self.points = [Point(**point) for point in state["points"]]
        self.observations = [Observation(**each) for each in state["observations"]]
        self.loader.load_state_dict(state["loader"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._streams.load_state_dict(state["streams"])
        self.meter.load_state_dict(state["meter"])
        self._losses.copy_(state["losses"])
        self._seen = self.loader.stats
        for words, probe in self._probes.items():
            probe.load_state_dict(state["probes"][words])
        if self._follower is not None and state["examples"] is not None:
            self._follower.load_state_dict(state["examples"])
        else:
            self._follower = None  # half a history would be a wrong one

    @property
    def loader(self) -> sb.SelectiveLoader:
        """The loader; what the arm needs is prepared when it is first asked for."""
        return self._wrap(self._prepare()) if self._loader is None else self._loader

    def _wrap(self, outfit: Preparation) -> sb.SelectiveLoader:
        plan, recipe = self.plan, self.plan.recipe
        strategy = self._arm.make(plan.settings, outfit)
        needs = strategy.needs
        self._records = needs is not None and needs.recordings
        budgeted = plan.length.unit != "epochs"
        loader = sb.SelectiveLoader(
            make_loader(
                self._data,
                batch_size=recipe.batch_size,
                seed=plan.seed,
                augmentation=recipe.augmentation,
                with_indices=True,
            ),
            self.model,
            self._loss_fn,
            strategy,
            outputs=self._outputs,
            epochs=None if budgeted else plan.length.value,
            progress=self._spent if budgeted else None,
            with_selection=True,
            generator=torch.Generator().manual_seed(plan.seed),
            stopwatch=self.meter.stopwatch,
            quiet=True,
        )
        if strategy.schedule.gate is not None:
            self._weighing = loader.loss_fn  # which shows the gate what training computes
        self._outfit, self._loader = outfit, loader
        return loader

    def _outputs(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return what a scorer takes losses of."""
        inputs, targets, indices = batch
        logits = model(inputs)
        # With gradients, a proxy learns from a batch that is trained on.
        if self._follower is not None and not torch.is_grad_enabled():
            self._follower.score(indices, logits if model is self.model else None)
        return logits, targets

    def _prepare(self) -> Preparation:
        """Prepare what the arm needs, on the arm's own bill."""
        plan = self.plan
        assert self._arm.outfit is not None
        task = TrainingSetup(plan.recipe, self._data, plan.seed, plan.length.value, self._device)
        with self.meter.stopwatch.phase("prepare"):
            outfit = self._arm.outfit(task, plan.settings)
        self.meter.prepared, self.meter.price = outfit.cost, outfit.price
        if self._exhausted:
            raise sb.ConfigurationError(
                f"preparing {plan.arm} costs {outfit.cost:.2f} traditional epochs, all of "
                f"{plan.length.words}; give it a larger one"
            )
        return outfit

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
        length, loader = self.plan.length, self.loader
        epochs = length.value if length.unit == "epochs" else math.inf
        while loader.next_epoch < epochs and not self._exhausted:
            if self._follower is not None:
                self._follower.begin(loader.next_epoch)
            loader.set_epoch(loader.next_epoch)
            for (inputs, targets, _), selection in loader:
                self._seen = loader.stats
                for probe in self._probes.values():
                    probe.selected(selection.indices)
                # Counted first: a learning rate belongs to the progress that its batch completes,
                # as the loader counts it where epochs end the run.
                self.meter.updated(len(targets))
                learning_rate = self.plan.recipe.learning_rate_at(self._schedule_share())
                for group in self._optimizer.param_groups:
                    group["lr"] = learning_rate
                self._step(inputs, targets, selection)
                yield len(targets)
                if self._exhausted:
                    return
            self._seen = loader.stats  # also in an epoch that yields no batch

    def _step(self, inputs: Tensor, targets: Tensor, selection: sb.Selection) -> None:
        phase = self.meter.stopwatch.phase
        with phase("forward"):
            logits = self.model(inputs)
            if self._follower is not None and selection.indices is not None:
                self._follower.train(selection.indices, logits)
            if self._weighing is not None:
                loss = self._weighing(logits, targets).mean()
            else:
                losses = self._loss_fn(logits, targets)
                if self._records:
                    self.loader.record(selection, losses)
                loss = (selection.weights * losses).mean()
        with phase("backward"):
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with phase("step"):
            self._optimizer.step()
            self._losses += loss.detach()

    def _schedule_share(self) -> float:
        """Return the share of its schedule that the run has come to; above 1 once it is over.

        The update that is being taken is counted already.
        """
        plan, stats = self.plan, self.loader.stats
        length, examples = plan.length.value, len(self._data.train_labels)
        match plan.lr_follows:
            case Follows.EPOCHS:
                ends = min(stats.epoch + 1, length)  # a budget may end within an epoch
                return (stats.epoch + ends) / 2 / length
            case Follows.CANDIDATES:
                return stats.candidates / (length * examples)
            case Follows.UPDATES:
                # The last update of an epoch is on what is left for it.
                updates = math.ceil(examples / plan.recipe.batch_size)
                return self.meter.updates / (length * updates)
            case Follows.SECONDS:
                return self.meter.seconds / length
            case Follows.RUN:
                return self.progress

    def _evaluate(self) -> Point:
        with self.meter.beside():
            error, loss = evaluate(self.model, self._test, self._device)
        stats, meter = self.loader.stats, self.meter
        updates, candidates, rows = meter.updates, stats.candidates, meter.trained
        if self.points:  # since the last one
            updates -= self.points[-1].updates
            candidates -= self.points[-1].candidates
            rows -= self.points[-1].trained
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
            overhead=meter.overhead,
        )
        self._losses.zero_()
        return point


def _follow(plan: RunConfig, data: ImageData) -> ExampleLog:
    # An epoch that is drawn from at some rate costs no less than this share of a traditional one.
    longest = {"epochs": 1.0, "cost": 1.0 / plan.settings.rate, "seconds": math.inf}
    return ExampleLog(data.train_labels, epochs=plan.length.value * longest[plan.length.unit])


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
