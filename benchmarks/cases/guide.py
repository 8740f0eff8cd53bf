"""What the guide says of data, beside what they were made up of."""

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
from benchmarks.case import Once, Row, case, value
from benchmarks.training import train
from selective_backprop_lab.data import datasets
from selective_backprop_lab.data.augment import Augmentation
from selective_backprop_lab.data.composition import Composition
from selective_backprop_lab.data.loader import make_loader
from selective_backprop_lab.data.noise import LabelNoise, NoiseKind
from selective_backprop_lab.recipe import Recipe, find_recipe

GUIDE = "src/selective_backprop/guide"
# What data are made into, as settings of `Composition`.
NEAR, SKEWED = {"copies": 1, "near_copies": 2}, {"skew": 1.5, "copies": 1, "places": 8000}
NEIGHBOUR = {"noise_kind": NoiseKind.NEIGHBOUR}
FEW = ({}, NEAR, SKEWED, {"noise": 0.1}, {"noise": 0.2, **NEIGHBOUR})
MANY = (
    *({}, {"copies": 1}, NEAR, SKEWED, {"noise": 0.05}, {"noise": 0.05, **NEIGHBOUR}),
    *({"noise": 0.1}, {"noise": 0.1, **NEIGHBOUR}, {"noise": 0.2}, {"noise": 0.2, **NEIGHBOUR}),
    {**SKEWED, "noise": 0.1},
)
MADE: dict[str, tuple[dict[str, Any], ...]] = {
    "digits": MANY,
    "mnist": MANY,
    "fashion-mnist": FEW,
    "cifar10": FEW,
}
SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # of the examples that are inspected
ARMS: dict[str, Callable[[], sb.Strategy]] = {
    "traditional": sb.traditional,
    "selective-backprop": lambda: sb.selective_backprop(rate=1 / 3),
    "random-backprop": lambda: sb.random_backprop(rate=1 / 3),
    "easy-skip": sb.easy_skip,
}
RAREST = 3  # classes
KINDS = ("wrong", "rare class", "hard", "unknown", "")


@case(GUIDE)
def traits(
    *,
    data: tuple[str, ...] = tuple(MADE),
    root: Path = Path("data"),
    look: float = 60.0,
) -> Iterator[Once]:
    """What `data_traits` finds in data that were made repetitive, skewed and mislabelled."""
    for name in data:
        for settings in MADE[name]:
            yield Once(
                {"data": name, "settings": settings},
                lambda name=name, settings=settings: traits_of(name, settings, root, look),
            )


def traits_of(name: str, settings: dict[str, Any], root: Path, seconds: float) -> list[Row]:
    """Return what one composition is made up of, and what is found."""
    clean, composition = datasets.load(name, root=root), Composition(**settings)
    data = composition(clean)
    repeats = 0.0
    if composition.places is not None or composition.copies:
        rows = composition.rows(clean.train_labels, clean.class_names)
        repeats = 1 - len(rows.unique()) / len(rows)
    right = data.train_labels if data.train_clean_labels is None else data.train_clean_labels
    shares = right.bincount().double() / len(right)
    begun = time.process_time()
    found = sb.guide.data_traits(make_loader(data, batch_size=128, seed=0), seconds=seconds)
    spent = time.process_time() - begun
    return [
        value("a look", spent, "CPU seconds")
        | {"examples": len(data.train_labels), "cpu_seconds": spent, "repeats": repeats}
        | {"effective_classes": float(torch.special.entr(shares).sum().exp())}
        | {"wrong": float(data.flipped.double().mean()), "found": asdict(found)}
    ]


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
    arms: tuple[str, ...] = ("traditional", "selective-backprop"),
    seeds: tuple[int, ...] = (0,),
) -> Iterator[Once]:
    """How well mislabelled examples are found, by several rules, on labels flipped on purpose.

    A look is a training forward or a pass that scores. Each rule gives every example a number;
    recorded is how many of the highest are wrong. An empty model and 0 stand for the recipe's.
    """
    recipe = find_recipe(data)
    recipe = replace(recipe, epochs=epochs or recipe.epochs, model=model or recipe.model)
    clean = datasets.load(data, root=root, limit=limit or None)
    about = {"data": data, "net": recipe.model, "epochs": recipe.epochs}
    about |= {"noise": noise, "skew": skew}
    for seed, arm in itertools.product(seeds, arms):

        def find(seed: int = seed, arm: str = arm) -> list[Row]:
            composed = Composition(skew=skew, noise=noise, seed=seed)(clean)
            looks = Looks(composed.train_labels)
            net = train(composed, recipe, ARMS[arm](), seed=seed, see=looks.see)
            return [found_by_rules(composed, looks, final_losses(net, composed))]

        yield Once(about | {"arm": arm, "seed": seed}, find)


