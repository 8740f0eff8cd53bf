"""Hold what `advise` predicts of epochs against epochs, in process CPU time on one thread.

    python benchmarks/advice.py --out records/bench/advice.json

Run again with the same code, it adds its rounds to the record. In each round `advise` is asked
anew, and then an epoch of every strategy is trained through the loader as a user would, a cycle of
epochs where they differ; what precedes selection is trained before anything counts. Errors are
those of the medians over rounds.
"""

import argparse
import copy
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
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
from selective_backprop.lab.bench.workload import made_up
from selective_backprop.lab.data.loader import make_loader
from selective_backprop.lab.nets.models import make_model
from selective_backprop.lab.records.provenance import code_version, hardware, versions

RATE = 1 / 3
CYCLE = 3
UNITS = ("seconds", "relative")
CASES = {
    "tiny_cnn": ("1x16x16", 32, 768),
    "resnet8": ("3x8x8", 16, 384),
    "vit_narrow": ("3x8x8", 16, 384),
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
        self._settling = next(iter(loader))
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
        inputs, targets = self._settling
        LOSS(self._model(inputs), targets).mean().backward()  # as if it had been running all along
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
    advices: list[sb.guide.Advice] = []
    seconds: dict[str, list[float]] = {}
    trained: dict[str, Trained] = {}
    for number in range(rounds):
        advice = sb.guide.advise(
            model, loader, LOSS, optimizer=optimizer_of(model), rate=RATE, budget=budget
        )
        advices.append(advice)
        if not trained:
            scorers = cheap_scorers(next(iter(loader)), torch.device("cpu"), None)
            known = {each: scorers[each] for each in advice.scorers}
            mixes = list_mixes(RATE, known, indexed=True, redundancy=advice.redundancy)
            for each, mix in mixes.items():
                trained[each] = Trained(at_once(mix.strategy), model, loader)
                trained[each].epoch()  # the first keeps everything
        for each, one in trained.items():
            seconds.setdefault(each, []).append(one.measure())
        tell(f"{name}: round {number + 1} of {rounds}, {advice.rounds} rounds of advice")
    strategies = {
        each: {
            "varies": advices[0].forecasts[each].varies,
            "seconds": {
                "predicted": [
                    advice.forecasts[each].seconds.median
                    for advice in advices
                    if each in advice.forecasts  # else the budget left it out
                ],
                "measured": taken,
            },
            "relative": {
                "predicted": [
                    advice.forecasts[each].relative.median
                    for advice in advices
                    if each in advice.forecasts  # else the budget left it out
                ],
                "measured": [
                    mine / whole for mine, whole in zip(taken, seconds["traditional"], strict=True)
                ],
            },
        }
        for each, taken in seconds.items()
    }
    return {
        "model": name,
        "data": shape,
        "batch_size": batch_size,
        "examples": examples,
        "strategies": strategies,
    }


def added(case: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return what one model's rounds are with those of before."""
    strategies = {}
    for name, each in case["strategies"].items():
        earlier = before["strategies"].get(name)
        strategies[name] = each
        for unit in UNITS if earlier else ():
            for kind, values in each[unit].items():
                values[:0] = earlier[unit][kind]
    return case | {"strategies": strategies}


def error(found: Mapping[str, list[float]]) -> float:
    """Return by how much the median prediction exceeds the median of what was measured."""
    return statistics.median(found["predicted"]) / statistics.median(found["measured"]) - 1


def main() -> int:
    """Measure, print a table, write a record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of each advice")
    parser.add_argument("--out", type=Path, help="write a JSON record, or add to one")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", sb.SelectionWarning)
    console = Console()
    cases = [
        measure(name, options.rounds, options.budget, console.print)
        for name in options.models.split(",")
    ]
    if options.out:
        cases = write(options.out, cases, options)
    for case in cases:
        table = Table("strategy", "predicted s", "measured s", "error", "relative", "", "error")
        for name, each in case["strategies"].items():
            cells = [
                text
                for unit in UNITS
                for text in (
                    f"{statistics.median(each[unit]['predicted']):.3f}",
                    f"{statistics.median(each[unit]['measured']):.3f}",
                    f"{error(each[unit]):+.1%}",
                )
            ]
            table.add_row(f"{name}{' *' if each['varies'] else ''}", *cells)
        console.print(
            case["model"], len(case["strategies"]["traditional"]["seconds"]["measured"]), table
        )
    return 0


def write(
    out: Path, cases: list[dict[str, Any]], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Write a record, with what another of the same code and budget holds already."""
    version = code_version()
    models = {case["model"]: case for case in cases}
    if out.exists():
        before = json.loads(out.read_text(encoding="utf-8"))
        if (before["code_version"], before["budget"]) == (version, options.budget):
            old = {case["model"]: case for case in before["models"]}
            models = old | {
                name: added(case, old[name]) if name in old else case
                for name, case in models.items()
            }
    record = {
        "command": "benchmarks/advice.py " + " ".join(sys.argv[1:]),
        "clock": "CPU seconds of the process, one thread",
        "rate": RATE,
        "budget": options.budget,
        "code_version": version,
        "versions": versions(),
        "hardware": hardware(),
        "models": [models[name] for name in CASES if name in models],
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record["models"]


if __name__ == "__main__":
    sys.exit(main())
