"""Measure what selection costs, as ratios within one run, against the gates it has to pass.

    scripts/bench                       every gate
    scripts/bench --only step           the gates whose name begins with "step"
    scripts/bench --out bench.json      write a record

Process CPU time, one thread. A gate passes on the upper end of its interval, fails on the lower
end, and is unresolved in between.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import reference
import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import selective_backprop as sb
from selective_backprop.lab.models import resnet9
from selective_backprop.lab.provenance import code_version, hardware, versions
from selective_backprop.lab.rounds import SECONDS, Ratio, measure

BATCH = 128
RATES = {"1/4": 1 / 4, "1/3": 1 / 3, "1/2": 1 / 2}
CHANNELS_LAST = torch.channels_last


@dataclass(frozen=True)
class Gate:
    """A ratio and the most it may be.

    Attributes:
        name: what `--only` finds it by.
        claim: what it says in words.
        limit: the most that the ratio may be.
        arms: what is timed.
        ratio: how the ratio is taken.
    """

    name: str
    claim: str
    limit: float
    arms: Mapping[str, Callable[[], object]]
    ratio: Callable[[Mapping[str, float]], float]

    def verdict(self, found: Ratio) -> str:
        """Return "pass", "fail" or "unresolved"."""
        if found.high <= self.limit:
            return "pass"
        return "fail" if found.low > self.limit else "unresolved"


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Images in memory, handed out a batch at a time, so that loading costs next to nothing."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(count, 3, 32, 32, generator=generator)
        self.images = images.contiguous(memory_format=CHANNELS_LAST)
        self.labels = torch.randint(10, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        start = indices[0]  # sampled in order, so that a batch is a view
        return self.images[start : start + len(indices)], self.labels[start : start + len(indices)]


def collate(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return batch


class Training:
    """A net, its optimiser and its steps."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        self.model = resnet9(3, 10, width=width).to(memory_format=CHANNELS_LAST)
        self.loss_fn = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Take one ordinary training step."""
        self.optimizer.zero_grad()
        self.loss_fn(self.model(inputs), targets).backward()
        self.optimizer.step()

    def score(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        """Run an eval forward over some batches and take their losses."""
        self.model.eval()
        with torch.no_grad():
            for inputs, targets in batches:
                nn.functional.cross_entropy(self.model(inputs), targets, reduction="none")
        self.model.train()


def selection_gates(width: int) -> Iterator[Gate]:
    """The cost of selecting alone: 128 candidates against 1,024 recent losses."""
    losses = torch.rand(4096).split(BATCH)
    listed = [part.tolist() for part in losses]
    for draw in sb.Draw:
        selector = sb.Percentile(beta=2, draw=draw, history=1024)
        context = sb.Context(batch_size=43, window=BATCH if draw is sb.Draw.EXACT else None)
        running, history = selector.start(context), sb.History(1024)
        plain = reference.PlainSelection(beta=2, history=1024, draw=str(draw), keep=43)
        generator = torch.Generator().manual_seed(0)
        for part in losses:  # a full history
            history.file(part)
        for part in listed:
            plain.select(part)

        def ours(
            history: sb.History = history,
            running: sb.RunningSelector = running,
            generator: torch.Generator = generator,
        ) -> None:
            for part in losses:
                history.file(part)
                running.select(part, history, generator)

        def theirs(plain: reference.PlainSelection = plain) -> None:
            for part in listed[:4]:
                plain.select(part)

        yield Gate(
            f"selection {draw}",
            "selecting 128 of 1,024 recent losses, against plain Python",
            1 / 30,
            {"selection": ours, "plain Python": theirs},
            lambda spent: (spent["selection"] / 32) / (spent["plain Python"] / 4),
        )
        training = Training(width)
        images = Images(BATCH)
        yield Gate(
            f"selection {draw} in a step",
            "selecting 128 candidates, against a traditional step at batch 128",
            0.003,
            {
                "selection": ours,
                "step": lambda training=training, images=images: training.step(
                    images.images, images.labels
                ),
            },
            lambda spent: spent["selection"] / 32 / spent["step"],
        )


def step_gates(width: int) -> Iterator[Gate]:
    """A selective step, against one eval forward over its candidates and one training step."""
    for name, rate in RATES.items():
        ours, alone = Training(width), Training(width)
        window = round(BATCH / rate)
        images = Images(8 * window)
        loader = sb.SelectiveLoader(
            DataLoader(images, BATCH, collate_fn=collate),
            ours.model,
            ours.loss_fn,
            sb.selective_backprop(rate, warmup_epochs=0),
        )
        candidates = [
            (images.images[start : start + BATCH], images.labels[start : start + BATCH])
            for start in range(0, window, BATCH)
        ]
        endless = forever(loader)

        def selective(
            ours: Training = ours, endless: Iterator[tuple[Tensor, Tensor]] = endless
        ) -> None:
            ours.step(*next(endless))

        yield Gate(
            f"step {name}",
            f"a selective step at rate {name}, against forward over {window} and step on {BATCH}",
            1.05,
            {
                "selective step": selective,
                "forward": lambda alone=alone, candidates=candidates: alone.score(candidates),
                "step": lambda alone=alone, candidates=candidates: alone.step(*candidates[0]),
            },
            lambda spent: spent["selective step"] / (spent["forward"] + spent["step"]),
        )


def forever(loader: sb.SelectiveLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a loader's batches, epoch after epoch."""
    while True:
        yield from loader


