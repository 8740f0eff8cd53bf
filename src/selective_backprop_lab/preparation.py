"""What some strategies prepare before training or do to a run, and what that costs or saves."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.hooks import RemovableHandle

import selective_backprop as sb
from selective_backprop_lab.data.datasets import LabData
from selective_backprop_lab.data.loader import make_loader, on_device
from selective_backprop_lab.meter import Price
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.recipe import Recipe
from selective_backprop_lab.shapes import Float

PROXY = "tiny_cnn"
_SUBSET = ("indices", "examples", "scores", "source", "cost")
Losses = Float[Tensor, " row"]
Loss = Callable[[Tensor, Tensor, float], Losses]
"""Replaces the cross-entropy; takes logits, classes, and the fraction of the run that is done."""
Proxy = tuple[Callable[[], nn.Module], Callable[[Iterable[nn.Parameter]], Optimizer]]


@dataclass(frozen=True)
class Preparation:
    """What a strategy is made from, besides its settings."""

    subset: sb.Subset | None = None  # the part of the data set to train on
    reference: sb.scorers.ReferenceLosses | None = None  # losses of another model
    proxy: Proxy | None = None  # makes a small model, and its optimiser
    cost: float = 0.0  # cost of the preparation, in passes of traditional training
    price: Price = field(default_factory=Price)  # cost of scoring during training

    def pack(self) -> dict[str, Any] | None:
        """Return it in plain containers; None for a small model, which is quick to make again."""
        if self.proxy is not None:
            return None
        subset, reference = self.subset, self.reference
        return {
            "subset": subset and {name: getattr(subset, name) for name in _SUBSET},
            "reference": reference and reference.losses,
            "cost": self.cost,
            "price": asdict(self.price),
        }

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> "Preparation":
        """Return the preparation that `pack()` was called on."""
        subset, reference = packed["subset"], packed["reference"]
        return cls(
            subset=subset and sb.Subset(**subset),
            reference=None if reference is None else sb.scorers.ReferenceLosses(reference),
            cost=packed["cost"],
            price=Price(**packed["price"]),
        )


@dataclass(frozen=True)
class TrainingSetup:
    """The training that a strategy is prepared for."""

    recipe: Recipe
    data: LabData
    seed: int  # the run's seed
    epochs: float  # number of traditional epochs that cost as much as the run
    device: torch.device

    def model(self, seed: int) -> nn.Module:
        """Return a new model like the run's, with weights that no run begins with."""
        return self.recipe.make_model(self.data, seed=self._seed(seed)).to(self.device)

    def _seed(self, seed: int) -> int:
        # Far above the seeds of runs and a prime apart, so no two runs' models share a seed.
        return 1_000_003 * (self.seed + 1) + seed

    @property
    def in_order(self) -> DataLoader[Any]:
        """A loader of the training examples in their order, not augmented."""
        return make_loader(self.data, batch_size=500, seed=0, shuffle=False)

    def train(self, model: nn.Module, seed: int, *, epochs: float) -> float:
        """Train a model for the number of batches nearest to `epochs`, and return the epochs."""
        recipe, examples = self.recipe, 0
        loader = make_loader(
            on_device(self.data, self.device),
            batch_size=recipe.batch_size,
            seed=self._seed(seed),
            augmentation=recipe.augmentation,
        )
        optimizer = recipe.make_optimizer(model.parameters())
        steps = max(1, round(epochs * len(loader)))
        model.train()
        for epoch in range(math.ceil(steps / len(loader))):
            loader.dataset.set_epoch(epoch)  # ty: ignore[missing-attribute]
            first = epoch * len(loader) + 1
            for done, (inputs, targets) in zip(range(first, steps + 1), loader, strict=False):
                examples += len(targets)
                for group in optimizer.param_groups:
                    group["lr"] = recipe.learning_rate_at(done / steps)
                outputs = model(inputs.to(self.device))
                loss = functional.cross_entropy(outputs, targets.to(self.device))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
        return examples / len(self.data.train_labels)


def prepare_pruned(
    setup: TrainingSetup, *, keep: float, models: int, share: float, gradients: bool = False
) -> Preparation:
    """Prune by EL2N or GraNd scores of models that are each trained for a share of the run."""
    make = map(setup.model, range(models)).__next__
    compute: Any = sb.el2n_scores
    if gradients:
        compute = partial(sb.experimental.grand_scores, loss_fn=nn.CrossEntropyLoss())
    train = partial(setup.train, epochs=share * setup.epochs)
    scores = compute(setup.in_order, make, train, models=models)
    subset = sb.prune(scores, keep, labels=setup.data.train_labels)
    return Preparation(subset=subset, cost=subset.cost)


def prepare_oracle(setup: TrainingSetup) -> Preparation:
    """Keep one copy of each example with a right label. This costs nothing."""
    data = setup.data
    right = (~data.flipped).nonzero()[:, 0]
    if data.train_sources is not None:
        right = right[torch.from_numpy(np.unique(data.train_sources[right], return_index=True)[1])]
    examples = len(data.train_labels)
    if len(right) == examples:
        raise sb.ConfigurationError(
            f"the oracle needs wrong labels or copies made by the lab, but {data.name} has none; "
            "give --noise or --copies, or leave the oracle out"
        )
    return Preparation(subset=sb.Subset(right, examples, source="right labels, once each"))


def prepare_cleaned(setup: TrainingSetup, *, share: float) -> Preparation:
    """Leave out labels that look wrong to a model that is trained for a share of the run."""
    model = setup.model(0)
    # Each example is then passed forward once, at a third of the cost of training on it.
    cost = setup.train(model, 0, epochs=share * setup.epochs) + 1.0 / 3.0
    with warnings.catch_warnings():  # the model was trained on these labels, but only briefly
        warnings.simplefilter("ignore", sb.SelectionWarning)
        suspects = sb.guide.find_label_issues(model, setup.in_order, nn.CrossEntropyLoss())
    return Preparation(subset=suspects.rest(), cost=cost)


