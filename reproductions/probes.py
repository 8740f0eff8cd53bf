"""The probes of the papers' figures: losses, ranks, selections and gradients inside a run."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, one_hot
from torch.utils.data import DataLoader

from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.shapes import Float, Int64, Shaped
from selective_backprop_lab.training.run_config import Memory, Probe, ProbeContext

MANY = 50_000
MOST = 2**16  # packed numbers are below this, and so are examples that are ranked
KEPT = (0.1, 1 / 3, 0.5, 0.75)  # shares of a batch that its gradient is estimated from
Seen = Mapping[str, Any] | None


@torch.no_grad()
def _outputs(
    scene: ProbeContext, loader: DataLoader[Any]
) -> tuple[Float[Tensor, "example logit"], Int64[Tensor, " example"], Float[Tensor, " example"]]:
    batches = [
        (scene.model(inputs.to(scene.device)).float().cpu(), labels) for inputs, labels in loader
    ]
    logits, labels = map(torch.cat, zip(*batches, strict=True))
    return logits, labels, cross_entropy(logits, labels, reduction="none")


def _training(scene: ProbeContext, count: int, batch_size: int = 500) -> DataLoader[Any]:
    """Return a loader of the first so many training examples, in order, without augmentation."""
    images, labels = scene.data.train_inputs[:count], scene.data.train_labels[:count]
    part = replace(scene.data, train_inputs=images, train_labels=labels, train_clean_labels=None)
    return make_loader(part, batch_size=batch_size, seed=0, shuffle=False)


@dataclass(frozen=True)
class LossQuantiles(Probe):
    """Quantiles of the training examples' losses, from none to all of them."""

    examples: int = 2000  # of the training set, the first so many, without augmentation
    steps: int = 100  # between the lowest loss and the highest

    def look(self, scene: ProbeContext, progress: float, memory: Memory) -> Seen:
        *_, losses = _outputs(scene, _training(scene, self.examples))
        quantiles = losses.quantile(torch.linspace(0, 1, self.steps + 1))
        # Six digits are enough for a curve, and keep records small.
        return {"quantiles": [float(f"{value:.6g}") for value in quantiles.tolist()]}


@dataclass(frozen=True)
class LossRanks(Probe):
    """The rank of each training example's loss: of a few at each look, of all on average."""

    examples: int = MANY  # of the training set, the first so many; at most `MOST`
    followed: int = 5  # the first so many, whose rank is written down at each look

    def look(self, scene: ProbeContext, progress: float, memory: Memory) -> Seen:
        found = ranks(_outputs(scene, _training(scene, self.examples))[-1])
        shares, last = found.double() / max(1, len(found) - 1), memory.get("last")
        total, looks = memory.get("sum", 0) + shares, memory.get("looks", 0) + 1
        memory.update(sum=total, last=shares, looks=looks)
        followed = shares[: self.followed].tolist()
        seen: dict[str, Any] = {"followed": [round(share, 4) for share in followed]}
        if last is not None:
            seen["moved"] = round(float((shares - last).abs().mean()), 5)
        if progress == 1.0:
            seen["ranks"] = pack(((MOST - 1) * (total / looks)).round().long())
        return seen


@dataclass(frozen=True)
class El2nRanks(Probe):
    """The ranks of the training examples by EL2N when the run is over.

    EL2N is the norm of the difference between a young model's probabilities and the label's.

    Source:
        Paul et al. 2021, arXiv:2107.07075, section 2. A mean over models is taken over seeds.
    """

    examples: int = MANY  # of the training set, the first so many; at most `MOST`

    def look(self, scene: ProbeContext, progress: float, memory: Memory) -> Seen:
        if progress < 1.0:
            return None
        logits, labels, _ = _outputs(scene, _training(scene, self.examples))
        errors = logits.softmax(1) - one_hot(labels, logits.shape[1])
        return {"ranks": pack(ranks(errors.norm(dim=1)))}


@dataclass(frozen=True)
class Selections(Probe):
    """How often each training example was trained on, when the run is over."""

    def select(self, scene: ProbeContext, indices: Tensor, memory: Memory) -> None:
        rows = indices.cpu()
        self._counts(scene, memory).index_add_(0, rows, torch.ones_like(rows))

    def look(self, scene: ProbeContext, progress: float, memory: Memory) -> Seen:
        return {"counts": pack(self._counts(scene, memory))} if progress == 1.0 else None

    def _counts(self, scene: ProbeContext, memory: Memory) -> Tensor:
        none = torch.zeros(len(scene.data.train_labels), dtype=torch.int64)
        return memory.setdefault("counts", none)


