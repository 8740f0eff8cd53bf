"""What becomes of the net: how sure it is of easy and hard examples, and where gradients point."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from reproductions.jiang2019.example_probes import first_examples, ranks
from selective_backprop.guide._gradients import cosine, equal_signs, flat_gradient, trained
from selective_backprop.lab.data.loader import ImageDataset, make_loader, make_test_loader
from selective_backprop.lab.training.callbacks import Probe, RunningProbe, Scene


@final
@dataclass(frozen=True)
class LossBands(Probe):
    """Target confidence and accuracy of the test examples, in bands of equally many by loss.

    Attributes:
        examples: of the test set, the first so many.
        bands: how many, from the lowest losses to the highest.
    """

    examples: int = 4000
    bands: int = 5

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningLossBands(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """Each test example at each look, forward."""
        return looks * min(self.examples, tested), 0


class _RunningLossBands(RunningProbe):
    def __init__(self, spec: LossBands, scene: Scene) -> None:
        self._spec, self._scene = spec, scene
        data, count = scene.data, spec.examples
        part = replace(
            data, test_images=data.test_images[:count], test_labels=data.test_labels[:count]
        )
        self._loader = make_test_loader(part, batch_size=500)
        self._labels = part.test_labels

    @torch.no_grad()
    def look(self, progress: float) -> Mapping[str, Any]:
        scene = self._scene
        logits = torch.cat(
            [scene.model(inputs.to(scene.device)).float().cpu() for inputs, _ in self._loader]
        )
        losses = nn.functional.cross_entropy(logits, self._labels, reduction="none")
        correct = (logits.argmax(1) == self._labels).float()
        bands = losses.argsort(stable=True).tensor_split(self._spec.bands)
        return {
            "confidence": [_percent((-losses[band]).exp()) for band in bands],
            "accuracy": [_percent(correct[band]) for band in bands],
        }


@final
@dataclass(frozen=True)
class GradientAgreement(Probe):
    """How nearly the gradient of a batch points where that of all examples does.

    Batches are drawn twice: with the odds that Selective-Backprop gives each example's loss, and
    evenly. Gradients are those of the net in eval mode, without augmentation.

    Attributes:
        examples: of the training set, the first so many, which stand for all.
        batch_size: rows of a batch, at most `examples`.
        batches: of each kind, at each look.
        beta: selectivity, at least 0; 2 selects a third.
    """

    examples: int = 2000
    batch_size: int = 128
    batches: int = 8
    beta: float = 2.0

    def start(self, scene: Scene) -> RunningProbe:
        """Begin to look at a run."""
        return _RunningGradientAgreement(self, scene)

    def passes(self, trained: int, tested: int, looks: int) -> tuple[int, int]:
        """All examples and every batch at each look, forward and backward."""
        rows = min(self.examples, trained) + 2 * self.batches * self.batch_size
        return 0, looks * rows


class _RunningGradientAgreement(RunningProbe):
    def __init__(self, spec: GradientAgreement, scene: Scene) -> None:
        self._spec, self._scene = spec, scene
        part = first_examples(scene.data, spec.examples)
        self._loader = make_loader(part, batch_size=500, seed=0, shuffle=False)
        assert isinstance(self._loader.dataset, ImageDataset)
        self._images = self._loader.dataset
        self._generator = torch.Generator().manual_seed(0)

    def look(self, progress: float) -> Mapping[str, Any]:
        losses, whole = self._whole()
        odds = (ranks(losses) / len(losses)) ** self._spec.beta
        kinds = {"high-loss": odds, "random": torch.ones_like(odds)}
        found = {name: self._agreement(each, whole) for name, each in kinds.items()}
        return {
            "cosine": {name: angle for name, (angle, _) in found.items()},
            "sign": {name: sign for name, (_, sign) in found.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"].cpu())

    def _whole(self) -> tuple[Float[Tensor, " example"], Float[Tensor, " parameter"]]:
        parts = [self._gradient(inputs, targets) for inputs, targets in self._loader]
        losses = torch.cat([losses for losses, _ in parts])
        return losses, torch.stack([gradient for _, gradient in parts]).sum(0)

    def _gradient(
        self, inputs: Tensor, targets: Int64[Tensor, " candidate"]
    ) -> tuple[Float[Tensor, " candidate"], Float[Tensor, " parameter"]]:
        """Return each loss, on the CPU, and the gradient of their sum."""
        scene = self._scene
        outputs = scene.model(inputs.to(scene.device))
        losses = nn.functional.cross_entropy(outputs, targets.to(scene.device), reduction="none")
        return losses.detach().cpu(), flat_gradient(losses.sum(), trained(scene.model))

    def _agreement(self, odds: Tensor, whole: Tensor) -> tuple[float, float]:
        """Return the mean cosine with the gradient of all, and the share of equal signs."""
        spec = self._spec
        rows = min(spec.batch_size, int((odds > 0).sum()))
        cosines, signs = [], []
        for _ in range(spec.batches):
            drawn = odds.multinomial(rows, generator=self._generator)
            batch = self._images.__getitems__(drawn.tolist())
            _, gradient = self._gradient(*batch)
            cosines.append(cosine(gradient, whole))
            signs.append(equal_signs(gradient, whole))
        return round(float(torch.stack(cosines).mean()), 5), _percent(torch.stack(signs))


def _percent(shares: Tensor) -> float:
    return round(100 * float(shares.mean()), 3)
