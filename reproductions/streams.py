"""The stage of streams, whose examples come once: `auto`, and what to do instead, at equal cost."""

import json
import math
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

import selective_backprop as sb
from reproductions.training import Names, Order
from selective_backprop_lab.analysis.estimates import estimate, holm
from selective_backprop_lab.analysis.facts import listed, seeds_of
from selective_backprop_lab.analysis.tables import Table, escaped, with_interval
from selective_backprop_lab.data.datasets import read
from selective_backprop_lab.names import find_name
from selective_backprop_lab.nets.models import small_cnn
from selective_backprop_lab.nets.transformers import ByteLM
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.provenance import machine_of, provenance

TUNING_SEEDS, FIRST_SEED = range(900, 1000), 1600
DIVERGED = 30.0  # per cent, the least error of a run that counts as diverged
SHARE = 0.4  # that `random` keeps. It then costs about what `auto` costs on all of KDD-99
PLAIN, OURS = sb.traditional(), sb.auto(stream=True)
ARMS = {PLAIN.name: PLAIN, "random": PLAIN, "auto": OURS, "unique": PLAIN, "unique+auto": OURS}
ARMS["selective-backprop"] = sb.selective_backprop(1 / 3, warmup_epochs=0, start=0.05)
NETS: Mapping[str, Callable[[], nn.Module]] = {
    "kdd99": lambda: nn.Sequential(
        *(nn.Linear(118, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 23))
    ),
    "mnist": lambda: small_cnn(1, 10, 28, width=16),
    "source-bytes": lambda: ByteLM(128, 256, 1, width=72, depth=2),
}


@dataclass(frozen=True)
class Stream:
    """A stream, and the cost at which strategies are compared on it."""

    title: str
    data: str
    cost: float = math.inf  # rows trained on, and a third of the rows scored
    shuffled: bool = True
    rates: Sequence[float] = (0.05, 0.1, 0.2)  # the grid of learning rates to begin with
    batch: int = 64
    unit: str = "error"  # or "loss", which tables show in bits per byte
    tuning: int = 2  # seeds that find learning rates

    @property
    def name(self) -> str:
        return self.title.lower().replace(",", "").replace(" ", "-")


_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["streams"]
Streams = Mapping[str, Stream]  # by name
STREAMS: Streams = {stream.name: stream for stream in (Stream(**row) for row in _ROWS)}


