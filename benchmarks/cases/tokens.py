"""A training step on some of a batch's tokens, against a step on all of them.

A transformer of four blocks of width 256 takes batches of 8 rows of 128 tokens, and AdamW steps.
The plain step computes all logits and their cross-entropy. Memory is the highest that a process of
its own held in two steps, beyond what it held before the first: gradients and the optimiser's state
are in it, parameters are not.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from benchmarks.case import Once, Quantity, Rounds, Row, case, value
from benchmarks.memory import forget_peak, peak, resident

NET = {"blocks": 4, "features": 256, "rows": 8, "length": 128}
RATES = (0.25, 0.5, 0.6)
# How tokens are chosen in a step, and at which rate.
ARMS = [
    ("plain", 1.0),
    *(("in the pass", rate) for rate in (*RATES, 1.0)),
    *(("beforehand", rate) for rate in RATES),
]


@case("src/selective_backprop/_step")
def tokens(*, words: tuple[int, ...] = (8192, 32768, 131072)) -> Iterator[Rounds | Once]:
    """A training step on some of a batch's tokens, against a step on all of them."""
    for count in words:
        about = {"words": count, **NET}
        for choice, rate in ARMS:
            arm = {"choice": choice, "rate": rate}
            yield Once(about | arm, partial(memory_of, count, choice, rate))
        training = Training(count)
        arms = {f"{each}": training.stepper(*each) for each in ARMS}
        yield Rounds(arms, [*_quantities()], about)


def _quantities() -> Iterator[Quantity]:
    plain = str(ARMS[0])
    for choice, rate in ARMS:
        about, arm = {"choice": choice, "rate": rate}, str((choice, rate))
        if arm == plain:
            yield Quantity("step", lambda spent: 1e3 * spent[plain], "CPU ms", about=about)
        else:
            share = partial(_of_plain, arm)
            yield Quantity("step", share, "of a plain step", about=about)


def _of_plain(arm: str, spent: Mapping[str, float]) -> float:
    return spent[arm] / spent[str(ARMS[0])]


class Training:
    """A net and its optimiser, and the ways to choose tokens."""

    def __init__(self, words: int) -> None:
        from fixture_transformer import Transformer  # of the tests

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._net = Transformer(words, NET["features"], NET["length"], NET["blocks"])
        for each in self._net.parameters():
            if each.ndim > 1:  # as language models begin; torch's embeddings are too far apart
                nn.init.normal_(each, std=0.02)
        self._optimizer = torch.optim.AdamW(self._net.parameters(), 1e-4, fused=True)
        self._words = torch.randint(words, (NET["rows"], NET["length"]))
        self._scores = torch.rand(NET["rows"], NET["length"])  # what is known beforehand

    def stepper(self, way: str, rate: float) -> Callable[[], None]:
        """Return what takes a step on tokens that are chosen so."""
        loss = sb.TokenLoss(self._net.head, sb.TokenSelection(rate), shift=True)
        losses: dict[str, Callable[[], Tensor]] = {
            "plain": self._plain,
            "in the pass": lambda: loss(self._net(self._words), self._words).loss,
            "beforehand": lambda: self._beforehand(loss),
        }

        def step() -> None:
            self._optimizer.zero_grad()
            losses[way]().backward()
            self._optimizer.step()

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


def memory_of(words: int, way: str, rate: float) -> list[Row]:
    """Return the bytes that a process takes for two steps."""
    code = f"from benchmarks.cases.tokens import take_memory; take_memory({words}, {way!r}, {rate})"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [value("memory of two steps", int(printed), "bytes")]


def take_memory(words: int, way: str, rate: float) -> None:
    """Take two steps in this process, and print the bytes that they took."""
    step = Training(words).stepper(way, rate)
    before = resident()
    forget_peak()
    step(), step()
    print(peak() - before)