@case(GUIDE)
def label_issues(
    *,
    data: tuple[str, ...] = ("digits", "fashion-mnist"),
    root: Path = Path("data"),
    limit: tuple[int, ...] = (0, 4000),
    epochs: tuple[int, ...] = (10, 4),
    noise: float = 0.2,
    seeds: tuple[int, ...] = (0, 1, 2),
) -> Iterator[Once]:
    """How well one pass of a trained model finds wrong labels, beside cleanlab's filter.

    Perceptrons, without augmentation: of each half by a model of the other, and of all by a model
    of all. Limits, 0 for none, and epochs are of each data set. Without cleanlab, its numbers are
    missing.
    """
    for (name, most, length), seed, kind in itertools.product(
        zip(data, limit, epochs, strict=True), seeds, NoiseKind
    ):

        def find(
            name: str = name,
            most: int = most,
            length: int = length,
            seed: int = seed,
            kind: NoiseKind = kind,
        ) -> list[Row]:
            noisy = LabelNoise(noise, seed, kind)(
                datasets.load(name, root=root, limit=most or None)
            )
            recipe = replace(find_recipe(name), model="perceptron", epochs=length)
            recipe = replace(recipe, augmentation=Augmentation())
            return [issues_row(noisy, recipe, seed, halves) for halves in (True, False)]

        about = {"data": name, "net": "perceptron", "epochs": length, "noise": noise}
        yield Once(about | {"seed": seed, "kind": kind.value}, find)


def issues_row(data: datasets.LabData, recipe: Recipe, seed: int, halves: bool) -> Row:
    """Return how many suspects there are, and how many are wrong, by each rule."""
    order = torch.randperm(len(data.train_labels), generator=torch.Generator().manual_seed(seed))
    parts = order.chunk(2) if halves else (order,)
    logits = torch.empty(len(order), data.classes)
    for part, other in zip(parts, parts[::-1], strict=True):
        net = train(data.within(other), recipe, sb.traditional(), seed=seed).eval()
        with torch.no_grad():
            batches = make_loader(data.within(part), batch_size=500, seed=0, shuffle=False)
            logits[part] = torch.cat([net(images) for images, _ in batches])
    labels, wrong = data.train_labels, data.flipped.numpy()
    loader = DataLoader(TensorDataset(logits, labels), batch_size=500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sb.SelectionWarning)  # of labels that were trained on
        ours = sb.guide.find_label_issues(nn.Identity(), loader, nn.CrossEntropyLoss())
    lists = {"ours": ours.indices, "doubt alone": np.argsort(-doubts_of(logits, labels))}
    numbers = {"ours": ours.suspicious}
    if find_spec("cleanlab"):
        lists["cleanlab"] = cleanlab_issues(logits, labels)
        numbers["cleanlab"] = len(lists["cleanlab"])
    inspected = numbers.get("cleanlab", ours.suspicious)
    found = {name: int(wrong[each[:inspected]].sum()) for name, each in lists.items()}
    own = {name: int(wrong[lists[name][:count]].sum()) for name, count in numbers.items()}
    return value("wrong among suspects", own["ours"] / max(1, ours.suspicious), "share") | {
        **{"judged_by": "the other half" if halves else "the same", "examples": len(wrong)},
        **{"wrong": int(wrong.sum()), "numbers": numbers, "own": own},
        **{"inspected": inspected, "found": found},
    }


def doubts_of(logits: Tensor, labels: Tensor) -> np.ndarray:
    """Return the doubt of each label, by one look."""
    return sb.guide.look_at(logits, labels).doubts.numpy()


