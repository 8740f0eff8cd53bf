"""The bottleneck of training on a GPU: the device, the host that launches kernels, or loading.

Everything has two times. *Wall* is the time until the device is done. *Host* is the time until all
work is queued; in the lab it is CPU time. If both are equal, the host is the limit.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Quantity, Rounds, case
from benchmarks.cases.gpu import Times, times
from selective_backprop_lab.bench.workload import made_up
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.data.augment import Augmentation, Border
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.nets.models import make_model
from selective_backprop_lab.recipe import Precision, find_recipe
from selective_backprop_lab.strategies import StrategyOptions
from selective_backprop_lab.training.run import TrainingRun
from selective_backprop_lab.training.run_config import RunConfig

DATA, WINDOW, SIDE = "3x32x32/10", 3, 8192  # images; batches of a window; rows of a matrix
AUGMENTATION = Augmentation(shift=4, flip=True, cutout=16, border=Border.BLACK)
LAB = "src/selective_backprop_lab/"
ARMS = "traditional", "random-backprop", "selective-backprop", "stale-sb", "auto"


def rounds(arms: Mapping[str, Callable[[], Times]], unit: str, **about: Any) -> Rounds:
    quantities = [
        Quantity(f"{name}, {time}", lambda found, at=(name, which): found[at[0]][at[1]], unit)
        for name in arms
        for which, time in enumerate(("wall", "host"))
    ]
    return Rounds(arms, quantities, about, known=False)


def repeated(act: Callable[[], object], count: int, device: torch.device) -> Callable[[], Times]:

    def acts() -> int:
        for _ in range(count):
            act()
        return count

    return partial(times, acts, device)


class Trainer:
    """A net that is trained on one batch, and scores it, in bf16."""

    def __init__(self, net: str, size: int, device: torch.device, **sgd: Any):
        self.half = torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
        self.net = make_model(net, made_up(DATA, 10), seed=0).to(device)
        sgd |= {"momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01, **sgd)
        images = torch.randn(WINDOW * size, 3, 32, 32, device=device)
        self.window = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.arange(WINDOW * size, device=device) % 10
        self.batch = self.window[:size]

    def losses(self, images: Tensor) -> Tensor:
        with self.half:
            outputs, labels = self.net(images), self.labels[: len(images)]
        return nn.functional.cross_entropy(outputs.float(), labels, reduction="none")

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.losses(self.batch).mean().backward()
        self.optimizer.step()

    def score(self, images: Tensor) -> None:
        self.net.eval()
        with torch.no_grad():
            self.losses(images)
        self.net.train()


def loading(home: str, size: int, count: int, device: torch.device) -> Iterator[list[Tensor]]:
    """Yield augmented batches of data that are held on a device, without end."""
    data = made_up(DATA, count * size)
    inputs, labels = data.train_inputs.to(home), data.train_labels.to(home)
    held = replace(data, train_inputs=inputs, train_labels=labels)
    loader = make_loader(held, batch_size=size, seed=0, augmentation=AUGMENTATION)
    for batch in chain.from_iterable(repeat(loader)):
        yield [part.to(device) for part in batch]


@case(LAB + "nets", LAB + "data")
def steps(
    *, net: str = "resnet18", size: int = 128, count: int = 60, device: str = "cuda"
) -> Iterator[Rounds]:
    """Times of a step, of scoring, of loading, and of what the device can do at most."""
    where = torch.device(device)
    eager = Trainer(net, size, where)
    acts: dict[str, Callable[[], object]] = {
        "a step": eager.step,
        "a step, fused SGD": Trainer(net, size, where, fused=True).step,
        "scoring a batch": partial(eager.score, eager.batch),
        "scoring a window": partial(eager.score, eager.window),
    }
    for home in dict.fromkeys(("cpu", device)):
        acts[f"loading a batch, held on {home}"] = partial(next, loading(home, size, count, where))
    if where.type == "cuda":
        matrix = torch.randn(SIDE, SIDE, device=where, dtype=torch.bfloat16)
        acts[f"a product of {SIDE} cubed"] = lambda: matrix @ matrix  # 1.1 PFLOP a second is 1 ms
        acts[f"a copy of {matrix.nbytes >> 20} MiB"] = matrix.clone
    arms = {name: repeated(act, count, where) for name, act in acts.items()}
    yield rounds(arms, "ms", device=device, net=net, batch_size=size)


@case(LAB + "training", LAB + "data", "src/selective_backprop/_loader")
def lab(
    *, net: str = "resnet18", size: int = 128, count: int = 50, device: str = "cuda"
) -> Iterator[Rounds]:
    """Seconds of the lab's training with each strategy, per 50,000 candidates."""
    made = {"model": net, "batch_size": size, "precision": Precision.BF16}
    recipe = replace(find_recipe("cifar10"), augmentation=AUGMENTATION, **made)
    data, options = made_up(DATA, count * size), StrategyOptions(stale=3)
    epochs = Budget("epochs", 6.0)

    def train(strategy: str) -> Times:
        config = RunConfig(recipe, strategy, options, 0, epochs, evaluations=1, device=device)
        run = TrainingRun(config, data)
        begun, busy = time.perf_counter(), time.process_time()
        run.advance()  # its evaluation waits for the device
        passes = epochs.value * count * size / 50_000
        return (time.perf_counter() - begun) / passes, (time.process_time() - busy) / passes

    arms = {name: partial(train, name) for name in ARMS}
    yield rounds(arms, "s", device=device, net=net, batch_size=size)
