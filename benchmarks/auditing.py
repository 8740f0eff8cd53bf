"""Measure how well mislabelled examples are found, by several rules, on labels flipped on purpose.

    python benchmarks/auditing.py --data mnist --root data --limit 10000 --seeds 10-12 --out FILE

Trains by a lab recipe with a fifth of the labels flipped, other labels with each seed, in a loop of
its own around a `SelectiveLoader`. A look is a training forward or a pass that scores. Each rule
gives every example a number; recorded is how many of the highest are wrong. What FILE has already
is not trained again, so that the seeds may come in several goes. Nothing here is timed.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import selective_backprop as sb
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import Recipe, find_recipe
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.provenance import provenance

SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
RAREST = 3  # classes
KINDS = ("wrong", "rare class", "hard", "unknown", "")
ARMS: dict[str, Callable[[], sb.Strategy]] = {
    "traditional": sb.traditional,
    "selective-backprop": lambda: sb.selective_backprop(rate=1 / 3),
    "random-backprop": lambda: sb.random_backprop(rate=1 / 3),
    "easy-skip": sb.easy_skip,
}


class Looks:
    """Sums over all looks at each example of what the rules are made of.

    Args:
        labels: as trained on.
        epochs: of the run.
    """

    def __init__(self, labels: Tensor, epochs: int) -> None:
        examples = len(labels)
        self.labels = labels
        self.doubts, self.trained = sb.guide.Doubts(examples), sb.guide.Doubts(examples)
        names = ("loss", "late", "margin", "doubt", "other", "wrong", "count", "selected")
        self.sums = {name: torch.zeros(examples, dtype=torch.float64) for name in names}
        self.last = torch.full((examples,), torch.nan)
        self.by_epoch = torch.full((epochs, examples), torch.nan)

    def see(self, indices: Tensor, logits: Tensor, epoch: int, *, trained: bool) -> None:
        """Take note of a batch that is passed forward."""
        logits, labels = logits.detach(), self.labels[indices]
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        column = labels.unsqueeze(1)
        rival = logits.scatter(1, column, -torch.inf).max(1).values
        look = sb.guide.look_at(logits, labels)
        own = torch.exp(-losses)
        ones = torch.ones_like(losses)
        values = {
            "loss": losses,
            "late": (1 - 2 * own) * (self.sums["count"][indices] + 1),
            "margin": logits.gather(1, column).squeeze(1) - rival,
            "doubt": look.doubts,
            "other": torch.exp(rival - logits.logsumexp(1)) - own,
            "wrong": (look.predictions != labels).float(),
            "count": ones,
            "selected": ones * trained,
        }
        for name, each in values.items():
            self.sums[name].index_add_(0, indices, each.double())
        self.last[indices] = losses
        self.by_epoch[epoch, indices] = losses
        self.doubts.note(indices, logits, labels)
        if trained:
            self.trained.note(indices, logits, labels)


def rank_mean(by_epoch: np.ndarray) -> np.ndarray:
    """Return each example's mean rank among the losses of an epoch, from 0 to 1."""
    ranks = np.full(by_epoch.shape, np.nan)
    for row, losses in zip(ranks, by_epoch, strict=True):
        seen = np.flatnonzero(~np.isnan(losses))
        row[seen[losses[seen].argsort()]] = np.linspace(0.0, 1.0, len(seen))
    count = np.maximum(1, (~np.isnan(ranks)).sum(0))
    return np.nansum(ranks, 0) / count


def in_order(suspects: sb.guide.Suspects) -> np.ndarray:
    """Return a list as one number per example."""
    found = np.full(suspects.examples, -np.inf)
    found[suspects.indices] = suspects.suspicion
    return found


def rules(looks: Looks, final: Tensor) -> dict[str, np.ndarray]:
    """Return what each rule makes of each example: the higher, the more suspicious."""
    sums = {name: each.numpy() for name, each in looks.sums.items()}
    count = np.maximum(1.0, sums["count"])
    last = np.nan_to_num(looks.last.numpy(), nan=-1.0)
    weight = (count + 1) / 2  # of a look in the mean, where the k-th weighs k
    return {
        "audit": in_order(sb.guide.audit(looks.doubts)),
        "audit, training alone": in_order(sb.guide.audit(looks.trained)),
        "audit of losses": (sums["late"] / weight - 1) / (sums["count"] + 1),
        "audit, all looks alike": (sums["doubt"] - 1) / (sums["count"] + 1),
        "final loss": last,
        "loss of the final model": final.numpy(),
        "mean loss": sums["loss"] / count,
        "mean rank of the loss": rank_mean(looks.by_epoch.numpy()),
        "area under the margin": -sums["margin"] / count,
        "mean doubt, all looks alike": sums["doubt"] / count,
        "probability of another class minus the label's": sums["other"] / count,
        "share of looks at which it is wrong": sums["wrong"] / count + 1e-6 * last,
        "times selected": sums["selected"] + 1e-6 * last,
    }


