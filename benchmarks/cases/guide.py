"""Whether the guide finds the copies, rare classes and wrong labels that were put into data."""

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb
from benchmarks.case import Row, case, value
from benchmarks.training import outputs_of, train
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import Composition, NoiseKind
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.recipe import Recipe, find_recipe

GUIDE = "src/selective_backprop/guide"
# How data are changed, as settings of `Composition`.
NEAR, SKEWED = {"copies": 1, "near_copies": 2}, {"skew": 1.5, "copies": 1, "places": 8000}
NEIGHBOUR = {"noise_kind": NoiseKind.NEIGHBOUR}
FEW = ({}, NEAR, SKEWED, {"noise": 0.1}, {"noise": 0.2, **NEIGHBOUR})
MANY = (
    *({}, {"copies": 1}, NEAR, SKEWED, {**SKEWED, "noise": 0.1}),
    *({"noise": share, **kind} for share in (0.05, 0.1, 0.2) for kind in ({}, NEIGHBOUR)),
)
MADE: dict[str, tuple[dict[str, Any], ...]] = {
    **dict.fromkeys(("digits", "mnist"), MANY),
    **dict.fromkeys(("fashion-mnist", "cifar10"), FEW),
}
SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # of the examples that are inspected
ARMS: dict[str, Callable[[], sb.Strategy]] = {
    "traditional": sb.traditional,
    "selective-backprop": lambda: sb.selective_backprop(rate=1 / 3),
}
RAREST = 3  # classes
KINDS = ("wrong", "rare class", "hard", "unknown", "")


@case(GUIDE)
def traits(
    *, data: tuple[str, ...] = tuple(MADE), root: Path = Path("data"), look: float = 60.0
) -> Iterator[Row]:
    """The traits that `data_traits` finds in data made repetitive, skewed and mislabelled."""
    for name, settings in [(each, settings) for each in data for settings in MADE[each]]:
        made = Composition(**settings)(datasets.load(name, root=root))
        begun = time.process_time()
        found = sb.guide.data_traits(make_loader(made, batch_size=128, seed=0), seconds=look)
        spent = time.process_time() - begun
        row = {"data": name, "settings": settings} | value("a look", spent, "CPU seconds")
        row |= {"examples": len(made.train_labels), "cpu_seconds": spent, "found": asdict(found)}
        yield row | {"wrong": float(made.flipped.double().mean())}


@case(GUIDE)
def audit(
    *,
    data: str = "digits",
    root: Path = Path("data"),
    model: str = "",
    limit: int = 0,
    epochs: int = 0,
    noise: float = 0.2,
    skew: float = 0.0,
    arms: tuple[str, ...] = tuple(ARMS),
    seeds: tuple[int, ...] = (0,),
) -> Iterator[Row]:
    """How well several rules find labels that were flipped on purpose.

    Each rule gives every example a number. The record counts how many of the highest are wrong. An
    empty model and 0 stand for the recipe's.
    """
    recipe = find_recipe(data)
    recipe = replace(recipe, epochs=epochs or recipe.epochs, model=model or recipe.model)
    clean = datasets.load(data, root=root, limit=limit or None)
    about = {"data": data, "net": recipe.model, "epochs": recipe.epochs}
    about |= {"noise": noise, "skew": skew}
    for seed, arm in itertools.product(seeds, arms):
        composed = Composition(skew=skew, noise=noise, seed=seed)(clean)
        looks = Looks(composed.train_labels)
        net = train(composed, recipe, ARMS[arm](), seed=seed, see=looks.see)
        logits, labels = outputs_of(net, composed), composed.train_labels
        final = nn.functional.cross_entropy(logits, labels, reduction="none")
        yield about | {"arm": arm, "seed": seed} | found_by_rules(composed, looks, final)


class Looks:
    """The numbers of each example from which the rules compute theirs."""

    def __init__(self, labels: Tensor) -> None:
        self.labels, self.doubts = labels, sb.guide.Doubts(len(labels))
        self.late, self.count = torch.zeros(2, len(labels), dtype=torch.float64)
        self.last = torch.full((len(labels),), torch.nan)

    def see(self, indices: Tensor, logits: Tensor, epoch: int, trained: bool) -> None:
        labels = self.labels[indices]
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        doubts = (1 - 2 * torch.exp(-losses)) * (self.count[indices] + 1)
        self.late.index_add_(0, indices, doubts.double())
        self.count.index_add_(0, indices, torch.ones_like(doubts, dtype=torch.float64))
        self.last[indices] = losses
        self.doubts.note(indices, logits, labels)

    def rules(self, final: Tensor) -> dict[str, np.ndarray]:
        suspects = sb.guide.audit(self.doubts)
        found = np.full(suspects.examples, -np.inf)
        found[suspects.indices] = suspects.suspicion
        weight = (self.count.clamp_min(1) + 1) / 2  # the mean, as the k-th look weighs k
        return {
            "audit": found,
            "audit of losses": ((self.late / weight - 1) / (self.count + 1)).numpy(),
            "final loss": self.last.nan_to_num(-1.0).numpy(),
            "loss of the final model": final.numpy(),
        }


