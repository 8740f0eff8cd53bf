"""Measure a training step on some of a batch's tokens, against a step on all of them.

    scripts/bench --only tokens
    python benchmarks/tokens.py --words 8192 --rounds 5

A transformer of four blocks of width 256 takes batches of 8 rows of 128 tokens, and AdamW steps.
The plain step computes all logits and their cross-entropy. Process CPU time, one thread, all arms
once per round; ratios are taken within a round. Memory is the highest that a process of its own
held in two steps, beyond what it held before the first: gradients and the optimiser's state are in
it, parameters are not.
"""

import argparse
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
from recording import write_record
from rich.console import Console
from rich.progress import track
from rich.table import Table
from size import forget_peak, peak, resident
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop_lab.bench.rounds import Median, summarise, take_rounds

WORDS = (8192, 32768, 131072)
ROWS, LENGTH, FEATURES, BLOCKS = 8, 128, 256, 4
RATES = (0.25, 0.5, 0.6)
# By name, how tokens are chosen in a step, and at which rate.
ARMS = {
    "plain": ("plain", 1.0),
    **{f"in the pass, {rate}": ("in the pass", rate) for rate in (*RATES, 1.0)},
    **{f"beforehand, {rate}": ("beforehand", rate) for rate in RATES},
}


class Training:
    """A net and its optimiser, and the ways to choose tokens."""

    def __init__(self, words: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._net = Transformer(words, FEATURES, LENGTH, BLOCKS)
        for each in self._net.parameters():
            if each.ndim > 1:  # as language models begin; torch's embeddings are too far apart
                nn.init.normal_(each, std=0.02)
        self._optimizer = torch.optim.AdamW(self._net.parameters(), 1e-4, fused=True)
        self._words = torch.randint(words, (ROWS, LENGTH))
        self._scores = torch.rand(ROWS, LENGTH)  # what is known beforehand

    def stepper(self, way: str, rate: float) -> Callable[[], float]:
        """Return what takes a step on tokens that are chosen so, and returns its CPU seconds."""
        loss = sb.TokenLoss(self._net.head, sb.TokenSelection(rate), shift=True)
        losses: dict[str, Callable[[], Tensor]] = {
            "plain": self._plain,
            "in the pass": lambda: loss(self._net(self._words), self._words).loss,
            "beforehand": lambda: self._beforehand(loss),
        }

        def step() -> float:
            begun = time.process_time()
            self._optimizer.zero_grad()
            losses[way]().backward()
            self._optimizer.step()
            return time.process_time() - begun

        return step

    def _plain(self) -> Tensor:
        logits = self._net.head(self._net(self._words))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), self._words[:, 1:].flatten())

    def _beforehand(self, loss: sb.TokenLoss) -> Tensor:
        kept = loss.choose(self._words, self._scores)
        last = self._net.blocks[-1]
        with sb.rows_only(kept, last.project, last.mlp):
            hidden = self._net(self._words)
        return loss(hidden, self._words, kept=kept).loss


def memory_of(words: int, arm: str) -> int:
    """Return the bytes that a process takes for two steps."""
    command = [sys.executable, __file__, "--memory", arm, "--words", str(words)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def take_memory(words: int, arm: str) -> None:
    """Take two steps in this process, and print the bytes that they took."""
    step = Training(words).stepper(*ARMS[arm])
    before = resident()
    forget_peak()
    step(), step()
    print(peak() - before)


def measure(words: int, rounds: int) -> dict[str, Any]:
    """Return what the steps of a vocabulary take."""
    memory = {name: memory_of(words, name) for name in ARMS}
    training = Training(words)
    steps = {name: training.stepper(*arm) for name, arm in ARMS.items()}
    found = list(islice(take_rounds(steps), rounds))
    return {
        "words": words,
        "plain_ms": asdict(summarise([1e3 * each["plain"] for each in found])),
        "plain_bytes": memory["plain"],
        "arms": [
            {
                "choice": way,
                "rate": rate,
                "share": asdict(summarise([each[name] / each["plain"] for each in found])),
                "bytes": memory[name],
            }
            for name, (way, rate) in ARMS.items()
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


def report(*, out: Path | None, words: Sequence[int] = WORDS, rounds: int = 15) -> int:
    """Measure every vocabulary, print tables, write a record."""
    console = Console()
    vocabularies = []
    for size in track(words, console=console, transient=True):
        vocabularies.append(measure(size, rounds))
        show(console, vocabularies[-1])
    if out:
        write_record(
            out,
            clock="process CPU time, one thread, interleaved rounds",
            net={"blocks": BLOCKS, "features": FEATURES, "rows": ROWS, "length": LENGTH},
            vocabularies=vocabularies,
        )
    return 0


def main() -> int:
    """Measure, or take the memory of one arm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", nargs="+", type=int, default=WORDS, help="vocabularies")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write a JSON record")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        take_memory(options.words[0], options.memory)
        return 0
    return report(out=options.out, words=options.words, rounds=options.rounds)


if __name__ == "__main__":
    sys.exit(main())