def train(data: datasets.LabData, recipe: Recipe, arm: str, seed: int) -> tuple[Looks, Tensor]:
    """Return what a run's looks saw, and the losses of its final model."""
    torch.manual_seed(seed)
    model = recipe.make_model(data, seed=seed)
    optimizer = recipe.make_optimizer(model.parameters())
    looks = Looks(data.train_labels, recipe.epochs)
    epoch = 0

    def outputs(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        images, labels, indices = batch
        logits = model(images)
        looks.see(indices, logits, epoch, trained=False)
        return logits, labels

    loader = sb.SelectiveLoader(
        make_loader(
            data,
            batch_size=recipe.batch_size,
            seed=seed,
            augmentation=recipe.augmentation,
            with_indices=True,
        ),
        model,
        nn.CrossEntropyLoss(),
        ARMS[arm](),
        outputs=outputs,
        epochs=recipe.epochs,
        with_selection=True,
        generator=torch.Generator().manual_seed(seed),
    )
    for epoch in range(recipe.epochs):
        loader.set_epoch(epoch)
        for (images, labels, _), selection in loader:
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate_at(loader.progress or 0.0)
            logits = model(images)
            losses = nn.functional.cross_entropy(logits, labels, reduction="none")
            optimizer.zero_grad()
            (selection.weights * losses).mean().backward()
            optimizer.step()
            loader.record(selection, losses)
            looks.see(selection.indices, logits, epoch, trained=True)
    return looks, final_losses(model, data)


@torch.no_grad()
def final_losses(model: nn.Module, data: datasets.LabData) -> Tensor:
    """Return the losses of one more pass, in eval mode and without augmentation."""
    model.eval()
    batches = make_loader(data, batch_size=1000, seed=0, shuffle=False)
    return torch.cat(
        [
            nn.functional.cross_entropy(model(images), labels, reduction="none")
            for images, labels in batches
        ]
    )


def measure(data: datasets.LabData, recipe: Recipe, arm: str, seed: int) -> dict[str, Any]:
    """Train once, and return what each rule finds."""
    looks, final = train(data, recipe, arm, seed)
    wrong = data.flipped.numpy()
    found = {}
    for name, scores in rules(looks, final).items():
        hits = np.cumsum(wrong[np.argsort(-scores, kind="stable")])
        found[name] = [int(hits[round(share * len(wrong)) - 1]) for share in SHARES]
    suspects = sb.guide.audit(looks.doubts)
    top = suspects.indices[: suspects.suspicious]
    return {
        "arm": arm,
        "seed": seed,
        "wrong": int(wrong.sum()),
        "found": found,
        "above_zero": {"examples": len(top), "wrong": int(wrong[top].sum())},
        "likely": told(suspects, data.train_labels.numpy(), wrong),
    }


def told(
    suspects: sb.guide.Suspects, labels: np.ndarray, wrong: np.ndarray
) -> dict[str, dict[str, list[int]]]:
    """Count the wrong and the right labels by what is said of them, rare classes apart.

    Those are the three that have the fewest examples by the labels that were trained on. "" is said
    of what is not suspected.
    """
    said = np.full(len(labels), "", dtype=object)
    likely = [each.partition(":")[0] for each in suspects.likely()]
    said[suspects.indices[: len(likely)]] = likely
    rare = np.isin(labels, np.argsort(np.bincount(labels), kind="stable")[:RAREST])
    return {
        group: {
            kind: [int((among & (said == kind) & each).sum()) for each in (wrong, ~wrong)]
            for kind in KINDS
        }
        for group, among in (("rarest", rare), ("others", ~rare))
    }


def seeds_of(text: str) -> list[int]:
    """Return the seeds that `3` or `10-12` stands for."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    """Train what the record lacks, and write it after each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits", help="name of a data set of the lab")
    parser.add_argument("--root", type=Path, help="folder of its files")
    parser.add_argument("--model", help="default: the recipe's")
    parser.add_argument("--limit", type=int, help="training examples; default: all")
    parser.add_argument("--epochs", type=int, help="default: the recipe's")
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--skew", type=float, default=0.0, help="of the classes' shares")
    parser.add_argument("--arms", default="traditional,selective-backprop")
    parser.add_argument("--seeds", type=seeds_of, default=[0], help="such as 0-4")
    parser.add_argument("--out", type=Path, required=True, help="the JSON record")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after these")
    options = parser.parse_args()
    began = time.monotonic()
    torch.set_num_threads(1)
    recipe = find_recipe(options.data)
    recipe = replace(
        recipe, epochs=options.epochs or recipe.epochs, model=options.model or recipe.model
    )
    clean = datasets.load(options.data, root=options.root, limit=options.limit)
    composed = [
        Composition(skew=options.skew, noise=options.noise, seed=seed)(clean)
        for seed in options.seeds
    ]
    record = {
        "command": "benchmarks/auditing.py " + " ".join(sys.argv[1:]),
        "data": clean.name,
        "examples": round(fmean(len(data.train_labels) for data in composed)),
        "net": recipe.model,
        "epochs": recipe.epochs,
        "noise": options.noise,
        "skew": options.skew,
        "shares": SHARES,
        **provenance(),
        "runs": [],
    }
    if options.out.exists():
        record["runs"] = json.loads(options.out.read_text(encoding="utf-8"))["runs"]
    there = {(run["arm"], run["seed"]) for run in record["runs"]}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for seed, data in zip(options.seeds, composed, strict=True):
        for arm in options.arms.split(","):
            if (arm, seed) in there or time.monotonic() - began > options.seconds:
                continue
            run = measure(data, recipe, arm, seed)
            record["runs"].append(run)
            with replacing(options.out) as file:
                file.write((json.dumps(record) + "\n").encode())
            fifth = SHARES.index(0.2)
            words = [f"{name} {run['found'][name][fifth]}" for name in ("audit", "final loss")]
            print(f"{arm}, seed {seed}: of {run['wrong']} wrong, {', '.join(words)} in a fifth")
    return 0


if __name__ == "__main__":
    sys.exit(main())
