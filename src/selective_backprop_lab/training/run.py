"""One run: a recipe trained with one strategy and seed, from evaluation to evaluation."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import selective_backprop as sb
from selective_backprop_lab.budget import ScheduleBasis
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.loader import make_loader, on_device
from selective_backprop_lab.data.splits import stratified_order
from selective_backprop_lab.meter import Meter
from selective_backprop_lab.nets.models import take_over
from selective_backprop_lab.preparation import Halving, Preparation, TrainingSetup, row_losses
from selective_backprop_lab.records.example_history import ExampleHistory
from selective_backprop_lab.records.schema import Observation, Point
from selective_backprop_lab.training.evaluation import evaluate
from selective_backprop_lab.training.example_log import ExampleLog
from selective_backprop_lab.training.process import RandomStreams
from selective_backprop_lab.training.run_config import Memory, ProbeContext, RunConfig

_EMPTY = 100  # epochs in a row; of few examples, none may be drawn in several
_PROBED = 10_000  # the most training labels on which the training error is measured


class TrainingRun:
    """A run in progress, which may take turns with others: each has its own random streams.

    A run that fine-tunes takes the `weights` of the net to begin with. With `log_examples`, it
    records the history of each training example, except for text.
    """

    def __init__(
        self,
        config: RunConfig,
        data: LabData,
        *,
        weights: Mapping[str, Tensor] | None = None,
        log_examples: bool = False,
    ) -> None:
        assert (weights is None) == (config.pretrained is None)
        self.config, self.data = config, data
        self._device = torch.device(config.device)
        recipe = config.recipe
        self.meter = Meter(len(data.train_labels), self._device)
        with self.meter.as_overhead():
            self.model = recipe.make_model(data, seed=config.own_seed).to(self._device)
            if weights is not None:
                take_over(self.model, weights, head=data.is_text)
        self._loss_fn = nn.CrossEntropyLoss(
            reduction="none", label_smoothing=config.strategy.smoothing
        )
        self._weighing: Callable[[Any, Any], Any] | None = None
        self._optimizer = recipe.make_optimizer(self.model.parameters())
        logs = log_examples and not data.is_text
        self._log = ExampleLog(data.train_labels) if logs else None
        spec = self._spec = config.strategy
        if data.is_text and spec.classifies:
            raise sb.ConfigurationError(
                f"{config.arm} needs one class for each example, but {data.name} is text; compare "
                "strategies that only need losses, such as selective-backprop, infobatch and auto"
            )
        # Izmailov et al. 2018, arXiv:1803.05407, without its constant learning rate. Buffers, such
        # as the means of BatchNorm, are those of the model in training.
        self._mean = AveragedModel(self.model) if spec.averaged else None
        self._halving = Halving(self.model, data, spec.halved) if spec.halved else None
        self._preparation: Preparation | None = None
        self._loader: sb.SelectiveLoader | None = None
        if spec.prepare is None:  # errors are raised here, before any run has trained
            self._make_loader(Preparation())
        # A smaller batch for text, which has many tokens, each with a row of logits.
        self._test = make_loader(
            on_device(data, self._device),
            batch_size=recipe.batch_size if data.is_text else 1000,
            test=True,
        )
        self._streams = RandomStreams(config.own_seed, self._device)
        self._batches = self._train()
        self._losses = torch.zeros((), device=self._device)
        self._class_weights: Tensor | None = None
        if spec.weighs_classes:
            sizes = data.train_labels.bincount(minlength=data.classes)
            self._class_weights = sizes.clamp(min=1).reciprocal().to(self._device)
        self._recent: list[tuple[Tensor, Tensor]] = []  # labels and weights to be counted
        # The weights that each class was trained with, all together.
        self._by_class = torch.zeros(data.classes, dtype=torch.float64, device=self._device)
        self._seen = sb.Stats()
        self.points: list[Point] = []
        self.observations: list[Observation] = []
        self._scene = ProbeContext(self.model, data, self._device)
        self._memories: dict[str, Memory] = {repr(probe): {} for probe in config.probes}

    @property
    def progress(self) -> float:
        """Fraction of the run that is done, 0 to 1."""
        if self.config.length.unit != "epochs":
            return self._spent()
        return 0.0 if self._loader is None else self._loader.progress or 0.0

    @property
    def finished(self) -> bool:
        """Whether the last evaluation is done."""
        return len(self.points) >= self.config.evaluations

    def advance(self, pause: Callable[[], bool] = lambda: False) -> Point | None:
        """Train until the next evaluation is due, evaluate, and return the result.

        `pause` is called after each update, and may save the state. If it returns True, this
        returns None; call it again to continue.
        """
        due = (len(self.points) + 1) / self.config.evaluations
        with self._streams.own():
            self.model.train()
            self.meter.start()
            with self._halving.acting() if self._halving is not None else nullcontext():
                # The last evaluation waits for the very end, including leftover rows.
                while (due >= 1.0 or self.progress < due) and next(self._batches, None) is not None:
                    if pause():
                        self.meter.stop()
                        return None
                    if self._log is not None and self._log.is_full:
                        with self.meter.paused():
                            self._log.flush()
            self.meter.stop()
            point = self._evaluate()
            if self._log is not None:
                self._log.flush()
        self.points.append(point)
        return point

    def look(self) -> list[Observation]:
        """Return what the run's probes see after an evaluation."""
        progress = self.points[-1].progress
        self.model.eval()
        with self._streams.apart():
            looks = [
                (repr(probe), probe.look(self._scene, progress, self._memories[repr(probe)]))
                for probe in self.config.probes
            ]
        found = [Observation(probe=n, progress=progress, seen=s) for n, s in looks if s is not None]
        self.observations.extend(found)
        return found

    def meters(self) -> dict[str, Any]:
        """Return the counts over the whole run, for the end of its record."""
        wrong = self.loader.wrong_labels
        return {
            **asdict(self.loader.stats),
            "prepared_cost": self.meter.prepared,
            "peak_memory_bytes": self.meter.peak_memory,
            "class_shares": self._class_shares(),
            "train_error": self._train_error(),
            "wrong_labels": wrong and wrong.share * wrong.is_clear,
            # Text is judged by bits per byte, which have no smallest step.
            **({} if self.data.is_text else {"test_examples": len(self.data.test_labels)}),
        }

    def _train_error(self) -> float:
        # In percent, on training examples with their labels, not augmented.
        labels = self.data.train_labels
        count = _PROBED * len(labels) // labels.numel()
        part = on_device(self.data, self._device).within(stratified_order(labels)[:count])
        loader = make_loader(part, batch_size=1000, seed=0, shuffle=False)
        return evaluate(self.model, loader, self._device)["test_error"]

    def _class_shares(self) -> list[float]:
        if self.data.is_text:
            return []
        clean = self.data.train_clean_labels
        labels = self.data.train_labels if clean is None else clean
        return (labels.bincount(minlength=self.data.classes).double() / len(labels)).tolist()

    def history(self) -> ExampleHistory | None:
        """Return the history of each training example so far; None if it was not logged."""
        if self._log is None:
            return None
        subset = self._preparation.subset if self._preparation else None
        drawn_from = self.data.train_labels if subset is None else subset
        return self._log.history(self.data, passes=self.loader.stats.candidates / len(drawn_from))

    @property
    def _parts(self) -> dict[str, Any]:
        parts = {  # in the order in which they are restored
            "model": self.model,
            "loader": self.loader,
            "optimizer": self._optimizer,
            "streams": self._streams,
            "meter": self.meter,
            "halving": self._halving,
            "averaging": self._mean,
            "examples": self._log,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the run depends on; call this between two updates."""
        self._count_classes()
        return {
            **{name: part.state_dict() for name, part in self._parts.items()},
            "preparation": self._preparation.pack() if self._preparation else None,
            "points": [asdict(point) for point in self.points],
            "observations": [asdict(observation) for observation in self.observations],
            "losses": self._losses,
            "by_class": self._by_class,
            "probes": {name: dict(memory) for name, memory in self._memories.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the `state_dict()` of the same run, before the first step."""
        if self._loader is None and state["preparation"] is not None:
            self._make_loader(Preparation.unpack(state["preparation"]))
        if "examples" not in state:
            self._log = None  # half a history would be wrong
        self.points = [Point(**point) for point in state["points"]]
        self.observations = [Observation(**each) for each in state["observations"]]
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self._losses.copy_(state["losses"])
        self._by_class.copy_(state["by_class"])
        self._seen = self.loader.stats
        self._memories = {name: dict(memory) for name, memory in state["probes"].items()}

    @property
    def loader(self) -> sb.SelectiveLoader:
        """The loader; the strategy's preparation is made when this is first used."""
        return self._make_loader(self._prepare()) if self._loader is None else self._loader

    def _make_loader(self, preparation: Preparation) -> sb.SelectiveLoader:
        config, recipe = self.config, self.config.recipe
        strategy = self._spec.make(config.options, preparation)
        needs = strategy.needs
        self._records = needs is not None and needs.recordings
        budgeted = config.length.unit != "epochs"
        batch = recipe.batch_size * self._spec.batches
        loader = sb.SelectiveLoader(
            make_loader(
                on_device(self.data, self._device),
                batch_size=self._scored_together(strategy, batch),
                seed=config.own_seed,
                augmentation=recipe.augmentation,
                thinned=self._spec.thinned,
                with_indices=True,
            ),
            self.model,
            self._loss_fn,
            strategy,
            outputs=self._outputs,
            leftovers=self._spec.leftovers,
            epochs=None if budgeted else config.length.value,
            progress=self._spent if budgeted else None,
            batch_size=batch,
            with_selection=True,
            generator=torch.Generator().manual_seed(config.own_seed),
            stopwatch=self.meter.stopwatch,
            quiet=True,
        )
        if strategy.schedule.gate is not None or self._spec.smoothing:
            # It shows training's outputs to a gate, and records losses without smoothing.
            self._weighing = loader.loss_fn
        self._preparation, self._loader = preparation, loader
        return loader

    def _scored_together(self, strategy: sb.Strategy, batch: int) -> int:
        exact = getattr(strategy.selector, "draw", None) is sb.selectors.Draw.EXACT
        if self._device.type == "cpu" or not (exact and strategy.scores):
            return batch
        return max(batch, round(batch / self.config.settings.rate))

    def _outputs(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        inputs, targets, indices = batch
        logits = model(inputs)
        # With gradients, this is not scoring: a proxy learns from a training batch.
        if self._log is not None and not torch.is_grad_enabled():
            self._log.note(indices, logits if model is self.model else None, trained=False)
        return logits, targets

    def _prepare(self) -> Preparation:
        config, length = self.config, self.config.length
        assert self._spec.prepare is not None
        setup = TrainingSetup(config.recipe, self.data, config.own_seed, length.value, self._device)
        with self.meter.stopwatch.phase("prepare"):
            found = self._spec.prepare(setup, config.settings)
        found = replace(found, cost=found.cost / self._spec.trainings)
        self.meter.prepared, self.meter.price = found.cost, found.price
        if self._exhausted:
            raise sb.ConfigurationError(
                f"preparing {config.arm} costs {found.cost:.2f} passes, of a budget of "
                f"{length}; give it a larger budget"
            )
        return found

    @property
    def _exhausted(self) -> bool:
        return self.config.length.unit != "epochs" and self._spent() >= 1.0

    def _spent(self) -> float:
        length = self.config.length
        used = self.meter.host.total if length.unit == "seconds" else self._cost(self._seen)
        return min(1.0, used / length.value)

    def _cost(self, stats: sb.Stats) -> float:
        cost, prepared = self.meter.cost(stats.scored, stats.checked), self.meter.prepared
        # What is trained for a preparation sees images of full size.
        return cost if self._halving is None else prepared + self._halving.paid(cost - prepared)

    def _train(self) -> Iterator[int]:
        length, loader = self.config.length, self.loader
        epochs = length.value if length.unit == "epochs" else math.inf
        empty = 0
        while loader.next_epoch < epochs and not self._exhausted:
            before = loader.stats
            loader.set_epoch(loader.next_epoch)
            for (inputs, targets, _), selection in loader:
                self._seen = loader.stats
                for probe in self.config.probes:
                    probe.select(self._scene, selection.indices, self._memories[repr(probe)])
                # Counted first: the learning rate belongs to the progress after its batch. The
                # loader counts in the same way if the run's length is in epochs.
                self.meter.updates += 1
                self.meter.trained += len(targets)
                learning_rate = self.config.recipe.learning_rate_at(self._schedule_share())
                for group in self._optimizer.param_groups:
                    group["lr"] = learning_rate
                self._step(inputs, targets, selection)
                if self._mean is not None and self.progress >= 1.0 - self._spec.averaged:
                    self._mean.update_parameters(self.model)
                if self._halving is not None:
                    whole = self.meter.cost(self._seen.scored, self._seen.checked)
                    self._halving.went_on(self.progress, whole - self.meter.prepared)
                yield len(targets)
                if self._exhausted:
                    return
            self._seen = loader.stats  # also in an epoch that yields no batch
            empty = empty + 1 if _taken(before) == _taken(self._seen) else 0
            if empty == _EMPTY:  # a budget would never be spent
                raise sb.LossError(f"no example was kept in {empty} epochs, so it ends here")

    def _step(self, inputs: Tensor, targets: Tensor, selection: sb.Selection) -> None:
        phase = self.meter.stopwatch.phase
        with phase("forward"):
            loss = self._loss(inputs, targets, selection)
        with phase("backward"):
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with phase("step"):
            self._optimizer.step()
            self._losses += loss.detach()
            self._recent.append((targets, selection.weights))
            if len(self._recent) == 64:  # on a GPU, each count takes kernels of its own
                self._count_classes()

    def _loss(self, inputs: Tensor, targets: Tensor, selection: sb.Selection) -> Tensor:
        logits = self.model(inputs)
        if self._log is not None and selection.indices is not None:
            self._log.note(selection.indices, logits, trained=True)
        if self._weighing is not None:
            return self._weighing(logits, targets).mean()
        losses = self._loss_fn(logits, targets)
        rows = row_losses(losses)
        if self._records:
            self.loader.record(selection, rows, (logits, targets))
        if self._spec.loss is not None:
            rows = self._spec.loss(logits, targets, self.progress)
        if self._class_weights is None:
            return (selection.weights * rows).mean()
        weights = selection.weights * self._class_weights[targets]
        return (weights * rows).mean() / weights.mean()

    def _schedule_share(self) -> float:
        config = self.config
        if config.lr_follows is ScheduleBasis.RUN:
            return self.progress
        timed = config.length.unit == "seconds"
        epochs = config.recipe.epochs if timed else config.length.value
        return self.loader.stats.candidates / (epochs * len(self.data.train_labels))

    def _count_classes(self) -> None:
        if self._recent and not self.data.is_text:
            labels, weights = map(torch.cat, zip(*self._recent, strict=True))
            self._by_class.index_add_(0, labels, weights.double())
        self._recent.clear()

    def _shift(self) -> Tensor | None:
        """Return what corrects the logits for classes that were trained on less than others."""
        self._count_classes()
        labels = self.data.train_labels.to(self._device)
        if self.data.is_text or not bool(self._by_class.any()):
            return None
        there = labels.bincount(minlength=self.data.classes).double()
        trained = self._by_class / self._by_class.sum()
        shares = torch.where((there > 0) & (trained > 0), there / there.sum() / trained, 1.0)
        return shares.log().float()

    def _evaluate(self) -> Point:
        with self.meter.as_overhead():
            averaged = self._mean is not None and self._mean.n_averaged
            model = self._mean if averaged else self.model
            found = evaluate(model, self._test, self._device, self._shift())
        stats, meter = self.loader.stats, self.meter
        # Since the last evaluation.
        last = self.points[-1] if self.points else None
        updates = meter.updates - (last.updates if last else 0)
        candidates = stats.candidates - (last.candidates if last else 0)
        rows = meter.trained - (last.trained if last else 0)
        point = Point(
            progress=1.0 if len(self.points) + 1 == self.config.evaluations else self.progress,
            epoch=stats.candidates / len(self.data.train_labels),
            cost=self._cost(stats),
            seconds=meter.seconds,
            cpu_seconds=meter.cpu_seconds,
            updates=meter.updates,
            candidates=stats.candidates,
            loaded=stats.loaded,
            scored=stats.scored + stats.checked,
            trained=meter.trained,
            train_loss=float(self._losses) / updates if updates else math.nan,
            rate=rows / candidates if candidates else math.nan,
            phases=meter.phases,
            overhead=meter.overhead,
            **found,
        )
        self._losses.zero_()
        return point


def _taken(stats: sb.Stats) -> int:
    return stats.kept + stats.waiting + stats.dropped + stats.scored