def cleanlab_issues(logits: Tensor, labels: Tensor) -> np.ndarray:
    """Return the indices of cleanlab's issues, the most suspicious first."""
    from cleanlab.filter import find_label_issues

    return find_label_issues(
        labels.numpy(),
        logits.double().softmax(1).numpy(),
        return_indices_ranked_by="self_confidence",
        n_jobs=1,
    )


class Looks:
    """Sums over all looks at each example of what the rules are made of."""

    def __init__(self, labels: Tensor) -> None:
        examples = len(labels)
        self.labels = labels
        self.doubts, self.trained = sb.guide.Doubts(examples), sb.guide.Doubts(examples)
        names = ("loss", "late", "margin", "doubt", "other", "count")
        self.sums = {name: torch.zeros(examples, dtype=torch.float64) for name in names}
        self.last = torch.full((examples,), torch.nan)

    def see(self, indices: Tensor, logits: Tensor, epoch: int, trained: bool) -> None:
        """Take note of a batch that is passed forward."""
        labels = self.labels[indices]
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        column = labels.unsqueeze(1)
        rival = logits.scatter(1, column, -torch.inf).max(1).values
        own = torch.exp(-losses)
        values = {
            "loss": losses,
            "late": (1 - 2 * own) * (self.sums["count"][indices] + 1),
            "margin": logits.gather(1, column).squeeze(1) - rival,
            "doubt": sb.guide.look_at(logits, labels).doubts,
            "other": torch.exp(rival - logits.logsumexp(1)) - own,
            "count": torch.ones_like(losses),
        }
        for name, each in values.items():
            self.sums[name].index_add_(0, indices, each.double())
        self.last[indices] = losses
        self.doubts.note(indices, logits, labels)
        if trained:
            self.trained.note(indices, logits, labels)

    def rules(self, final: Tensor) -> dict[str, np.ndarray]:
        """Return what each rule makes of each example: the higher, the more suspicious."""
        sums = {name: each.numpy() for name, each in self.sums.items()}
        count = np.maximum(1.0, sums["count"])
        weight = (count + 1) / 2  # of a look in the mean, where the k-th weighs k
        return {
            "audit": in_order(sb.guide.audit(self.doubts)),
            "audit, training alone": in_order(sb.guide.audit(self.trained)),
            "audit of losses": (sums["late"] / weight - 1) / (sums["count"] + 1),
            "audit, all looks alike": (sums["doubt"] - 1) / (sums["count"] + 1),
            "final loss": np.nan_to_num(self.last.numpy(), nan=-1.0),
            "loss of the final model": final.numpy(),
            "mean loss": sums["loss"] / count,
            "area under the margin": -sums["margin"] / count,
            "probability of another class minus the label's": sums["other"] / count,
        }


def in_order(suspects: sb.guide.Suspects) -> np.ndarray:
    """Return a list of suspects as one number per example."""
    found = np.full(suspects.examples, -np.inf)
    found[suspects.indices] = suspects.suspicion
    return found


@torch.no_grad()
def final_losses(model: nn.Module, data: datasets.LabData) -> Tensor:
    """Return the losses of one more pass, in eval mode and without augmentation."""
    model.eval()
    losses = nn.CrossEntropyLoss(reduction="none")
    batches = make_loader(data, batch_size=1000, seed=0, shuffle=False)
    return torch.cat([losses(model(images), labels) for images, labels in batches])


def found_by_rules(data: datasets.LabData, looks: Looks, final: Tensor) -> Row:
    """Return what each rule finds, and what is said of wrong and of right labels."""
    wrong, found = data.flipped.numpy(), {}
    for name, scores in looks.rules(final).items():
        hits = np.cumsum(wrong[np.argsort(-scores, kind="stable")])
        found[name] = [int(hits[round(share * len(wrong)) - 1]) for share in SHARES]
    suspects = sb.guide.audit(looks.doubts)
    top = suspects.indices[: suspects.suspicious]
    return {
        "examples": len(wrong),
        "wrong": int(wrong.sum()),
        "shares": SHARES,
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