def traditional_gates(width: int) -> Iterator[Gate]:
    """An epoch of traditional training through the door, against the bare loader's."""
    images = Images(8 * BATCH)
    bare, ours = Training(width), Training(width)
    plain = DataLoader(images, BATCH, collate_fn=collate)
    door = sb.SelectiveLoader(plain, ours.model, ours.loss_fn, sb.traditional())

    def epoch(training: Training, loader: object) -> None:
        for inputs, targets in loader:  # ty: ignore[not-iterable]
            training.step(inputs, targets)

    yield Gate(
        "traditional",
        "an epoch of traditional() through SelectiveLoader, against the bare loader's",
        1.02,
        {"door": lambda: epoch(ours, door), "bare": lambda: epoch(bare, plain)},
        lambda spent: spent["door"] / spent["bare"],
    )
    for name, weights in bare.model.state_dict().items():
        if not torch.equal(weights, ours.model.state_dict()[name]):
            sys.exit(f"traditional() through the door changed {name}: weights differ")


def main() -> int:
    """Measure, print a table, write a record; return 1 if a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="gates whose name begins so")
    parser.add_argument("--width", type=int, default=16, help="channels of the net's first layer")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="most per gate")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    table = Table("gate", "limit", "ratio", "95 % interval", "rounds", "verdict", box=None)
    entries = []
    parts = (selection_gates, step_gates, traditional_gates)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for gate in (gate for part in parts for gate in part(options.width)):
            if not gate.name.startswith(options.only):
                continue
            task = progress.add_task(gate.name)

            def tell(found: Ratio, task: int = task, name: str = gate.name) -> None:
                text = f"{name}: {found.median:.4f} ({found.low:.4f} to {found.high:.4f})"
                progress.update(task, description=f"{text}, {found.rounds} rounds")  # ty: ignore

            found = measure(gate.arms, gate.ratio, tell=tell, seconds=options.seconds)
            progress.remove_task(task)
            verdict = gate.verdict(found)
            interval = f"{found.low:.4f} to {found.high:.4f}"
            table.add_row(
                gate.name,
                f"{gate.limit:.4f}",
                f"{found.median:.4f}",
                interval,
                str(found.rounds),
                verdict,
            )
            console.print(f"{gate.name}: {found.median:.4f} ({interval}), {verdict}")
            entries.append(
                {
                    "gate": gate.name,
                    "claim": gate.claim,
                    "limit": gate.limit,
                    "verdict": verdict,
                    **asdict(found),
                }
            )
    console.print(table)
    if options.out:
        record = {
            "command": "scripts/bench " + " ".join(sys.argv[1:]),
            "net": f"resnet9, width {options.width}",
            "batch_size": BATCH,
            "clock": "process CPU time, one thread, interleaved rounds",
            "code_version": code_version(),
            "versions": versions(),
            "hardware": hardware(),
            "gates": entries,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(entry["verdict"] == "fail" for entry in entries))


if __name__ == "__main__":
    sys.exit(main())
