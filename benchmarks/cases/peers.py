"""Others' programs beside the loader: what a step of theirs costs, and whether they choose alike.

None of their code is here. Fetch any of these from GitHub, and `--set` its path:

    composer=FILE     mosaicml/composer, algorithms/selective_backprop/selective_backprop.py
    infobatch=FILE    NUS-HPC-AI-Lab/InfoBatch, infobatch/infobatch.py
    authors=FOLDER    angelajiang/SelectiveBackprop
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import islice
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import selective_backprop as sb
from benchmarks.case import Rounds, Row, case, value
from benchmarks.cases.gpu import milliseconds, rounds
from selective_backprop_lab.bench.workload import made_up
from selective_backprop_lab.nets.models import make_model

EPOCHS, PASSES, OFTEN = 100_000, 30, 0.75  # of the training; that are counted; share of them
# What their files import at their heads, and nothing here needs; where it is missing, a stand-in.
UNUSED = (
    *("composer.core", "composer.loggers", "composer.models"),
    *("scipy", "sklearn", "sklearn.gaussian_process.kernels"),
)
losses_of = nn.functional.cross_entropy
Program = Iterator[Tensor]  # yields the rows of each step, without end


@dataclass
class Job:
    """A net, and examples (image, label, row) of which a share is to be trained on."""

    examples: list[tuple[Tensor, ...]]
    model: nn.Module
    device: torch.device
    size: int
    rate: float
    trains: bool = True  # or else only shows what it chooses

    def __post_init__(self) -> None:
        self.labels = torch.stack([each[1] for each in self.examples]).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def loader(self, data: Any = None, size: int = 0, **order: Any) -> DataLoader[Any]:
        pinned, order = self.device.type == "cuda", order or {"shuffle": True}
        data = self.examples if data is None else data
        return DataLoader(data, size or self.size, drop_last=True, pin_memory=pinned, **order)

    def batches(self, loader: Iterable[list[Tensor]]) -> Iterator[list[Tensor]]:
        while True:
            for batch in loader:
                yield [part.to(self.device, non_blocking=True) for part in batch]

    def step(self, loss: Tensor) -> None:
        if self.trains:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def bare(job: Job, scored: int = 0) -> Program:
    """Train on each batch, or on each of so many, of which all are passed forward before."""
    for number, (images, labels, rows) in enumerate(job.batches(job.loader())):
        if scored:
            with torch.no_grad():
                losses_of(job.model(images), labels, reduction="none")
        if not scored or number % scored == 0:
            job.step(losses_of(job.model(images), labels))
            yield rows


def ours(strategy: Callable[[float], sb.Strategy], job: Job) -> Program:
    loader = sb.SelectiveLoader(
        *(job.loader(), job.model, nn.CrossEntropyLoss(), strategy(job.rate)),
        outputs=lambda model, batch: (model(batch[0]), batch[1]),
        epochs=EPOCHS,
        with_selection=True,
        quiet=True,
    )
    while True:
        for (images, labels, rows), selection in loader:
            losses = losses_of(job.model(images), labels, reduction="none")
            loader.record(selection, losses)
            job.step((selection.weights * losses).mean())
            yield rows


def through_composer(path: str, job: Job) -> Program:
    """Give Composer's function batches that are larger by 1 / rate."""
    select = loaded(path).select_using_loss

    def losses(outputs: Tensor, rows: Tensor, reduction: str) -> Tensor:
        return losses_of(outputs, job.labels[rows], reduction=reduction)

    for images, _, rows in job.batches(job.loader(size=round(job.size / job.rate))):
        kept, which = select(images, rows, job.model, losses, job.rate)
        job.step(losses(job.model(kept), which, "mean"))
        yield which


def through_infobatch(path: str, job: Job) -> Program:
    data = loaded(path).InfoBatch(job.examples, EPOCHS, 1 - job.rate)
    for images, labels, rows in job.batches(job.loader(data, sampler=data.sampler)):
        job.step(data.update(losses_of(job.model(images), labels, reduction="none")))
        yield rows


