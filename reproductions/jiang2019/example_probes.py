"""What becomes of each training example: how its loss ranks, how often it is selected."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from reproductions.jiang2019.packing import MOST, pack
from selective_backprop.lab.data.datasets import ImageData
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.training.callbacks import Probe, RunningProbe, Scene

MANY = 50_000


@final
@dataclass(frozen=True)
class LossRanks(Probe):
    """Where each training example's loss ranks: of a few at each look, of all on average.

    Losses are in eval mode, without augmentation.

    Attributes:
        examples: of the training set, the first so many; fewer than 65,536.
        followed: examples, the first so many, whose rank is written down at each look.
    """

    examples: int = MANY
    followed: int = 5

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

    def look(self, progress: float) -> Mapping[str, Any]:
        logits, labels = passed(self._scene, self._part)
        found = ranks(nn.functional.cross_entropy(logits, labels, reduction="none"))
        shares = found.double() / max(1, len(found) - 1)
        self._sum += shares
        self._looks += 1
        seen: dict[str, Any] = {
            "followed": [round(share, 4) for share in shares[: self._spec.followed].tolist()]
        }
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

    A run that is short makes this the score of its source: the norm of the difference between a
    young model's probabilities and the label's.

    Attributes:
        examples: of the training set, the first so many; fewer than 65,536.

    Source:
        Paul et al. 2021, arXiv:2107.07075, section 2. A mean over models is taken over seeds.
    """

    examples: int = MANY

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningEl2nRanks(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each example once, forward."""
        return min(self.examples, trained), 0


class _RunningEl2nRanks(RunningProbe):
    def __init__(self, spec: El2nRanks, scene: Scene) -> None:
        self._scene, self._part = scene, first_examples(scene.data, spec.examples)

    def look(self, progress: float) -> Mapping[str, Any] | None:
        if progress < 1.0:
            return None
        logits, labels = passed(self._scene, self._part)
        errors = logits.softmax(1) - nn.functional.one_hot(labels, logits.shape[1])
        return {"ranks": pack(ranks(errors.norm(dim=1)))}


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

    def look(self, progress: float) -> Mapping[str, Any] | None:
        return {"counts": pack(self._counts)} if progress == 1.0 else None

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self._counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._counts = state["counts"]


def first_examples(data: ImageData, count: int) -> ImageData:
    """Return a data set with the first so many of its training examples."""
    return replace(
        data,
        train_images=data.train_images[:count],
        train_labels=data.train_labels[:count],
        train_clean_labels=None,
    )


@torch.no_grad()
def passed(
    scene: Scene, data: ImageData
) -> tuple[Float[Tensor, "example logit"], Int64[Tensor, " example"]]:
    """Return the model's logits for each training example, without augmentation, and the labels."""
    loader = make_loader(data, batch_size=500, seed=0, shuffle=False)
    logits = [scene.model(inputs.to(scene.device)).float().cpu() for inputs, _ in loader]
    return torch.cat(logits), data.train_labels


def ranks(values: Shaped[Tensor, " example"]) -> Int64[Tensor, " example"]:
    """Return how many values are lower than each; of equal ones, the earlier counts as lower."""
    return values.argsort(stable=True).argsort(stable=True)
