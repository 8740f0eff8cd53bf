"""Measure a training step on some of a batch's tokens, against a step on all of them.

    scripts/bench --only tokens
    python benchmarks/tokens.py --words 8192 --rounds 5

A transformer of four blocks of width 256 takes batches of 8 rows of 128 tokens, and AdamW steps.
The plain step computes all logits and their cross-entropy. Process CPU time, one thread, all arms
once per round, each in a process of its own; ratios are taken within a round. Memory is the
highest that a process held in its steps, beyond what it held before the first.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fixture_transformer import Transformer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop.guide._rounds import Median, summarise, take_rounds
from selective_backprop.lab.records.provenance import provenance

WORDS = (8192, 32768, 131072)
ROWS, LENGTH, FEATURES, BLOCKS = 8, 128, 256, 4
RATES = (0.25, 0.5, 0.6)
KIB = 1024 if sys.platform == "darwin" else 1  # of a unit of the process's highest memory
Losses = Callable[[], Tensor]


def arms() -> dict[str, tuple[str, float]]:
    """Return by name how tokens are chosen in a step, and at which rate."""
    return {
        "plain": ("plain", 1.0),
        **{f"in the pass, {rate}": ("in the pass", rate) for rate in (*RATES, 1.0)},
        **{f"beforehand, {rate}": ("beforehand", rate) for rate in RATES},
    }


class Training:
    """A net and its optimiser, and one way to choose tokens."""

    def __init__(self, words: int, way: str, rate: float) -> None:
        torch.manual_seed(0)
        self._net = Transformer(words, FEATURES, LENGTH, BLOCKS)
        for each in self._net.parameters():
            if each.ndim > 1:  # as language models begin; torch's embeddings are too far apart
                nn.init.normal_(each, std=0.02)
        self._optimizer = torch.optim.AdamW(self._net.parameters(), 1e-4, fused=True)
        self._words = torch.randint(words, (ROWS, LENGTH))
        self._scores = torch.rand(ROWS, LENGTH)  # what is known beforehand
        self._loss = sb.TokenLoss(self._net.head, sb.TokenSelection(rate), shift=True)
        ways = {"plain": self._plain, "in the pass": self._within, "beforehand": self._beforehand}
        self._losses: Losses = ways[way]

    def step(self) -> float:
        """Take a step, and return the CPU seconds that it took."""
        begun = time.process_time()
        self._optimizer.zero_grad()
        self._losses().backward()
        self._optimizer.step()
        return time.process_time() - begun

    def _plain(self) -> Tensor:
        logits = self._net.head(self._net(self._words))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), self._words[:, 1:].flatten())

    def _within(self) -> Tensor:
        return self._loss(self._net(self._words), self._words).loss

    def _beforehand(self) -> Tensor:
        kept = self._loss.choose(self._words, self._scores)
        last = self._net.blocks[-1]
        with sb.rows_only(kept, last.project, last.mlp):
            hidden = self._net(self._words)
        return self._loss(hidden, self._words, kept=kept).loss


def highest_memory() -> int:
    """Return the most bytes that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // KIB


class Worker:
    """A process that takes steps of one arm when it is asked to."""

    def __init__(self, words: int, arm: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--work", arm, "--words", str(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            text=True,
        )
        self.bytes = int(self._ask())

    def step(self) -> float:
        """Return the CPU seconds of a step."""
        return float(self._ask())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self) -> str:
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None and answers is not None
        pipe.write("\n")
        pipe.flush()
        return answers.readline()


def work(words: int, arm: str) -> None:
    """Answer each line with a step's seconds, the first with the memory that steps take."""
    torch.set_num_threads(1)
    training = Training(words, *arms()[arm])
    before = highest_memory()
    for number, _ in enumerate(sys.stdin):
        if number == 0:
            training.step(), training.step()
            print(highest_memory() - before, flush=True)
        else:
            print(training.step(), flush=True)


def measure(words: int, rounds: int) -> dict[str, Any]:
    """Return what the steps of a vocabulary take."""
    workers = {name: Worker(words, name) for name in arms()}
    steps = take_rounds({name: worker.step for name, worker in workers.items()})
    found = list(islice(steps, rounds))
    for worker in workers.values():
        worker.close()
    return {
        "words": words,
        "plain_ms": asdict(summarise([1e3 * each["plain"] for each in found])),
        "plain_bytes": workers["plain"].bytes,
        "arms": [
            {
                "choice": way,
                "rate": rate,
                "share": asdict(summarise([each[name] / each["plain"] for each in found])),
                "bytes": workers[name].bytes,
            }
            for name, (way, rate) in arms().items()
            if way != "plain"
        ],
    }


def show(console: Console, found: dict[str, Any]) -> None:
    """Print the figures of a vocabulary."""
    table = Table("choice", "rate", "of a plain step", "95 % interval", "MiB", box=None)
    for arm in found["arms"]:
        share = Median(**arm["share"])
        interval = f"{share.low:.3f} to {share.high:.3f}"
        memory = f"{arm['bytes'] / 2**20:.0f}"
        table.add_row(arm["choice"], f"{arm['rate']}", f"{share.median:.3f}", interval, memory)
    plain = Median(**found["plain_ms"])
    memory = f"{found['plain_bytes'] / 2**20:.0f} MiB"
    console.print(f"{found['words']:,} words (plain step: {plain.median:.0f} ms, {memory})")
    console.print(table)


def report(
    arguments: Sequence[str], *, out: Path | None, words: Sequence[int] = WORDS, rounds: int = 15
) -> int:
    """Measure every vocabulary, print tables, write a record."""
    console = Console()
    vocabularies = []
    for size in track(words, console=console, transient=True):
        vocabularies.append(measure(size, rounds))
        show(console, vocabularies[-1])
    if out:
        record = {
            "command": " ".join(["scripts/bench", *arguments]),
            "clock": "process CPU time, one thread, interleaved rounds",
            "net": {"blocks": BLOCKS, "features": FEATURES, "rows": ROWS, "length": LENGTH},
            **provenance(),
            "vocabularies": vocabularies,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    """Measure, or work for who measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", nargs="+", type=int, default=WORDS, help="vocabularies")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.words[0], options.work)
        return 0
    return report(sys.argv[1:], out=options.out, words=options.words, rounds=options.rounds)


if __name__ == "__main__":
    sys.exit(main())
