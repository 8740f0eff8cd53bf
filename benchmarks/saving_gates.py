"""Gates of what makes selection cheaper: integers, remembered scores, reused activations."""

from collections.abc import Iterator
from functools import partial

import torch
from gate import BATCH, RATE, WINDOW, Gate, Images, Shuffled, Training, shuffled_loader
from torch import Tensor, nn

import selective_backprop as sb

STALE = 3
CYCLE = 2  # windows of an epoch
VIT = {"width": 384, "depth": 6, "patch": 4, "side": 32}
CANDIDATES = 48
BOUND = (1 + 3 * RATE) / (1 + 2 * RATE)  # of what activation reuse gains over a plain step


def int8_gates(width: int) -> Iterator[Gate]:
    """A selection pass in integers, copying and calibrating included, against an eval forward."""
    training, alone = Training(width), Training(width)
    images = Images(WINDOW)
    batches = [
        (images.images[start : start + BATCH], images.labels[start : start + BATCH])
        for start in range(0, WINDOW, BATCH)
    ]

    def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    context = sb.scorers.Context(
        batch_size=BATCH, window=WINDOW, model=training.model, losses=losses, rate=RATE
    )
    scorer = sb.experimental.Int8(sb.scorers.Forward(), check=None)
    running = scorer.start(context)
    weights = [weight.detach() for weight in training.model.parameters()]
    rounds = -(-scorer.recalibrate_every // len(batches))  # one calibration among them
    for _ in range(2 * scorer.recalibrate_every):  # past those that are closer together
        running.score(batches[0], None)

    def score() -> None:
        for _ in range(rounds):
            torch._foreach_mul_(weights, 1.0)  # as a step does, has the weights copied
            for batch in batches:
                running.score(batch, None)

    def forward() -> None:
        for _ in range(rounds):
            alone.score(batches)

    yield Gate(
        "int8",
        "a selection pass in int8, copying and calibrating included, against an eval forward",
        0.40,
        {"int8": score, "forward": forward},
        lambda spent: spent["int8"] / spent["forward"],
    )


def cycle_gates(width: int) -> Iterator[Gate]:
    """A cycle of Stale-SB, its selection pass included, against as many traditional epochs."""
    scorers = {
        "": (sb.scorers.Forward(), 0.45),
        " int8": (sb.experimental.Int8(sb.scorers.Forward(), check=None), 0.42),
    }
    for name, (scorer, limit) in scorers.items():
        ours, bare = Training(width), Training(width)
        images = Shuffled(CYCLE * WINDOW)
        strategy = sb.stale_sb(RATE, epochs=STALE, scorer=scorer)
        door, plain = ours.door(shuffled_loader(images), strategy), shuffled_loader(images)
        ours.epoch(door)  # the first keeps everything

        def cycle(training: Training, loader: object) -> None:
            for _ in range(STALE):
                training.epoch(loader)

        words = " with int8 scoring" if name else ""
        yield Gate(
            f"cycle{name}",
            f"a mean epoch of Stale-SB over {STALE} epochs at rate 1/3{words}, against a "
            "traditional one",
            limit,
            {"stale": partial(cycle, ours, door), "traditional": partial(cycle, bare, plain)},
            lambda spent: spent["stale"] / spent["traditional"],
        )


def reuse_gates(width: int) -> Iterator[Gate]:
    """A step that reuses activations, against one that computes them again."""
    plain, reused = _Steps(reuse=False), _Steps(reuse=True)
    reused.run()  # the trials of the first step
    least = 1 + 0.6 * (BOUND - 1)
    yield Gate(
        "reuse",
        f"a step at rate 1/3 that reuses activations, against one that does not, on a ViT of "
        f"width {VIT['width']} and depth {VIT['depth']}; the limit is 60 % of the bound "
        f"{BOUND:.2f}",
        1 / least,
        {"plain": plain.run, "reuse": reused.run},
        lambda spent: spent["reuse"] / spent["plain"],
    )


class _Steps:
    """A transformer with its optimiser and its selective step."""

    def __init__(self, *, reuse: bool) -> None:
        torch.manual_seed(0)
        self._net = VisionTransformer(**VIT)
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=1e-3, momentum=0.9)
        self._step = sb.SelectiveStep(
            self._net,
            nn.CrossEntropyLoss(),
            sb.selective_backprop(RATE, warmup_epochs=0),
            reuse=sb.experimental.ReuseActivations() if reuse else None,
            generator=torch.Generator().manual_seed(0),
        )
        generator = torch.Generator().manual_seed(0)
        shape = CANDIDATES, 3, VIT["side"], VIT["side"]
        self._images = torch.randn(shape, generator=generator)
        self._labels = torch.randint(10, shape[:1], generator=generator)

    def run(self) -> None:
        """Take a step."""
        self._optimizer.zero_grad()
        self._step((self._images, self._labels)).loss.backward()
        self._optimizer.step()


class Block(nn.Module):
    """Attention and two layers, each after a LayerNorm and beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.before, self.mixed = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return patches of the same shape, `[image, patch, width]`."""
        count, patches, width = inputs.shape
        mixed = self.mixed(self.before(inputs)).view(count, patches, 3, self.heads, -1)
        seen = nn.functional.scaled_dot_product_attention(*mixed.permute(2, 0, 3, 1, 4).unbind())
        inputs = inputs + self.joined(seen.transpose(1, 2).reshape(count, patches, width))
        return inputs + self.layers(inputs)


class VisionTransformer(nn.Module):
    """Patches, a stack of blocks, and a mean over the patches."""

    def __init__(self, width: int, depth: int, patch: int, side: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, `[image, class]`."""
        patches = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(patches).mean(1))
