"""What the papers' figures look for inside a run: losses, ranks, selections, gradients."""

import base64
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from selective_backprop.guide._gradients import cosine, equal_signs, flat_gradient, trained
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.loader import ImageDataset, make_loader, make_test_loader
from selective_backprop.lab.training.callbacks import Probe, RunningProbe, Scene

MANY = 50_000
MOST = 2**16  # packed numbers are below this, and so are examples that are ranked
KEPT = (0.1, 1 / 3, 0.5, 0.75)  # shares of a batch that its gradient is estimated from
Seen = Mapping[str, Any] | None


@final
@dataclass(frozen=True)
class LossQuantiles(Probe):
    """Quantiles of the training examples' losses, from none to all of them."""

    examples: int = 2000  # of the training set, the first so many, without augmentation
    steps: int = 100  # between the lowest loss and the highest

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        data = first_examples(scene.data, self.examples)
        shares = torch.linspace(0, 1, self.steps + 1)

        def see(progress: float) -> Seen:
            logits, labels = passed(scene, data)
            quantiles = nn.functional.cross_entropy(logits, labels, reduction="none")
            # Six digits are enough for a curve, and keep records small.
            values = [float(f"{value:.6g}") for value in quantiles.quantile(shares).tolist()]
            return {"quantiles": values}

        return _Stateless(see)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each example at each look, forward."""
        return looks * min(self.examples, trained), 0


@final
@dataclass(frozen=True)
class LossRanks(Probe):
    """Where each training example's loss ranks: of a few at each look, of all on average."""

    examples: int = MANY  # of the training set, the first so many; at most `MOST`
    followed: int = 5  # the first so many, whose rank is written down at each look

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningLossRanks(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each example at each look, forward."""
        return looks * min(self.examples, trained), 0


class _RunningLossRanks(RunningProbe):
    def __init__(self, spec: LossRanks, scene: Scene) -> None:
        self._spec, self._scene = spec, scene
        self._part = first_examples(scene.data, spec.examples)
        self._sum = torch.zeros(len(self._part.train_labels), dtype=torch.float64)
        self._last: Tensor | None = None
        self._looks = 0

    def look(self, progress: float) -> Seen:
        logits, labels = passed(self._scene, self._part)
        found = ranks(nn.functional.cross_entropy(logits, labels, reduction="none"))
        shares = found.double() / max(1, len(found) - 1)
        self._sum += shares
        self._looks += 1
        followed = shares[: self._spec.followed].tolist()
        seen: dict[str, Any] = {"followed": [round(share, 4) for share in followed]}
        if self._last is not None:
            seen["moved"] = round(float((shares - self._last).abs().mean()), 5)
        self._last = shares
        if progress == 1.0:
            seen["ranks"] = pack(((MOST - 1) * self._sum / self._looks).round().long())
        return seen

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "last": self._last, "looks": self._looks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sum, self._last, self._looks = state["sum"], state["last"], state["looks"]


@final
@dataclass(frozen=True)
class El2nRanks(Probe):
    """How the training examples rank by EL2N when the run is over.

    After a short run this is the score of its source: the norm of the difference between a young
    model's probabilities and the label's.

    Source:
        Paul et al. 2021, arXiv:2107.07075, section 2. A mean over models is taken over seeds.
    """

    examples: int = MANY  # of the training set, the first so many; at most `MOST`

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        part = first_examples(scene.data, self.examples)

        def see(progress: float) -> Seen:
            if progress < 1.0:
                return None
            logits, labels = passed(scene, part)
            errors = logits.softmax(1) - nn.functional.one_hot(labels, logits.shape[1])
            return {"ranks": pack(ranks(errors.norm(dim=1)))}

        return _Stateless(see)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each example once, forward."""
        return min(self.examples, trained), 0


@final
@dataclass(frozen=True)
class Selections(Probe):
    """How often each training example was trained on, when the run is over."""

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningSelections(scene)


class _RunningSelections(RunningProbe):
    def __init__(self, scene: Scene) -> None:
        self._counts = torch.zeros(len(scene.data.train_labels), dtype=torch.int64)

    def selected(self, indices: Tensor) -> None:
        self._counts.index_add_(0, indices, torch.ones_like(indices))

    def look(self, progress: float) -> Seen:
        return {"counts": pack(self._counts)} if progress == 1.0 else None

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self._counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._counts = state["counts"]


@final
@dataclass(frozen=True)
class LossBands(Probe):
    """Target confidence and accuracy of test examples, in bands of equally many by loss."""

    examples: int = 4000  # of the test set, the first so many
    bands: int = 5  # from the lowest losses to the highest

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        data, count = scene.data, self.examples
        labels = data.test_labels[:count]
        part = replace(data, test_images=data.test_images[:count], test_labels=labels)
        loader = make_test_loader(part, batch_size=500)

        def see(progress: float) -> Seen:
            logits = _logits(scene, loader)
            losses = nn.functional.cross_entropy(logits, labels, reduction="none")
            correct = (logits.argmax(1) == labels).float()
            bands = losses.argsort(stable=True).tensor_split(self.bands)
            return {
                "confidence": [_percent((-losses[band]).exp()) for band in bands],
                "accuracy": [_percent(correct[band]) for band in bands],
            }

        return _Stateless(see)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each test example at each look, forward."""
        return looks * min(self.examples, tested), 0


@final
@dataclass(frozen=True)
class TargetConfidences(Probe):
    """Target confidence and accuracy of the whole test set by percentile, at one moment.

    The target confidence is the softmax probability of the true label. Examples are ordered by it,
    and their accuracy is told for bins of equally many, from the least confident on.
    """

    moment: float = 1.0  # share of the run, in (0, 1]; the first look that has come to it is taken
    bins: int = 100  # at most as many as there are test examples

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningTargetConfidences(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each test example once, forward."""
        return tested, 0


class _RunningTargetConfidences(RunningProbe):
    def __init__(self, spec: TargetConfidences, scene: Scene) -> None:
        self._spec, self._scene = spec, scene
        self._labels = scene.data.test_labels
        self._loader = make_test_loader(scene.data, batch_size=500)
        self._done = False

    def look(self, progress: float) -> Seen:
        if self._done or progress < self._spec.moment:
            return None
        self._done = True
        logits = _logits(self._scene, self._loader)
        losses = nn.functional.cross_entropy(logits, self._labels, reduction="none")
        # By loss, which still tells confidences apart that round to 1.
        order = losses.argsort(descending=True, stable=True)
        correct = (logits.argmax(1) == self._labels).float()
        shares = torch.linspace(0, 1, self._spec.bins + 1)
        bins = order.tensor_split(min(self._spec.bins, len(order)))
        return {
            "confidence": [_percent(each) for each in (-losses).exp().quantile(shares)],
            "accuracy": [_percent(correct[each]) for each in bins],
        }

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._done = state["done"]


@final
@dataclass(frozen=True)
class BatchGradients(Probe):
    """How nearly the gradient of a part of a batch points where that of the whole batch does.

    Of each batch a share is kept: the examples with the highest losses, or as many at random. The
    batches are the same at every look. Gradients are those of the net in eval mode, without
    augmentation: batch norm then treats an example alike in the batch and in its part, and the
    net's running statistics stay as they are.
    """

    batch_size: int = 128
    batches: int = 4  # the first so many of the training set
    shares: tuple[float, ...] = KEPT

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningBatchGradients(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each batch and its parts at each look, forward and backward."""
        count = min(trained, self.batches * self.batch_size)
        starts = range(0, count, self.batch_size)
        sizes = [min(self.batch_size, count - start) for start in starts]
        parts = [2 * _rows(size, share) for size in sizes for share in self.shares]
        return 0, looks * (count + sum(parts))


def _rows(size: int, share: float) -> int:
    """Return how many examples a share of a batch is: at least one."""
    return max(1, round(share * size))


class _RunningGradients(RunningProbe, ABC):
    """Compares gradients of examples that are drawn."""

    def __init__(self, scene: Scene, examples: int, batch_size: int) -> None:
        self._scene = scene
        part = first_examples(scene.data, examples)
        self._loader = make_loader(part, batch_size=batch_size, seed=0, shuffle=False)
        self._generator = torch.Generator().manual_seed(0)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"].cpu())

    def _gradient(
        self, inputs: Tensor, targets: Int64[Tensor, " candidate"]
    ) -> tuple[Float[Tensor, " candidate"], Float[Tensor, " parameter"]]:
        """Return each loss, on the CPU, and the gradient of their sum."""
        model, device = self._scene.model, self._scene.device
        outputs = model(inputs.to(device))
        losses = nn.functional.cross_entropy(outputs, targets.to(device), reduction="none")
        return losses.detach().cpu(), flat_gradient(losses.sum(), trained(model))


class _RunningBatchGradients(_RunningGradients):
    def __init__(self, spec: BatchGradients, scene: Scene) -> None:
        super().__init__(scene, spec.batches * spec.batch_size, spec.batch_size)
        self._spec = spec

    def look(self, progress: float) -> Seen:
        found = [self._compared(inputs, targets) for inputs, targets in self._loader]
        means = torch.stack(found).mean(0)  # measure, kind, share
        return {
            measure: {
                kind: [round(float(value), 5) for value in values]
                for kind, values in zip(("high-loss", "random"), kinds, strict=True)
            }
            for measure, kinds in zip(("cosine", "sign"), means, strict=True)
        }

    def _compared(
        self, inputs: Tensor, targets: Int64[Tensor, " candidate"]
    ) -> Float[Tensor, "measure kind share"]:
        """Return cosines with the batch's gradient, and the percentages of equal signs."""
        losses, whole = self._gradient(inputs, targets)
        highest = losses.argsort(descending=True, stable=True)
        found = []
        for share in self._spec.shares:
            rows = _rows(len(targets), share)
            mixed = torch.randperm(len(targets), generator=self._generator)
            for kept in (highest[:rows], mixed[:rows]):
                _, part = self._gradient(inputs[kept], targets[kept])
                found += [cosine(part, whole), 100 * equal_signs(part, whole)]
        values = torch.stack(found).double().cpu()
        return values.reshape(len(self._spec.shares), 2, 2).permute(2, 1, 0)


@final
@dataclass(frozen=True)
class GradientAgreement(Probe):
    """How nearly the gradient of a batch points where that of all examples does.

    Batches are drawn twice: with the odds that Selective-Backprop gives each example's loss, and
    evenly. Gradients are those of the net in eval mode, without augmentation.
    """

    examples: int = 2000  # of the training set, the first so many, which stand for all
    batch_size: int = 128  # at most `examples`
    batches: int = 8  # of each kind, at each look
    beta: float = 2.0  # selectivity, at least 0; 2 selects a third

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningGradientAgreement(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """All examples and every batch at each look, forward and backward."""
        rows = min(self.examples, trained) + 2 * self.batches * self.batch_size
        return 0, looks * rows


class _RunningGradientAgreement(_RunningGradients):
    def __init__(self, spec: GradientAgreement, scene: Scene) -> None:
        super().__init__(scene, spec.examples, batch_size=500)
        self._spec = spec
        assert isinstance(self._loader.dataset, ImageDataset)
        self._images = self._loader.dataset

    def look(self, progress: float) -> Seen:
        parts = [self._gradient(inputs, targets) for inputs, targets in self._loader]
        losses = torch.cat([losses for losses, _ in parts])
        whole = torch.stack([gradient for _, gradient in parts]).sum(0)
        odds = (ranks(losses) / len(losses)) ** self._spec.beta
        kinds = {"high-loss": odds, "random": torch.ones_like(odds)}
        found = {name: self._agreement(each, whole) for name, each in kinds.items()}
        return {
            "cosine": {name: angle for name, (angle, _) in found.items()},
            "sign": {name: sign for name, (_, sign) in found.items()},
        }

    def _agreement(self, odds: Tensor, whole: Tensor) -> tuple[float, float]:
        """Return the mean cosine with the gradient of all, and the share of equal signs."""
        rows = min(self._spec.batch_size, int((odds > 0).sum()))
        cosines, signs = [], []
        for _ in range(self._spec.batches):
            drawn = odds.multinomial(rows, generator=self._generator)
            _, gradient = self._gradient(*self._images.__getitems__(drawn.tolist()))
            cosines.append(cosine(gradient, whole))
            signs.append(equal_signs(gradient, whole))
        return round(float(torch.stack(cosines).mean()), 5), _percent(torch.stack(signs))


class _Stateless(RunningProbe):
    """A look that remembers nothing of the looks before."""

    def __init__(self, see: Callable[[float], Seen]) -> None:
        self._see = see

    def look(self, progress: float) -> Seen:
        return self._see(progress)


def first_examples(data: ImageData, count: int) -> ImageData:
    """Return a data set with the first so many of its training examples."""
    images, labels = data.train_images[:count], data.train_labels[:count]
    return replace(data, train_images=images, train_labels=labels, train_clean_labels=None)


def passed(
    scene: Scene, data: ImageData
) -> tuple[Float[Tensor, "example logit"], Int64[Tensor, " example"]]:
    """Return the model's logits for each training example, without augmentation, and the labels."""
    loader = make_loader(data, batch_size=500, seed=0, shuffle=False)
    return _logits(scene, loader), data.train_labels


def ranks(values: Shaped[Tensor, " example"]) -> Int64[Tensor, " example"]:
    """Return how many values are lower than each; of equal ones, the earlier counts as lower."""
    return values.argsort(stable=True).argsort(stable=True)


def pack(numbers: Int64[Tensor, " example"]) -> str:
    """Return whole numbers from 0 to 65,535 as text, which takes 2.7 bytes for each."""
    return base64.b64encode(numbers.cpu().numpy().astype("<u2").tobytes()).decode("ascii")


def unpack(text: str) -> Int64[Tensor, " example"]:
    """Return what was packed."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<u2").astype(np.int64))


@torch.no_grad()
def _logits(scene: Scene, loader: Any) -> Float[Tensor, "example logit"]:
    batches = [scene.model(inputs.to(scene.device)).float().cpu() for inputs, _ in loader]
    return torch.cat(batches)


def _percent(shares: Tensor) -> float:
    return round(100 * float(shares.mean()), 3)
