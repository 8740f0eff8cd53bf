"""What `bench` measures on: a model, some images, and how to train on them."""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.augment import Augmentation
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.hub import HUB
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.data.splits import stratified_order
from selective_backprop.lab.nets.models import make_model
from selective_backprop.lab.recipe import RECIPES, Precision, Recipe, find_recipe

WINDOWS = {"cpu": 2, "cuda": 6}  # that an epoch has: few, so that a round is short
STUDIED = 20  # steps after which a model is no longer random, nor done
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:/(\d+))?")


@dataclass(frozen=True, eq=False)
class Workload:
    """A model that was trained briefly, and the images that it is trained on."""

    recipe: Recipe  # without its learning-rate schedule
    data: ImageData  # as many training images as an epoch has; on a GPU they lie there
    rate: float  # share of them that selection keeps
    device: torch.device
    model: nn.Module  # to be copied, and left alone

    @property
    def precision(self) -> Precision:
        """What training computes in; the model itself is in full precision."""
        return self.recipe.precision

    @property
    def window(self) -> int:
        """Candidates for a full training batch."""
        return window_of(self.recipe.batch_size, self.rate)

    @property
    def examples(self) -> int:
        """Training images: candidates of an epoch."""
        return len(self.data.train_labels)

    @property
    def at_once(self) -> int:
        """Candidates of one forward pass: on a GPU, which small batches leave idle, a window."""
        return self.window if self.device.type == "cuda" else self.recipe.batch_size

    def batches(self, size: int | None = None) -> list[tuple[Tensor, Tensor]]:
        """Return all training images, where the model is, in batches of a size or the recipe's."""
        size = size or self.recipe.batch_size
        loader = make_loader(self.data, batch_size=size, seed=0, shuffle=False)
        return [(images.to(self.device), labels.to(self.device)) for images, labels in loader]


def make_workload(
    recipe: Recipe, *, rate: float, device: torch.device, root: Path | None = None
) -> Workload:
    """Load or make images, and train a model on them for a moment."""
    window, windows = window_of(recipe.batch_size, rate), WINDOWS.get(device.type, WINDOWS["cpu"])
    data = find_images(recipe.data, root, made=windows * window)
    if not is_shape(recipe.data):
        data = _whole_windows(data, window, windows, recipe)
    model = make_model(recipe.model, data, seed=0).to(device)
    if device.type == "cuda":
        # What is measured is selection: one process that loads would keep a GPU waiting.
        images, labels = (part.to(device) for part in (data.train_images, data.train_labels))
        data = replace(data, train_images=images, train_labels=labels)
    workload = Workload(recipe, data, rate, device, model)
    timed, batches = TimedModel(workload, sb.Stopwatch()), workload.batches()
    for number in range(STUDIED):
        timed.step(*batches[number % len(batches)])
    return replace(workload, model=timed.model)


class TimedModel:
    """A copy of a workload's model, with its optimiser, whose steps charge a stopwatch."""

    def __init__(self, workload: Workload, stopwatch: sb.Stopwatch) -> None:
        self.model = copy.deepcopy(workload.model).train()
        self._workload = workload
        self._optimizer = workload.recipe.make_optimizer(self.model.parameters())
        self._stopwatch = stopwatch

    def step(
        self,
        images: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        told: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Take one training step; `told` is called with the rows' losses."""
        with self._stopwatch.phase("forward"):
            self._optimizer.zero_grad()
            with self._workload.precision.autocast(self._workload.device):
                losses = functional.cross_entropy(self.model(images), labels, reduction="none")
            loss = (losses if weights is None else losses * weights).mean()
        if told is not None:
            with self._stopwatch.phase("select"):
                told(losses.detach())
        with self._stopwatch.phase("backward"):
            loss.backward()
        with self._stopwatch.phase("step"):
            self._optimizer.step()


def window_of(batch_size: int, rate: float) -> int:
    """Return how many candidates a full training batch is drawn from."""
    if not 0.0 < rate <= 1.0:
        raise sb.ConfigurationError(f"--rate {rate:g}: a share in (0, 1] is needed, such as 1/3")
    return max(batch_size, round(batch_size / rate))


def is_shape(data: str) -> bool:
    """Return whether `--data` describes images instead of naming some."""
    return _SHAPE.fullmatch(data) is not None


def bench_recipe(data: str) -> Recipe:
    """Return the recipe of a data set, or one for images of a shape."""
    if is_shape(data):
        return replace(RECIPES["cifar10"], data=data, augmentation=Augmentation())
    if data not in RECIPES and not data.startswith(HUB):
        raise sb.ConfigurationError(
            f"--data {data}: there are {', '.join(RECIPES)}, and {HUB}NAME for one of the Hugging "
            "Face hub; or describe images, such as 3x32x32, or 1x28x28/5 for 5 classes"
        )
    return find_recipe(data)


def find_images(data: str, root: Path | None, *, made: int, limit: int | None = None) -> ImageData:
    """Load images by name, or make as many as the limit or `made` says."""
    if is_shape(data):
        return made_up(data, made if limit is None else limit)
    return datasets.load(data, root=root, limit=limit)


def made_up(shape: str, count: int) -> ImageData:
    """Make images of a shape such as `3x32x32/10`, easier and harder to tell apart by class."""
    found = _SHAPE.fullmatch(shape)
    channels, height, width = (int(part) for part in found.groups()[:3]) if found else (0, 0, 0)
    classes = int(found[4] or 10) if found else 0
    if height != width or not min(channels, height, classes):
        raise sb.ConfigurationError(
            f"--data {shape}: write channels, height and width of square images, and the number "
            "of classes where it is not 10, such as 3x32x32/100"
        )
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    centres = torch.rand(classes, channels, height, width, generator=generator)
    noise = torch.rand(count, channels, height, width, generator=generator)
    clear = torch.rand(count, 1, 1, 1, generator=generator)  # from all noise to none
    images = (255 * torch.lerp(noise, centres[labels], clear)).to(torch.uint8)
    mean, std = datasets.channel_statistics(images)
    names = tuple(str(number) for number in range(classes))
    return ImageData(shape, images, labels, images[:1], labels[:1], names, mean, std)


def _whole_windows(data: ImageData, window: int, most: int, recipe: Recipe) -> ImageData:
    """Return the data with as many training examples as fill some windows, `most` at most."""
    total = len(data.train_labels)
    kept = stratified_order(data.train_labels)[: min(most, total // window) * window]
    if not len(kept):
        raise sb.ConfigurationError(
            f"a batch of {recipe.batch_size:,} is selected from {window:,} candidates, and "
            f"{data.name} has {total:,} training examples; give a smaller --batch-size or a higher "
            "--rate"
        )
    images, labels = data.train_images[kept], data.train_labels[kept]
    mean, std = datasets.channel_statistics(images)
    return replace(data, train_images=images, train_labels=labels, mean=mean, std=std)