def found_by_rules(data: datasets.LabData, looks: Looks, final: Tensor) -> Row:
    """Return how many wrong labels each rule finds, and what the audit calls each label."""
    wrong, found = data.flipped.numpy(), {}
    for name, scores in looks.rules(final).items():
        hits = np.cumsum(wrong[np.argsort(-scores, kind="stable")])
        found[name] = [int(hits[round(share * len(wrong)) - 1]) for share in SHARES]
    suspects = sb.guide.audit(looks.doubts)
    top = suspects.indices[: suspects.suspicious]
    row = {"examples": len(wrong), "wrong": int(wrong.sum()), "shares": SHARES, "found": found}
    row |= {"above_zero": {"examples": len(top), "wrong": int(wrong[top].sum())}}
    return row | {"likely": likely(suspects, data.train_labels.numpy(), wrong)}


def likely(
    suspects: sb.guide.Suspects, labels: np.ndarray, wrong: np.ndarray
) -> dict[str, dict[str, list[int]]]:
    """Count the wrong and the right labels by what is said of them; "" if nothing is.

    The three classes with the fewest labels count apart.
    """
    said = np.full(len(labels), "", dtype=object)
    words = [each.partition(":")[0] for each in suspects.likely()]
    said[suspects.indices[: len(words)]] = words
    rare = np.isin(labels, np.argsort(np.bincount(labels), kind="stable")[:RAREST])
    return {
        group: {
            kind: [int((among & (said == kind) & each).sum()) for each in (wrong, ~wrong)]
            for kind in KINDS
        }
        for group, among in (("rarest", rare), ("others", ~rare))
    }


@case(GUIDE)
def label_issues(
    *,
    data: tuple[str, ...] = ("digits", "fashion-mnist"),
    root: Path = Path("data"),
    limit: tuple[int, ...] = (0, 4000),
    epochs: tuple[int, ...] = (10, 4),
    noise: float = 0.2,
    seeds: tuple[int, ...] = (0, 1, 2),
) -> Iterator[Row]:
    """How well one pass of a trained model finds wrong labels, beside cleanlab's filter.

    Perceptrons without augmentation judge the half that they were not trained on, or all that they
    were. Limits, 0 for none, and epochs are of each data set. cleanlab may be missing.
    """
    every = zip(data, limit, epochs, strict=True)
    for (name, most, length), seed, kind in itertools.product(every, seeds, NoiseKind):
        made = Composition(noise=noise, noise_kind=kind, seed=seed)
        noisy = made(datasets.load(name, root=root, limit=most or None))
        recipe = replace(find_recipe(name), model="perceptron", epochs=length)
        recipe = replace(recipe, augmentation=Augmentation())
        about = {"data": name, "net": "perceptron", "epochs": length, "noise": noise, "seed": seed}
        for halves in (True, False):
            yield about | {"kind": kind.value} | issues(noisy, recipe, seed, halves)


def issues(data: datasets.LabData, recipe: Recipe, seed: int, halves: bool) -> Row:
    order = torch.randperm(len(data.train_labels), generator=torch.Generator().manual_seed(seed))
    parts = order.chunk(2) if halves else (order,)
    logits = torch.empty(len(order), data.classes)
    for part, other in zip(parts, parts[::-1], strict=True):
        net = train(data.within(other), recipe, sb.traditional(), seed=seed)
        logits[part] = outputs_of(net, data.within(part))
    labels, wrong = data.train_labels, data.flipped.numpy()
    loader = DataLoader(TensorDataset(logits, labels), batch_size=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sb.SelectionWarning)  # of labels that were trained on
        ours = sb.guide.find_label_issues(nn.Identity(), loader, nn.CrossEntropyLoss())
    lists, numbers = {"ours": ours.indices}, {"ours": ours.suspicious}
    if find_spec("cleanlab"):
        from cleanlab.filter import find_label_issues

        odds, ranked = logits.double().softmax(1).numpy(), {"n_jobs": 1}
        ranked["return_indices_ranked_by"] = "self_confidence"
        lists["cleanlab"] = find_label_issues(labels.numpy(), odds, **ranked)
        numbers["cleanlab"] = len(lists["cleanlab"])
    inspected = numbers.get("cleanlab", ours.suspicious)
    found = {name: int(wrong[each[:inspected]].sum()) for name, each in lists.items()}
    own = {name: int(wrong[lists[name][:count]].sum()) for name, count in numbers.items()}
    row = value("wrong among suspects", own["ours"] / max(1, ours.suspicious), "share")
    row |= {"judged_by": "the other half" if halves else "the same", "examples": len(wrong)}
    row |= {"wrong": int(wrong.sum()), "numbers": numbers, "own": own}
    return row | {"inspected": inspected, "found": found}
