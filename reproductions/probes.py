"""What the papers' figures look for inside a run: losses, ranks, selections, gradients."""

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from selective_backprop_lab.data.loader import make_loader, make_test_loader
from selective_backprop_lab.shapes import Float, Int64, Shaped
from selective_backprop_lab.training.probes import Probe, ProbeContext, RunningProbe

MANY = 50_000
MOST = 2**16  # packed numbers are below this, and so are examples that are ranked
KEPT = (0.1, 1 / 3, 0.5, 0.75)  # shares of a batch that its gradient is estimated from
Seen = Mapping[str, Any] | None
Gradient = Float[Tensor, " parameter"]


class _Running(RunningProbe):
    """Looks with a function of the progress, and goes on from what that remembers and draws."""

    def __init__(
        self,
        see: Callable[[float], Seen],
        memory: dict[str, Any] | None = None,
        draws: torch.Generator | None = None,
    ) -> None:
        self._see, self._memory, self._draws = see, {} if memory is None else memory, draws

    def look(self, progress: float) -> Seen:
        return self._see(progress)

    def state_dict(self) -> dict[str, Any]:
        drawn = {} if self._draws is None else {"generator": self._draws.get_state()}
        return {**self._memory, **drawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._memory.update(state)
        if self._draws is not None:
            self._draws.set_state(self._memory.pop("generator").cpu())


@dataclass(frozen=True)
class _Outputs:
    """What a net says of examples."""

    logits: Float[Tensor, "example logit"]
    labels: Int64[Tensor, " example"]

    @property
    def losses(self) -> Float[Tensor, " example"]:
        return nn.functional.cross_entropy(self.logits, self.labels, reduction="none")

    def by_part(self, parts: Iterable[Tensor]) -> list[float]:
        """Return the accuracy of parts of the examples, in per cent."""
        correct = (self.logits.argmax(1) == self.labels).float()
        return [_percent(correct[part]) for part in parts]


@torch.no_grad()
def _passed(scene: ProbeContext, loader: DataLoader[Any]) -> _Outputs:
    """Return what the net says of the examples of a loader, which come in order."""
    batches = [
        (scene.model(inputs.to(scene.device)).float().cpu(), labels) for inputs, labels in loader
    ]
    logits, labels = zip(*batches, strict=True)
    return _Outputs(torch.cat(logits), torch.cat(labels))


def _training(scene: ProbeContext, count: int, batch_size: int = 500) -> DataLoader[Any]:
    """Return a loader of the first so many training examples, in order, without augmentation."""
    images, labels = scene.data.train_inputs[:count], scene.data.train_labels[:count]
    part = replace(scene.data, train_inputs=images, train_labels=labels, train_clean_labels=None)
    return make_loader(part, batch_size=batch_size, seed=0, shuffle=False)


@final
@dataclass(frozen=True)
class LossQuantiles(Probe):
    """Quantiles of the training examples' losses, from none to all of them."""

    examples: int = 2000  # of the training set, the first so many, without augmentation
    steps: int = 100  # between the lowest loss and the highest

    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""
        loader, shares = _training(scene, self.examples), torch.linspace(0, 1, self.steps + 1)

        def see(progress: float) -> Seen:
            quantiles = _passed(scene, loader).losses.quantile(shares)
            # Six digits are enough for a curve, and keep records small.
            return {"quantiles": [float(f"{value:.6g}") for value in quantiles.tolist()]}

        return _Running(see)


@final
@dataclass(frozen=True)
class LossRanks(Probe):
    """Where each training example's loss ranks: of a few at each look, of all on average."""

    examples: int = MANY  # of the training set, the first so many; at most `MOST`
    followed: int = 5  # the first so many, whose rank is written down at each look

    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""
        loader = _training(scene, self.examples)
        memory: dict[str, Any] = {"sum": 0, "last": None, "looks": 0}

        def see(progress: float) -> Seen:
            found = ranks(_passed(scene, loader).losses)
            shares, last = found.double() / max(1, len(found) - 1), memory["last"]
            memory.update(sum=memory["sum"] + shares, last=shares, looks=memory["looks"] + 1)
            followed = [round(share, 4) for share in shares[: self.followed].tolist()]
            seen: dict[str, Any] = {"followed": followed}
            if last is not None:
                seen["moved"] = round(float((shares - last).abs().mean()), 5)
            if progress == 1.0:
                mean = memory["sum"] / memory["looks"]
                seen["ranks"] = pack(((MOST - 1) * mean).round().long())
            return seen

        return _Running(see, memory)


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

    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""
        loader = _training(scene, self.examples)

        def see(progress: float) -> Seen:
            if progress < 1.0:
                return None
            said = _passed(scene, loader)
            right = nn.functional.one_hot(said.labels, said.logits.shape[1])
            return {"ranks": pack(ranks((said.logits.softmax(1) - right).norm(dim=1)))}

        return _Running(see)


@final
@dataclass(frozen=True)
class Selections(Probe):
    """How often each training example was trained on, when the run is over."""

    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningSelections(scene)


class _RunningSelections(_Running):
    def __init__(self, scene: ProbeContext) -> None:
        counts = torch.zeros(len(scene.data.train_labels), dtype=torch.int64)
        super().__init__(self._counted, {"counts": counts})

    def selected(self, indices: Tensor) -> None:
        rows = indices.cpu()
        self._memory["counts"].index_add_(0, rows, torch.ones_like(rows))

    def _counted(self, progress: float) -> Seen:
        return {"counts": pack(self._memory["counts"])} if progress == 1.0 else None


@final
@dataclass(frozen=True)
class TargetConfidences(Probe):
    """Target confidence and accuracy of the whole test set by percentile, at one moment.

    The target confidence is the softmax probability of the true label. Examples are ordered by it,
    and their accuracy is that of bins of equally many, from the least confident on.
    """

    moment: float = 1.0  # share of the run, in (0, 1]; the first look that has come to it is taken
    bins: int = 100  # at most as many as there are test examples

    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""
        loader, memory = make_test_loader(scene.data, batch_size=500), {"done": False}

        def see(progress: float) -> Seen:
            if memory["done"] or progress < self.moment:
                return None
            memory["done"] = True
            said = _passed(scene, loader)
            losses, shares = said.losses, torch.linspace(0, 1, self.bins + 1)
            # By loss, which still tells confidences apart that round to 1.
            order = losses.argsort(descending=True, stable=True)
            return {
                "confidence": [_percent(each) for each in (-losses).exp().quantile(shares)],
                "accuracy": said.by_part(order.tensor_split(min(self.bins, len(order)))),
            }

        return _Running(see, memory)


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

    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""
        loader = _training(scene, self.batches * self.batch_size, self.batch_size)
        draws = torch.Generator().manual_seed(0)

        def compared(
            inputs: Tensor, targets: Int64[Tensor, " candidate"]
        ) -> Float[Tensor, "measure kind share"]:
            """Return cosines with the batch's gradient, and the percentages of equal signs."""
            losses, whole = _gradient(scene, inputs, targets)
            highest, found = losses.argsort(descending=True, stable=True), []
            for share in self.shares:
                rows = max(1, round(share * len(targets)))
                mixed = torch.randperm(len(targets), generator=draws)
                for kept in (highest[:rows], mixed[:rows]):
                    _, part = _gradient(scene, inputs[kept], targets[kept])
                    found += [cosine(part, whole), 100 * equal_signs(part, whole)]
            values = torch.stack(found).double().cpu()
            return values.reshape(len(self.shares), 2, 2).permute(2, 1, 0)

        def see(progress: float) -> Seen:
            means = torch.stack([compared(*batch) for batch in loader]).mean(0)
            return {
                measure: {
                    kind: [round(float(value), 5) for value in values]
                    for kind, values in zip(("high-loss", "random"), kinds, strict=True)
                }
                for measure, kinds in zip(("cosine", "sign"), means, strict=True)
            }

        return _Running(see, draws=draws)


@final
@dataclass(frozen=True)
class GradientNorms(Probe):
    """How the norm of each example's own gradient goes with its loss.

    Gradients are those of the net in eval mode, without augmentation.
    """

    examples: int = 256  # of the training set, the first so many; at least 2

    def start(self, scene: ProbeContext) -> RunningProbe:
        """Begin to look at a run."""
        loader = _training(scene, self.examples, batch_size=1)

        def see(progress: float) -> Seen:
            pairs = [_gradient(scene, inputs, targets) for inputs, targets in loader]
            losses = torch.cat([loss for loss, _ in pairs])
            norms = torch.stack([gradient.norm() for _, gradient in pairs]).cpu()
            both = torch.stack([ranks(losses), ranks(norms)]).double()
            lower = norms[losses.argsort(stable=True)[: len(losses) // 2]].sum()
            return {
                "correlation": round(float(both.corrcoef()[0, 1]), 5),
                "lower_half": _percent(lower / norms.sum()),
            }

        return _Running(see)


def _gradient(
    scene: ProbeContext, inputs: Tensor, targets: Int64[Tensor, " candidate"]
) -> tuple[Float[Tensor, " candidate"], Gradient]:
    """Return each loss, on the CPU, and the gradient of their sum."""
    outputs = scene.model(inputs.to(scene.device))
    losses = nn.functional.cross_entropy(outputs, targets.to(scene.device), reduction="none")
    parameters = [each for each in scene.model.parameters() if each.requires_grad]
    found = torch.autograd.grad(losses.sum(), parameters, allow_unused=True, materialize_grads=True)
    return losses.detach().cpu(), torch.cat([each.flatten() for each in found])


def cosine(one: Gradient, other: Gradient) -> Float[Tensor, ""]:
    """Return the cosine of the angle between two gradients, in [-1, 1]; 0 if one is 0."""
    return nn.functional.cosine_similarity(one, other, dim=0)


def equal_signs(one: Gradient, whole: Gradient) -> Float[Tensor, ""]:
    """Return the share of parameters in which both have the same sign, where `whole` is not 0.

    NaN if `whole` is 0 everywhere.
    """
    return (one.sign() == whole.sign())[whole != 0].float().mean()


def ranks(values: Shaped[Tensor, " example"]) -> Int64[Tensor, " example"]:
    """Return how many values are lower than each; of equal ones, the earlier counts as lower."""
    return values.argsort(stable=True).argsort(stable=True)


def pack(numbers: Int64[Tensor, " example"]) -> str:
    """Return whole numbers from 0 to 65,535 as text, which takes 2.7 bytes for each."""
    return base64.b64encode(numbers.cpu().numpy().astype("<u2").tobytes()).decode("ascii")


def unpack(text: str) -> Int64[Tensor, " example"]:
    """Return what was packed."""
    return torch.from_numpy(np.frombuffer(base64.b64decode(text), "<u2").astype(np.int64))


def _percent(shares: Tensor) -> float:
    return round(100 * float(shares.mean()), 3)
