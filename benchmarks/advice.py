"""Hold what `advise` predicts of epochs against epochs, in process CPU time on one thread.

    python benchmarks/advice.py --out records/bench/advice.json

In each round `advise` is asked anew, and then an epoch of every strategy is trained through the
loader as a user would, a cycle of epochs where they differ; what precedes selection is trained
before anything counts. Errors are those of the medians over rounds.
"""

import argparse
import copy
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb
from selective_backprop.guide._mixes import list_mixes
from selective_backprop.guide._scorers import cheap_scorers
from selective_backprop.lab.loaders import make_loader
from selective_backprop.lab.models import make_model
from selective_backprop.lab.provenance import code_version, hardware, versions
from selective_backprop.lab.specimen import made_up

RATE = 1 / 3
CYCLE = 3
CASES = {
    "tiny_cnn": ("1x28x28", 64, 3072),
    "resnet8": ("3x32x32", 16, 768),
    "vit_narrow": ("3x32x32", 16, 768),
}
LOSS = nn.CrossEntropyLoss(reduction="none")


class Trained:
    """A model in training by one strategy, an epoch at a time.

    Args:
        strategy: what is selected; None for the bare loader.
        model: to be copied.
        loader: of the training data.
    """

    def __init__(self, strategy: sb.Strategy, model: nn.Module, loader: DataLoader[Any]) -> None:
        self._model = copy.deepcopy(model)
        self._optimizer = optimizer_of(self._model)
        self._plain = strategy.name == "traditional"
        self._loader = loader
        self._door = sb.SelectiveLoader(
            loader, self._model, LOSS, strategy, with_selection=True, epochs=10_000, quiet=True
        )
        self._records = strategy.needs is not None and strategy.needs.recordings
        scorer = strategy.scorer
        self.cycle = CYCLE if scorer is not None and scorer.needs.fresh < 1 else 1

    def epoch(self) -> None:
        """Train for an epoch."""
        if self._plain:
            for inputs, targets in self._loader:
                self._optimizer.zero_grad()
                LOSS(self._model(inputs), targets).mean().backward()
                self._optimizer.step()
            return
        for (inputs, targets), selection in self._door:
            self._optimizer.zero_grad()
            losses = LOSS(self._model(inputs), targets)
            (losses * selection.weights).mean().backward()
            self._optimizer.step()
            if self._records:
                self._door.record(selection, losses)

    def measure(self) -> float:
        """Return the CPU seconds of an epoch, in the mean of a cycle."""
        begun = time.process_time()
        for _ in range(self.cycle):
            self.epoch()
        return (time.process_time() - begun) / self.cycle


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser that every copy has."""
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def at_once(strategy: sb.Strategy) -> sb.Strategy:
    """Return a strategy that selects from its second epoch on, to the end."""
    if strategy.schedule.uses_fractions:
        return replace(strategy, schedule=sb.Schedule(warmup_epochs=1))
    return strategy


def measure(name: str, rounds: int, budget: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return what was predicted and what was measured of one model."""
    shape, batch_size, examples = CASES[name]
    data = made_up(shape, examples)
    loader = make_loader(data, batch_size=batch_size, seed=0)
    model = make_model(name, data, seed=0)
    advices: list[sb.Advice] = []
    seconds: dict[str, list[float]] = {}
    trained: dict[str, Trained] = {}
    for number in range(rounds):
        advice = sb.advise(
            model, loader, LOSS, optimizer=optimizer_of(model), rate=RATE, budget=budget
        )
        advices.append(advice)
        if not trained:
            scorers = cheap_scorers(next(iter(loader)), torch.device("cpu"), None)
            known = {each: scorers[each] for each in advice.scorers}
            mixes = list_mixes(RATE, known, indexed=True, redundancy=advice.redundancy)
            for each, mix in mixes.items():
                trained[each] = Trained(at_once(mix.strategy), model, loader)
                trained[each].epoch()
                for _ in range(trained[each].cycle - 1):
                    trained[each].epoch()
        for each, one in trained.items():
            seconds.setdefault(each, []).append(one.measure())
        tell(f"{name}: round {number + 1} of {rounds}, {advice.rounds} rounds of advice")
    return {
        "model": name,
        "data": shape,
        "batch_size": batch_size,
        "examples": examples,
        "strategies": {
            each: entry([advice.forecasts[each] for advice in advices], seconds, each)
            for each in trained
        },
    }


def entry(
    forecasts: Iterable[sb.Forecast], seconds: Mapping[str, list[float]], name: str
) -> dict[str, Any]:
    """Return predicted and measured medians of a strategy, and how far they are apart."""
    forecasts = list(forecasts)
    pairs = zip(seconds[name], seconds["traditional"], strict=True)
    measured = {"seconds": seconds[name], "relative": [mine / whole for mine, whole in pairs]}
    predicted = {
        "seconds": [each.seconds.median for each in forecasts],
        "relative": [each.relative.median for each in forecasts],
    }
    found: dict[str, Any] = {"varies": forecasts[0].varies}
    for unit, values in measured.items():
        middle, expected = statistics.median(values), statistics.median(predicted[unit])
        found[unit] = {
            "predicted": spread(predicted[unit]),
            "measured": spread(values),
            "error": expected / middle - 1,
        }
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Return a median with the lowest and the highest value."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def main() -> int:
    """Measure, print a table, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of each advice")
    parser.add_argument("--out", type=Path, help="write a JSON record; models in it are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", sb.SelectionWarning)
    console = Console()
    cases = [
        measure(name, options.rounds, options.budget, console.print)
        for name in options.models.split(",")
    ]
    for case in cases:
        table = Table("strategy", "predicted s", "measured s", "error", "relative", "", "error")
        for name, each in case["strategies"].items():
            cells = [
                text
                for unit in ("seconds", "relative")
                for text in (
                    f"{each[unit]['predicted']['median']:.3f}",
                    f"{each[unit]['measured']['median']:.3f}",
                    f"{each[unit]['error']:+.1%}",
                )
            ]
            table.add_row(f"{name}{' *' if each['varies'] else ''}", *cells)
        console.print(case["model"], table)
    if options.out:
        write(options.out, cases, options)
    return 0


def write(out: Path, cases: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Write a record, with the models of an earlier one that were not measured again."""
    version = code_version()
    kept: list[dict[str, Any]] = []
    if out.exists():
        before = json.loads(out.read_text(encoding="utf-8"))
        again = {case["model"] for case in cases}
        if before["code_version"] == version:
            kept = [case for case in before["models"] if case["model"] not in again]
    record = {
        "command": "benchmarks/advice.py " + " ".join(sys.argv[1:]),
        "clock": "CPU seconds of the process, one thread",
        "rate": RATE,
        "rounds": options.rounds,
        "budget": options.budget,
        "code_version": version,
        "versions": versions(),
        "hardware": hardware(),
        "models": kept + cases,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
