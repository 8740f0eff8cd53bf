"""Numbers of plain training's first passes, fixed before any was held against a gain of `auto`."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from reproductions.auto.protocol import STAGES, TUNING_SEEDS, Workload
from reproductions.training import Order
from selective_backprop_lab.analysis.queries import BASELINE
from selective_backprop_lab.budget import Budget
from selective_backprop_lab.records.provenance import write_record
from selective_backprop_lab.runner.grid import RunStore
from selective_backprop_lab.shapes import Float32
from selective_backprop_lab.training.run import TrainingRun

READ = ("develop", "confirm", "instead", "nets", "easy")  # a row of text has many labels
FILE = "recovery.json"
PASSES, SHORTEST = 3, 4  # that are trained, and of the schedule at least
SEEDS = TUNING_SEEDS[:2]
EVEN = math.log(2.0)  # the loss at which a label has even odds


def numbers_of(losses: Float32[np.ndarray, "pass example"]) -> dict[str, float]:
    """Return the numbers, given each example's loss as training met it in the first passes."""
    one, two, three = losses <= EVEN
    hardest = losses[0] >= np.quantile(losses[0], 0.9)
    before, after = losses[:2, ~one].sum(1)

    def share(rows: np.ndarray) -> float:
        return float(rows.mean()) if len(rows) else math.nan

    return {
        "recovery": share(two[~one]),
        "later recovery": share(three[~two]),
        "learned": share(two),
        "learned × recovery": share(one) * share(two[~one]),
        "loss that goes": float(1 - after / before) if before else math.nan,
        "recovery of the hardest": share(two[hardest]),
    }


def measure(workload: Workload, store: RunStore, device: str) -> dict[str, float]:
    """Return the numbers of a workload, averaged over seeds, at the middle learning rate."""
    passes = max(SHORTEST, math.ceil(workload.compared[0]))
    cell, rate = (BASELINE, Budget("epochs", float(passes))), workload.recipe.learning_rate
    found = []
    for seed in SEEDS:
        plan = replace(workload.plan(cell, rate, seed, device), evaluations=passes)
        weights = store.weights(plan)
        run = TrainingRun(plan, store.data(plan), weights=weights, log_examples=True)
        losses, met = [], np.array(True)
        for number in range(1, PASSES + 1):
            run.advance()
            history: Any = run.history()
            losses.append(history.loss_last.copy())
            # The last, partial batch of a pass comes with the next.
            met = met & (history.selected == number)
        found.append(numbers_of(np.stack(losses)[:, met]))
    return pd.DataFrame(found).mean().round(4).to_dict()


def run_recovery(console: Console, order: Order) -> None:
    path, store = order.out / FILE, RunStore(order.out / "pretrained", order.root)
    known = json.loads(path.read_text("utf-8"))["workloads"] if path.exists() else {}
    every = {f"{stage}/{each.name}": each for stage in READ for each in STAGES[stage].workloads}
    for name in every:
        if name not in known and order.trains:
            known[name] = measure(every[name], store, order.device)
            write_record(path, order.command, {"seeds": SEEDS, "workloads": known})
        console.print(name, known.get(name))
