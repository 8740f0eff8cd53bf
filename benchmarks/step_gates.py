"""Gates of whole steps and epochs, against the passes that they cannot do without."""

import sys
from collections.abc import Iterator
from itertools import islice, pairwise

import torch
from gate import (
    BATCH,
    RATE,
    WINDOW,
    Gate,
    Images,
    Shuffled,
    Training,
    collate,
    forever,
    shuffled_loader,
)
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Sampler

import selective_backprop as sb

RATES = {"1/4": 1 / 4, "1/3": 1 / 3, "1/2": 1 / 2}
SMALL_BATCH = 64
EPOCH = 6  # training batches of an epoch, where epochs are timed
NEVER = 10**9
SIZES = 10**5, 10**8


def step_gates(width: int) -> Iterator[Gate]:
    """A selective step, against one eval forward over its candidates and one training step."""
    for name, rate in RATES.items():
        yield _step_gate(f"step {name}", rate, BATCH, Training(width), Training(width))


def small_step_gates(width: int) -> Iterator[Gate]:
    """The same on a small convolutional net, whose steps take a fiftieth of the time."""
    for name, rate in RATES.items():
        nets = [Training(width, make=small_net) for _ in range(2)]
        yield _step_gate(f"small step {name}", rate, SMALL_BATCH, *nets)


def small_net() -> nn.Module:
    """Return three convolutional blocks of 24, 48 and 96 channels, and a linear layer."""
    blocks: list[nn.Module] = []
    for before, after in pairwise((3, 24, 48, 96)):
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        blocks += [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10))


def _step_gate(name: str, rate: float, batch: int, ours: Training, alone: Training) -> Gate:
    """Return the gate of a selective step, with two nets: one selects, one does not."""
    window = round(batch / rate)
    images = Images(8 * window)
    loader = ours.door(
        DataLoader(images, batch, collate_fn=collate),
        sb.selective_backprop(rate, warmup_epochs=0),
    )
    candidates = [
        (images.images[start : start + batch], images.labels[start : start + batch])
        for start in range(0, window, batch)
    ]
    endless = forever(loader)
    return Gate(
        name,
        f"a selective step at rate {name.split()[-1]}, against forward over {window} and step on "
        f"{batch}",
        1.03,
        {
            "selective step": lambda: ours.step(*next(endless)),
            "forward": lambda: alone.score(candidates),
            "step": lambda: alone.step(*candidates[0]),
        },
        lambda spent: spent["selective step"] / (spent["forward"] + spent["step"]),
    )


def stale_gates(width: int) -> Iterator[Gate]:
    """An epoch whose scores are all known, against ordinary steps and their loading."""
    ours, alone = Training(width), Training(width)
    images = Shuffled(EPOCH * WINDOW)
    door = ours.door(shuffled_loader(images), sb.stale_sb(RATE, epochs=NEVER))
    for _ in range(2):  # the first keeps everything, the second takes the scores
        ours.epoch(door)
    plain = shuffled_loader(images)
    yield Gate(
        "stale step",
        "an epoch of known scores at rate 1/3, against as many steps and the loading of their rows",
        1.03,
        {
            "stale": lambda: ours.epoch(door),
            "plain": lambda: alone.epoch(islice(plain, EPOCH)),
        },
        lambda spent: spent["stale"] / spent["plain"],
    )


class Endless(Sampler[int]):
    """Indices of a data set of any size, without a list of them.

    Args:
        examples: of the data set.
    """

    def __init__(self, examples: int) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return self._examples

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(0)
        while True:
            yield from torch.randint(self._examples, (4096,), generator=generator).tolist()


def size_gates(width: int) -> Iterator[Gate]:
    """A step whose scores are known, in a large data set and a small one."""
    arms = {}
    for examples in SIZES:
        ours = Training(width)
        sampler = BatchSampler(Endless(examples), BATCH, drop_last=False)
        loader = DataLoader(Shuffled(examples), batch_sampler=sampler, collate_fn=collate)
        door = ours.door(loader, sb.stale_sb(RATE, epochs=NEVER))
        remember(door, examples)
        endless = iter(door)

        def steps(
            ours: Training = ours, endless: Iterator[tuple[Tensor, Tensor]] = endless
        ) -> None:
            for inputs, targets in islice(endless, 2):
                ours.step(inputs, targets)

        arms[f"{examples:.0e} examples"] = steps
    small, large = arms
    yield Gate(
        "size",
        f"a step of known scores with {large}, against one with {small}",
        1.03,
        arms,
        lambda spent: spent[large] / spent[small],
    )


def remember(door: sb.SelectiveLoader, examples: int) -> None:
    """Let a loader go on from an epoch in which every example got a score."""
    state = door.state_dict()
    scores = torch.rand(1, examples, generator=torch.Generator().manual_seed(0))
    epochs = torch.ones(1, examples, dtype=torch.int16)
    state["parts"]["ledger"]["scored"] = {"scores": scores, "epochs": epochs}
    door.load_state_dict(state | {"next_epoch": 2})


def traditional_gates(width: int) -> Iterator[Gate]:
    """An epoch of traditional training through the door, against the bare loader's."""
    images = Images(8 * BATCH)
    bare, ours = Training(width), Training(width)
    plain = DataLoader(images, BATCH, collate_fn=collate)
    door = ours.door(plain, sb.traditional())
    yield Gate(
        "traditional",
        "an epoch of traditional() through SelectiveLoader, against the bare loader's",
        1.02,
        {"door": lambda: ours.epoch(door), "bare": lambda: bare.epoch(plain)},
        lambda spent: spent["door"] / spent["bare"],
    )
    for name, weights in bare.model.state_dict().items():
        if not torch.equal(weights, ours.model.state_dict()[name]):
            sys.exit(f"traditional() through the door changed {name}: weights differ")


class Unlearnable(Images):
    """Images whose labels are drawn anew whenever they are asked for."""

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        images, labels = super().__getitems__(indices)
        return images, torch.randint(10, labels.shape)


def auto_gates(width: int) -> Iterator[Gate]:
    """An epoch of auto() in which nothing is learned, so nothing skipped, against the bare loop."""
    images = Unlearnable(8 * BATCH)
    bare, ours = Training(width), Training(width)
    plain = DataLoader(images, BATCH, collate_fn=collate)
    door = sb.SelectiveLoader(
        plain, ours.model, ours.loss_fn, sb.auto(), with_selection=True, quiet=True
    )
    row_by_row = torch.nn.CrossEntropyLoss(reduction="none")

    def recording() -> None:
        for (inputs, targets), selection in door:
            ours.optimizer.zero_grad()
            losses = row_by_row(ours.model(inputs), targets)
            (selection.weights * losses).mean().backward()
            ours.optimizer.step()
            door.record(selection, losses)

    for _ in range(3):  # the first keeps everything, the second has one loss of each
        recording()
    yield Gate(
        "auto",
        "an epoch of auto() that finds nothing to skip, recording its losses, against the bare "
        "loader's",
        1.02,
        {"auto": recording, "bare": lambda: bare.epoch(plain)},
        lambda spent: spent["auto"] / spent["bare"],
    )
    kept = door.stats.kept / door.stats.candidates
    if kept < 0.99:
        sys.exit(f"auto() kept {kept:.3f} of what nothing can be learned of")
