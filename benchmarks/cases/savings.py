"""Gates of what makes selection cheaper: integers, remembered scores, reused activations."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

import selective_backprop as sb
from benchmarks.case import Rounds, case
from benchmarks.images import BATCH, RATE, WINDOW, Images, Net, Shuffled, gate, loader_of
from selective_backprop_lab.nets.vision_transformer import vision_transformer

EXPERIMENTAL = "src/selective_backprop/experimental"
CANDIDATES = 48
BOUND = (1 + 3 * RATE) / (1 + 2 * RATE)  # of what activation reuse gains over a plain step


@case(EXPERIMENTAL)
def int8() -> Iterator[Rounds]:
    """A selection pass in integers, copying and calibrating included, against an eval forward."""
    training, alone, batches = Net(), Net(), Images(WINDOW).batches(WINDOW)

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

    yield gate(
        "int8",
        "a selection pass in int8, copying and calibrating included, against an eval forward",
        0.40,
        "int8",
        "forward",
        int8=score,
        forward=lambda: alone.score(batches * rounds),
    )


@case("src/selective_backprop/_loader", "src/selective_backprop/scorers", EXPERIMENTAL)
def cycle(*, epochs: int = 3) -> Iterator[Rounds]:
    """A cycle of Stale-SB, its selection pass included, against as many traditional epochs."""
    exact = sb.scorers.Forward()
    cheap = sb.experimental.Int8(exact, check=None)
    for name, scorer, limit in (("", exact, 0.45), (" int8", cheap, 0.42)):
        ours, bare, images = Net(), Net(), Shuffled(2 * WINDOW)
        strategy = sb.stale_sb(RATE, epochs=epochs, scorer=scorer)
        door, plain = ours.selecting(loader_of(images), strategy), loader_of(images)
        ours.epoch(door)  # the first keeps everything
        words = " with int8 scoring" if name else ""
        yield gate(
            f"cycle{name}",
            f"a mean epoch of Stale-SB over {epochs} epochs at rate 1/3{words}, against a "
            "traditional one",
            limit,
            "stale",
            "traditional",
            stale=partial(ours.epoch, door, epochs),
            traditional=partial(bare.epoch, plain, epochs),
        )


@case("src/selective_backprop/_step", EXPERIMENTAL)
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