def through_authors(path: str, job: Job) -> Program:
    """Give the trainer of Selective-Backprop's authors batches, as `SelectiveBackpropper` does."""
    sys.path.insert(0, path)
    names = "trainer", "selectors", "calculators", "fp_selectors", "backproppers"
    trainer, selectors, calculators, fp_selectors, backproppers = (
        standing_in(partial(import_module, f"lib.{name}")) for name in names
    )
    loss, beta, classes = nn.CrossEntropyLoss, 1 / job.rate - 1, len(job.labels.unique())
    odds = calculators.get_probability_calculator(
        "relative", job.device, loss, 0, 1, classes, 1024, beta
    )
    steps = backproppers.SamplingBackpropper(job.device, job.model, job.optimizer, loss)
    if not job.trains:
        steps.backward_pass = lambda batch: batch
    which = selectors.get_selector("sampling", odds, 0, 0), fp_selectors.get_selector("alwayson", 0)
    program = trainer.MemoizedTrainer(job.device, job.model, *which, steps, job.size, loss)
    trained: list[list[Any]] = []
    program.on_backward_pass(trained.append)
    while True:
        for batch in job.loader():
            program.train_batch(batch, final=False)
            while trained:
                rows = [each.example.image_id for each in trained.pop() if each.example.select]
                yield torch.tensor(rows)


PEERS = {"composer": through_composer, "infobatch": through_infobatch, "authors": through_authors}


def loaded(path: str) -> ModuleType:
    """Return the module of one file."""
    spec = spec_from_file_location("peer", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    standing_in(partial(spec.loader.exec_module, module))
    return module


def standing_in(load: Callable[[], Any]) -> Any:
    """Load something, with stand-ins for missing packages that are only imported."""
    missing = [name for name in UNUSED if find_spec(name.partition(".")[0]) is None]
    sys.modules.update({name: StandIn(name) for name in missing})
    try:
        return load()
    finally:
        for name in missing:
            del sys.modules[name]


class StandIn(ModuleType):
    """A module of which each name is an empty class."""

    def __getattr__(self, name: str) -> Any:
        return type(name, (), {})


@case("src/selective_backprop/_loader", "src/selective_backprop/selectors")
def peers(
    *,
    composer: str = "",
    infobatch: str = "",
    authors: str = "",
    net: str = "resnet18",
    examples: int = 6_400,
    size: int = 128,
    rate: float = 0.5,
    device: str = "cuda",
) -> Iterator[Rounds | Row]:
    """A step of ours and of others' programs, of a bare one, and which examples both choose."""
    warnings.simplefilter("ignore")  # the authors' program is of 2019
    data, where, epoch = made_up("3x32x32/10", examples), torch.device(device), examples // size
    images = data.train_inputs.float().div_(255).sub_(0.5)
    triples = list(zip(images, data.train_labels, torch.arange(examples), strict=True))

    def job(model: nn.Module, trains: bool = True) -> Job:
        return Job(triples, deepcopy(model).train(trains), where, size, rate, trains)

    makes: dict[str, Callable[[Job], Program]] = {
        "selective_backprop": partial(ours, sb.selective_backprop),
        "sb.infobatch": partial(ours, lambda rate: sb.infobatch(1 - rate)),
    }
    for name, path in {"composer": composer, "infobatch": infobatch, "authors": authors}.items():
        if path:
            makes[name] = partial(PEERS[name], path)
        else:
            print(f"{name}: left out, no --set {name}=PATH", file=sys.stderr)
    fresh = make_model(net, data, seed=0).to(where)
    plain = job(fresh)
    scored = partial(bare, scored=round(1 / rate))
    programs = {"bare": bare(plain), "scoring all": scored(job(fresh))}
    programs |= {name: make(job(fresh)) for name, make in makes.items()}

    def steps(name: str) -> int:  # the first pass, on all examples, is before the first round
        return sum(1 for _ in islice(programs[name], epoch))

    about = {"device": device, "net": net, "rate": rate, "batch_size": size}
    arms = {name: partial(milliseconds, partial(steps, name), where) for name in programs}
    yield rounds(arms, "a step", **about)

    @torch.no_grad()
    def often(name: str) -> Tensor:
        counts, program = torch.zeros(examples), makes[name](job(plain.model, trains=False))
        for number, rows in enumerate(islice(program, epoch + round(PASSES * epoch * rate))):
            counts[rows.cpu()] += number >= epoch
        return counts

    for name in makes:  # of our own, it says what chance does
        own = often("sb.infobatch" if "infobatch" in name else "selective_backprop")
        top = own >= OFTEN * own.max()
        other = often(name) + torch.rand(examples)  # chance decides among equals
        share = top[other.topk(int(top.sum())).indices].float().mean().item()
        row = value("on top with it, of the rows that are with ours", share, "share")
        yield about | {"program": name} | row
