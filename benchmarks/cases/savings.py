"""Gates of what makes selection cheaper: remembered scores and reused activations."""

from collections.abc import Iterator
from functools import partial

import torch

import selective_backprop as sb
from benchmarks.case import Rounds, case
from benchmarks.images import RATE, WINDOW, Net, Shuffled, gate, loader_of
from selective_backprop_lab.nets.vision_transformer import vision_transformer

CANDIDATES = 48
BOUND = (1 + 3 * RATE) / (1 + 2 * RATE)  # of what activation reuse gains over a plain step


@case("src/selective_backprop/_loader", "src/selective_backprop/scorers")
def cycle(*, epochs: int = 3) -> Iterator[Rounds]:
    """A cycle of Stale-SB, its selection pass included, against as many traditional epochs."""
    ours, bare, images = Net(), Net(), Shuffled(2 * WINDOW)
    door = ours.selecting(loader_of(images), sb.stale_sb(RATE, epochs=epochs))
    plain = loader_of(images)
    ours.epoch(door)  # the first keeps everything
    yield gate(
        "cycle",
        f"a mean epoch of Stale-SB over {epochs} epochs at rate 1/3, against a traditional one",
        0.45,
        "stale",
        "traditional",
        stale=partial(ours.epoch, door, epochs),
        traditional=partial(bare.epoch, plain, epochs),
    )


@case("src/selective_backprop/_step", "src/selective_backprop/experimental")
def reuse(*, width: int = 384, depth: int = 6) -> Iterator[Rounds]:
    """A step that reuses activations, against one that computes them again."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(CANDIDATES, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (CANDIDATES,), generator=generator)
    arms = {}
    for name, how in (("plain", None), ("reuse", sb.experimental.ReuseActivations())):
        net = Net(vision_transformer(3, 10, width=width, depth=depth))
        step = sb.SelectiveStep(
            net.model,
            net.loss_fn,
            sb.selective_backprop(RATE, warmup_epochs=0),
            reuse=how,
            generator=torch.Generator().manual_seed(0),
        )

        def run(net: Net = net, step: sb.SelectiveStep = step) -> None:
            net.optimizer.zero_grad()
            step((images, labels)).loss.backward()
            net.optimizer.step()

        arms[name] = run
    arms["reuse"]()  # the trials of the first step
    yield gate(
        "reuse",
        f"a step at rate 1/3 that reuses activations, against one that does not, on a ViT of "
        f"width {width} and depth {depth}; the limit is 60 % of the bound {BOUND:.2f}",
        1 / (1 + 0.6 * (BOUND - 1)),
        "reuse",
        "plain",
        about={"net": f"vision transformer, width {width}", "batch_size": CANDIDATES // 3},
        **arms,
    )