def row_losses(losses: Float[Tensor, " row *token"]) -> Float[Tensor, " row"]:
    """Return one loss per row; for text, this is the mean over its tokens."""
    return losses if losses.ndim == 1 else losses.flatten(1).mean(1)


def prepare_reference(setup: TrainingSetup, *, share: float) -> Preparation:
    """Take every example's loss from a model that was trained on the other half of the data."""
    examples = len(setup.data.train_labels)
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(setup.seed))
    losses, cost, loss_fn = torch.empty(examples), 1.0 / 3.0, nn.CrossEntropyLoss()
    for number, (mine, other) in enumerate((order.chunk(2), order.chunk(2)[::-1])):
        model = setup.model(number)
        half, rest = (replace(setup, data=setup.data.within(rows)) for rows in (mine, other))
        # An epoch over a half of the data costs half an epoch.
        cost += half.train(model, number, epochs=share * setup.epochs) / 2
        losses[other] = sb.example_losses(rest.in_order, model, loss_fn)
    return Preparation(reference=sb.scorers.ReferenceLosses(losses), cost=cost)


def prepare_proxy(setup: TrainingSetup) -> Preparation:
    """Make a tiny net to score with, at a constant fifth of the recipe's highest learning rate."""
    name = PROXY if setup.data.is_images else "linear"

    def make() -> nn.Module:
        return make_model(name, setup.data, seed=setup.seed)

    def optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
        recipe = replace(setup.recipe, learning_rate=setup.recipe.learning_rate / 5)
        return recipe.make_optimizer(parameters)

    shape = setup.data.train_inputs.shape[1:]
    ratio = forward_operations(make(), shape) / forward_operations(setup.model(0), shape)
    # The proxy scores by a forward pass. It trains when the model does, at three times that cost.
    return Preparation(proxy=(make, optimizer), price=Price(ratio, 3.0 * ratio))


def forward_operations(model: nn.Module, shape: Sequence[int]) -> int:
    """Return the number of floating-point operations in a forward pass of one example."""
    place = next(model.parameters()).device
    inputs = torch.zeros(2, *shape, device=place)
    model.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(inputs)
    return counter.get_total_flops() // 2


class Halving:
    """Show a model images of half their side in the first `share` of a run.

    Within `acting()`, a hook shows the model the means of blocks of four pixels, in training and in
    scoring. Such a pass costs less, in proportion to the operations that it takes.
    """

    def __init__(self, model: nn.Module, data: LabData, share: float) -> None:
        self._model, self._share = model, share
        self._until = math.inf  # what all passes at half size together would cost at full size
        whole = data.train_inputs.shape[1:]
        half = (*whole[:-2], *(side // 2 for side in whole[-2:]))
        try:
            operations = [forward_operations(model, shape) for shape in (half, whole)]
        except RuntimeError as error:
            raise sb.ConfigurationError(
                f"progressive resolution needs images, and a net that also takes images of half "
                f"the side; here inputs are {tuple(whole)}. Use small_cnn or resnet9_narrow"
            ) from error
        self._price = operations[0] / operations[1]

    def _halve(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if math.isfinite(self._until):
            return None
        return functional.avg_pool2d(inputs[0], 2), *inputs[1:]

    def acting(self) -> RemovableHandle:
        """Show the model smaller images in the body, if the run's first part is not over."""
        return self._model.register_forward_pre_hook(self._halve)

    def paid(self, cost: float) -> float:
        """Return the actual cost, given the cost at full size, both without a preparation's."""
        return cost - (1.0 - self._price) * min(cost, self._until)

    def went_on(self, progress: float, cost: float) -> None:
        """Note the run's progress, and its cost if all passes had been at full size."""
        if progress >= self._share and not math.isfinite(self._until):
            self._until = cost

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` continues from."""
        return {"until": self._until}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self._until = state["until"]


def generalised(logits: Tensor, targets: Tensor, progress: float, *, q: float) -> Losses:
    """Return `(1 - p ** q) / q` for each label's probability p; q near 0 is the cross-entropy.

    Source:
        Zhang and Sabuncu 2018, arXiv:1805.07836.
    """
    entropies = functional.cross_entropy(logits, targets, reduction="none")
    return -torch.expm1(-q * entropies) / q


def focal(logits: Tensor, targets: Tensor, progress: float) -> Losses:
    """Return each row's cross-entropy times `(1 - p) ** 2`, for its label's probability p.

    Source:
        Lin et al. 2017, arXiv:1708.02002.
    """
    entropies = functional.cross_entropy(logits, targets, reduction="none")
    return entropies * (-torch.expm1(-entropies)).pow(2.0)


def trimmed(logits: Tensor, targets: Tensor, progress: float, *, share: float) -> Losses:
    """Return each row's cross-entropy, but 0 for the share of the batch with the highest values.

    The share rises from 0 to `share` between 0.25 and 0.4 of a run, because a net learns right
    labels before it memorises wrong ones. The other rows' losses are scaled up to make up for it.
    """
    losses = functional.cross_entropy(logits, targets, reduction="none")
    risen = min(1.0, max(0.0, (progress - 0.25) / (0.4 - 0.25)))
    count = round(share * risen * len(losses))
    kept = torch.ones_like(losses)
    kept[losses.detach().topk(count).indices] = 0.0
    return losses * kept * (len(losses) / (len(losses) - count))
