"""What `bench` trains: a model, some images, and a recipe."""

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.datasets import LabData, load
from selective_backprop_lab.data.loader import make_loader, on_device
from selective_backprop_lab.data.splits import Splits, stratified_order
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.recipe import RECIPES, Precision, Recipe, find_recipe

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:/(\d+))?")
WINDOWS = 4  # per epoch: few, so that rounds are short; the start of an epoch weighs more for it


@dataclass(frozen=True, eq=False)
class Workload:
    """What is trained while it is timed."""

    recipe: Recipe  # without its learning-rate schedule
    data: LabData  # the training images of an epoch; if there is a GPU, in its memory
    model: nn.Module
    optimizer: Optimizer
    device: torch.device
    window: int  # number of candidates that a training batch is drawn from

    @property
    def rate(self) -> float:
        """The share of the candidates that selection keeps."""
        return self.recipe.batch_size / self.window

    @property
    def examples(self) -> int:
        """Number of candidates in an epoch."""
        return len(self.data.train_labels)

    @property
    def at_once(self) -> int:
        """Candidates per scoring pass: a window on a GPU, because small batches leave it idle."""
        return self.window if self.device.type == "cuda" else self.recipe.batch_size

    def loader(self, *, scored: bool = False) -> DataLoader[Any]:
        """Return a loader of training batches, or of the batches that are scored."""
        size = self.at_once if scored else self.recipe.batch_size
        augmentation = self.recipe.augmentation
        return make_loader(self.data, batch_size=size, seed=0, augmentation=augmentation)

    def losses(self, model: nn.Module, batch: Any, precision: Precision | None = None) -> Tensor:
        """Return the loss of each example of a batch, by default in the training's precision."""
        with (precision or self.recipe.precision).autocast(self.device):
            return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    def outputs(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the model's outputs for a batch, and its labels."""
        with self.recipe.precision.autocast(self.device):
            return model(batch[0]), batch[1]


def make_workload(
    recipe: Recipe, *, rate: float, device: torch.device, root: Path | None = None
) -> Workload:
    """Load or make images, and set up a model to train on them."""
    if not 0.0 < rate <= 1.0:
        raise sb.ConfigurationError(f"--rate {rate:g}: a share in (0, 1] is needed, such as 1/3")
    window = max(recipe.batch_size, round(recipe.batch_size / rate))
    made = _SHAPE.fullmatch(recipe.data)
    data = made_up(recipe.data, WINDOWS * window) if made else load(recipe.data, root=root)
    total = len(data.train_labels)
    if total < window:
        raise sb.ConfigurationError(
            f"a batch of {recipe.batch_size:,} is selected from {window:,} candidates, but "
            f"{data.name} has {total:,} training examples; give a smaller --batch-size or a higher "
            "--rate"
        )
    if not made:
        whole = min(WINDOWS, total // window) * window
        data = data.within(stratified_order(data.train_labels)[:whole])
    model = make_model(recipe.model, data, seed=0).to(device)
    # Selection is to be measured, not loading: a single loading process would be too slow.
    data = on_device(data, device)
    optimizer = recipe.make_optimizer(model.parameters())
    return Workload(recipe, data, model, optimizer, device, window)


def all_scorers(
    device: torch.device, precision: Precision
) -> dict[str, tuple[sb.scorers.AbstractScorer, Precision]]:
    """Return the scorers to time, each with the precision that it scores in."""
    exact = sb.scorers.Forward()
    other = Precision.FP32 if precision is Precision.BF16 else Precision.BF16
    found: dict[str, tuple[sb.scorers.AbstractScorer, Precision]] = {
        "forward": (exact, precision),
        str(other): (exact, other),
    }
    if find_spec("torchao"):
        found["quantized"] = sb.experimental.Quantized(exact, every=8, check=None), precision
    if device.type == "cuda":
        # One batch ahead is enough, since each batch is a whole window.
        ahead = sb.experimental.Pipelined(exact, every=8, ahead=1, check=None)
        found["pipelined"] = ahead, precision
    return found


def bench_recipe(data: str) -> Recipe:
    """Return the recipe of a data set, or one for images of a shape."""
    if _SHAPE.fullmatch(data):
        return replace(RECIPES["cifar10"], data=data, augmentation=Augmentation())
    return find_recipe(data)


def made_up(shape: str, count: int) -> LabData:
    """Make images of a shape such as `3x32x32/10`; some are easier to classify than others."""
    found = _SHAPE.fullmatch(shape)
    channels, height, width = (int(part) for part in found.groups()[:3]) if found else (0, 0, 0)
    classes = int(found[4] or 10) if found else 0
    if height != width or not min(channels, height, classes):
        raise sb.ConfigurationError(
            f"--data {shape}: write channels, height and width of square images, and the number "
            "of classes if it is not 10, such as 3x32x32/100"
        )
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % classes
    centres = torch.rand(classes, channels, height, width, generator=generator)
    noise = torch.rand(count, channels, height, width, generator=generator)
    clear = torch.rand(count, 1, 1, 1, generator=generator)  # 0 is pure noise, 1 is no noise
    images = (255 * torch.lerp(noise, centres[labels], clear)).to(torch.uint8)
    names = tuple(str(number) for number in range(classes))
    return LabData.of(shape, Splits(images, labels, images[:1], labels[:1], names))