@dataclass(frozen=True)
class TargetConfidences(Probe):
    """Target confidence and accuracy of the whole test set by percentile, at one moment.

    The target confidence is the softmax probability of the true label. The accuracy is that of bins
    of equally many examples, from the least confident on.
    """

    moment: float = 1.0  # share of the run, in (0, 1]; the first look that has come to it is taken
    bins: int = 100  # at most as many as there are test examples

    def look(self, scene: ProbeContext, progress: float, memory: Memory) -> Seen:
        if memory.get("done") or progress < self.moment:
            return None
        memory["done"] = True
        loader = make_loader(scene.data, batch_size=500, test=True)
        logits, labels, losses = _outputs(scene, loader)
        # By loss, which still tells confidences apart that round to 1.
        order = losses.argsort(descending=True, stable=True)
        correct = (logits.argmax(1) == labels).float()[order]
        quantiles = (-losses).exp().quantile(torch.linspace(0, 1, self.bins + 1))
        bins = correct.tensor_split(min(self.bins, len(order)))
        return {"confidence": [*map(_percent, quantiles)], "accuracy": [*map(_percent, bins)]}


@dataclass(frozen=True)
class BatchGradients(Probe):
    """How nearly the gradient of a part of a batch points where that of the whole batch does.

    The part is a share of the batch: the examples with the highest losses, or as many at random.
    All looks see the same batches, with the net in eval mode and without augmentation. So batch
    norm treats an example alike in the batch and in its part, and its statistics stay as they are.
    """

    batch_size: int = 128
    batches: int = 4  # the first so many of the training set
    shares: tuple[float, ...] = KEPT

    def look(self, scene: ProbeContext, progress: float, memory: Memory) -> Seen:
        draws = torch.Generator().manual_seed(0)
        if "generator" in memory:
            draws.set_state(memory["generator"].cpu())
        loader = _training(scene, self.batches * self.batch_size, self.batch_size)
        means = torch.stack([self._compared(scene, batch, draws) for batch in loader]).mean(0)
        memory["generator"] = draws.get_state()
        return {
            measure: {
                kind: [round(float(value), 5) for value in values]
                for kind, values in zip(("high-loss", "random"), kinds, strict=True)
            }
            for measure, kinds in zip(("cosine", "sign"), means, strict=True)
        }

    def _compared(
        self, scene: ProbeContext, batch: Sequence[Tensor], draws: torch.Generator
    ) -> Float[Tensor, "measure kind share"]:
        inputs, targets = batch
        losses, whole = _gradient(scene, inputs, targets)
        highest, found = losses.argsort(descending=True, stable=True), []
        for share in self.shares:
            rows = max(1, round(share * len(targets)))
            mixed = torch.randperm(len(targets), generator=draws)
            for kept in (highest[:rows], mixed[:rows]):
                _, part = _gradient(scene, inputs[kept], targets[kept])
                # Signs of weights whose whole gradient is 0 do not count.
                equal = (part.sign() == whole.sign())[whole != 0].float().mean()
                found += [cosine_similarity(part, whole, dim=0), 100 * equal]
        values = torch.stack(found).double().cpu()
        return values.reshape(len(self.shares), 2, 2).permute(2, 1, 0)


@dataclass(frozen=True)
class GradientNorms(Probe):
    """How the norm of each example's gradient goes with its loss, in eval mode, not augmented."""

    examples: int = 256  # of the training set, the first so many; at least 2

    def look(self, scene: ProbeContext, progress: float, memory: Memory) -> Seen:
        loader = _training(scene, self.examples, batch_size=1)
        pairs = [_gradient(scene, inputs, targets) for inputs, targets in loader]
        losses = torch.cat([loss for loss, _ in pairs])
        norms = torch.stack([gradient.norm() for _, gradient in pairs]).cpu()
        both = torch.stack([ranks(losses), ranks(norms)]).double()
        lower = norms[losses.argsort(stable=True)[: len(losses) // 2]].sum()
        return {
            "correlation": round(float(both.corrcoef()[0, 1]), 5),
            "lower_half": _percent(lower / norms.sum()),
        }


def _gradient(
    scene: ProbeContext, inputs: Tensor, targets: Int64[Tensor, " candidate"]
) -> tuple[Float[Tensor, " candidate"], Float[Tensor, " parameter"]]:
    """Return each loss, on the CPU, and the gradient of their sum."""
    outputs = scene.model(inputs.to(scene.device))
    losses = cross_entropy(outputs, targets.to(scene.device), reduction="none")
    parameters = [each for each in scene.model.parameters() if each.requires_grad]
    found = torch.autograd.grad(losses.sum(), parameters, allow_unused=True, materialize_grads=True)
    return losses.detach().cpu(), torch.cat([each.flatten() for each in found])


def ranks(values: Shaped[Tensor, " example"]) -> Int64[Tensor, " example"]:
    """Return how many values are lower than each; of equal ones, the earlier counts as lower."""
    return values.argsort(stable=True).argsort(stable=True)


def pack(numbers: Int64[Tensor, " example"]) -> str:
    """Return whole numbers from 0 to 65,535 as text, which takes 2.7 bytes for each."""
    return base64.b64encode(numbers.cpu().numpy().astype("<u2").tobytes()).decode("ascii")


def unpack(text: str) -> Int64[Tensor, " example"]:
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<u2").astype(np.int64))


def _percent(shares: Tensor) -> float:
    return round(100 * float(shares.mean()), 3)
