"""Measure what activation reuse gains over a plain Selective-Backprop step, against its bound.

    PYTHONPATH=benchmarks python benchmarks/reuse.py
    PYTHONPATH=benchmarks python benchmarks/reuse.py --depth 4 --out reuse.json

A ViT-like net; process CPU time, one thread, interleaved rounds of one run. The bound is
`(1 + 3 s) / (1 + 2 s)` at a rate `s`, if a backward pass costs two forwards and all of a forward
is reused; the share of it that was reached is `(gain - 1) / (bound - 1)`.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop.lab.provenance import code_version, hardware, versions
from selective_backprop.lab.rounds import Ratio, measure

CLASSES = 10


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
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(patches).mean(1))


class Arm:
    """A net with its optimiser and its selective step."""

    def __init__(self, options: argparse.Namespace, *, reuse: bool) -> None:
        torch.manual_seed(0)
        self.net = VisionTransformer(options.width, options.depth, options.patch, options.side)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        self.step = sb.SelectiveStep(
            self.net,
            nn.CrossEntropyLoss(),
            sb.selective_backprop(options.rate, warmup_epochs=0),
            reuse_activations=reuse,
            generator=torch.Generator().manual_seed(0),
        )
        generator = torch.Generator().manual_seed(0)
        shape = options.candidates, 3, options.side, options.side
        self.images = torch.randn(shape, generator=generator)
        self.labels = torch.randint(CLASSES, shape[:1], generator=generator)

    def run(self) -> None:
        """Take a step."""
        self.optimizer.zero_grad()
        self.step((self.images, self.labels)).loss.backward()
        self.optimizer.step()

    def score(self) -> None:
        """Run a forward over the candidates, as a selection pass does."""
        with torch.no_grad():
            self.net(self.images)


def main() -> int:
    """Measure, print, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--patch", type=int, default=4)
    parser.add_argument("--side", type=int, default=32, help="of the images, in pixels")
    parser.add_argument("--candidates", type=int, default=48)
    parser.add_argument("--rate", type=float, default=1 / 3)
    parser.add_argument("--seconds", type=float, default=300.0, help="most of all")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain, reused = Arm(options, reuse=False), Arm(options, reuse=True)
    bound = (1 + 3 * options.rate) / (1 + 2 * options.rate)

    def tell(found: Ratio) -> None:
        print(
            f"gain {found.median:.4f} ({found.low:.4f} to {found.high:.4f}), "
            f"{(found.median - 1) / (bound - 1):.0%} of the bound {bound:.4f}; "
            f"{found.rounds} rounds",
            end="\r",
            flush=True,
        )

    reused.run()  # the trials of the first step
    found = measure(
        {"plain": plain.run, "reuse": reused.run, "forward": plain.score},
        lambda spent: spent["plain"] / spent["reuse"],
        tell=tell,
        seconds=options.seconds,
    )
    print()
    for name, seconds in found.seconds.items():
        print(f"{name}: {seconds:.3f} s")
    print(reused.step.stats, f"reused share {reused.step.stats.reused_share:.3f}")
    if options.out:
        record = {
            "command": "benchmarks/reuse.py " + " ".join(sys.argv[1:]),
            "net": f"ViT of width {options.width}, depth {options.depth}",
            "candidates": options.candidates,
            "rate": options.rate,
            "clock": "process CPU time, one thread, interleaved rounds",
            "code_version": code_version(),
            "versions": versions(),
            "hardware": hardware(),
            "gain": asdict(found),
            "bound": bound,
            "share_of_bound": (found.median - 1) / (bound - 1),
            "stats": asdict(reused.step.stats),
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