def deformed(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images turned, shifted, and bent by random displacements between 5 x 5 points."""
    turn, *shift = (torch.rand(3, len(images), generator=generator) - 0.5) * 0.4
    cos, sin = turn.cos(), turn.sin()
    places = torch.stack([cos, -sin, shift[0], sin, cos, shift[1]], 1).view(-1, 2, 3)
    grid = functional.affine_grid(places, list(images.shape), align_corners=False)
    bends = (torch.rand(len(images), 2, 5, 5, generator=generator) - 0.5) * 0.4
    bent = functional.interpolate(bends, images.shape[2:], mode="bicubic", align_corners=True)
    return functional.grid_sample(images, grid + bent.permute(0, 2, 3, 1), align_corners=False)


class Rows(IterableDataset[Any]):
    """The rows of a stream, or a random share of them, and others to test on."""

    def __init__(self, stream: Stream, seed: int, share: float, root: Path | None) -> None:
        self.stream, self.share, self.count = stream, share, 0
        self.generator = torch.Generator().manual_seed(seed)
        splits, self.endless = read(stream.data, root), stream.data == "mnist"
        held = torch.arange(len(splits.train_labels))
        if splits.tested is not None:  # only connections that come once may be tested on
            held = held[splits.tested]
            held = held[torch.randperm(len(held), generator=self.generator)]
        held = held[-len(held) // 5 :]
        self.test = splits.test_inputs, splits.test_labels
        # Connections are tested on that each seed draws anew, and the published ones find rates.
        if (stream.data == "kdd99") != (seed in TUNING_SEEDS):
            self.test = splits.train_inputs[held], splits.train_labels[held]
        kept = torch.ones(len(splits.train_labels), dtype=torch.bool)
        kept[held] = False
        self.inputs, self.labels = splits.train_inputs[kept], splits.train_labels[kept]

    @property
    def read(self) -> float:
        """The fraction of the stream that has been read; 0 if it has no end."""
        return 0.0 if self.endless else self.count / len(self.labels)

    def given(self, inputs: Tensor) -> Tensor:
        if self.endless:
            return inputs / 255
        return inputs if inputs.is_floating_point() else inputs.long()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.arange(len(self.labels))
        while self.read < 1.0:
            if self.stream.shuffled:
                order = torch.randperm(len(order), generator=self.generator)
            for rows in order.split(64):
                kept = rows[torch.rand(len(rows), generator=self.generator) < self.share]
                found = self.given(self.inputs[kept])
                found = deformed(found, self.generator) if self.endless else found
                yield from zip(found, self.labels[kept], strict=True)
                self.count += len(rows)


def train(stream: Stream, arm: str, rate: float, seed: int, root: Path | None) -> dict[str, Any]:
    """Train once; the learning rate rises over a twentieth of the cost, and falls as a cosine."""
    rows = Rows(stream, seed, SHARE if arm == "random" else 1.0, root)
    torch.manual_seed(seed)
    net, done, begun = NETS[stream.data](), 0.0, time.process_time()
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(net.parameters())
    if stream.unit == "error":
        more: dict[str, Any] = {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
        optimizer = torch.optim.SGD(net.parameters(), **more)
    source = DataLoader(sb.unique_stream(rows) if "unique" in arm else rows, stream.batch)
    more = {"progress": lambda: min(1.0, done), "quiet": True}
    loader = sb.SelectiveLoader(source, net, nn.CrossEntropyLoss(), ARMS[arm], **more)
    loss_fn = loader.loss_fn
    for inputs, targets in loader:
        done = max(rows.read, loader.stats.cost / 3 / stream.cost)
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, 20 * done) * (1 + math.cos(math.pi * min(1.0, done))) / 2
        optimizer.zero_grad()
        loss_fn(net(inputs), targets).backward()
        optimizer.step()
        if done >= 1.0:
            break
    found = {"rows": rows.count, "cost": loader.stats.cost / 3, "scored": loader.stats.scored}
    found |= {"kept": loader.stats.kept, "cpu_seconds": time.process_time() - begun}
    net.eval()
    inputs, targets = rows.test
    with torch.no_grad():
        outputs = torch.cat([net(rows.given(part)) for part in inputs.split(500)])
    found["error"] = 100 * float((outputs.argmax(1) != targets).float().mean())
    return found | {"loss": float(functional.cross_entropy(outputs, targets))}


class Records:
    """The runs of a stream in a folder, a line of JSON each, and how to make what is missing."""

    def __init__(self, stream: Stream, folder: Path, order: Order | None = None) -> None:
        self.stream, self.path, self.order = stream, folder / f"{stream.name}.jsonl", order
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ()
        self.runs = {(r["arm"], r["rate"], r["seed"]): r for r in map(json.loads, lines)}

    def end(self, *key: Any) -> float:
        """Return a run's end; an order makes it. Infinity if it diverged or is missing."""
        if self.order is not None and key not in self.runs:
            made = dict(zip(("arm", "rate", "seed"), key, strict=True))
            try:
                made |= train(self.stream, *key, self.order.root)
            except sb.LossError as error:
                made |= {"error": 100.0, "loss": math.inf, "diverged": str(error)}
            self.runs[key] = made | {"command": self.order.command, **provenance()}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as file:
                file.writelines(f"{json.dumps(run)}\n".encode() for run in self.runs.values())
        end = self.runs.get(key, {}).get(self.stream.unit, math.inf)
        return end if math.isfinite(end) else math.inf

    def rate(self, arm: str) -> float:
        """Return the best learning rate. The grid grows, at most twice, while it is at an edge.

        A rate is left out if a run at twice this rate diverged: other seeds then diverge at it.
        """
        grid, seeds = [*self.stream.rates], TUNING_SEEDS[: self.stream.tuning]
        while True:
            ends = {rate: [self.end(arm, rate, seed) for seed in seeds] for rate in grid}
            calm = [rate for rate in grid if max(ends.get(2 * rate, [0.0])) < DIVERGED]
            best = min(calm or grid, key=lambda rate: sum(ends[rate]))
            if best not in (grid[0], grid[-1]) or len(grid) > len(self.stream.rates) + 1:
                return best
            grid = sorted([*grid, best / 2 if best == grid[0] else 2 * best])


def run_streams(
    console: Console, streams: Streams, order: Order, *, only: Names = (), arms: Names = ()
) -> None:
    """Train what is missing, a seed of each strategy after the other, and print the table."""
    names = [find_name("stream", each, streams) for each in only] or streams
    for name in names if order.trains else ():
        records = Records(streams[name], order.out, order)
        # No deformed image and no text comes twice, so `unique` changes nothing there.
        fits = [arm for arm in ARMS if "unique" not in arm or records.stream.data == "kdd99"]
        rates = {arm: records.rate(arm) for arm in fits if arm in (arms or fits)}
        for seed, arm in product(range(FIRST_SEED, FIRST_SEED + order.seeds), rates):
            records.end(arm, rates[arm], seed)
    console.print(table_of(order.out, streams))


def table_of(folder: Path, streams: Streams = STREAMS) -> Table:
    """Return what each strategy gains on each stream, and its share of plain training's cost."""
    rows, shown = list[list[str]](), list[pd.DataFrame]()
    first, *others = ARMS
    for stream in streams.values():
        records = Records(stream, folder)
        best = {arm: records.rate(arm) for arm in ARMS}
        runs = [each for each in records.runs.values() if each["rate"] == best[each["arm"]]]
        runs = pd.DataFrame([each for each in runs if each["seed"] not in TUNING_SEEDS])
        if runs.empty:
            continue
        ends = runs.pivot(index="seed", columns="arm", values=stream.unit)
        ends = ends / math.log(2.0) if stream.unit == "loss" else ends
        there = [arm for arm in others if arm in ends]
        gains = {arm: estimate([*(ends[arm] - ends[first]).dropna()]) for arm in there}
        sides = dict(zip(gains, holm([*gains.values()]), strict=True))
        shown.append(runs)
        costs = runs.groupby("arm").cost.mean() / runs[runs.arm == first].cost.mean()
        cells = {first: with_interval(estimate([*ends[first].dropna()]))}
        for arm, gain in gains.items():
            bold = "**" * (sides[arm] in ("lower", "higher"))
            cells[arm] = f"{bold}{with_interval(gain, signed=True)}{bold} ({costs[arm]:.0%})"
        rows.append([stream.title, *(cells.get(arm, "–") for arm in ARMS)])
    every = pd.concat(shown)
    machines, code = map(machine_of, every.hardware), listed(every.code_version.unique())
    said = f"{seeds_of(sorted({*every.seed}))} · {listed(dict.fromkeys(machines))} · code {code}"
    head = ("stream, cost", f"error of {first}", *(f"{arm}: gain (cost)" for arm in others))
    return Table(head, rows, escaped(f"seeds {said}"))
