"""What runs are expected to cost: passes over the data, and seconds here."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median

from selective_backprop.lab.records.schema import Run
from selective_backprop.lab.training.run_config import RunConfig

# Seconds per 1,000 examples of a forward pass and of a training step, on one thread of an AMD
# EPYC, torch 2.13, by net and by whether images are colour, of 32 pixels a side, or grey, of 28.
_COLOUR = {"cifar10", "cifar100", "svhn", "svhn-extra"}
_SPEEDS = {
    ("tiny_cnn", True): (0.017, 0.053),
    ("small_cnn", True): (0.077, 0.220),
    ("resnet9_narrow", True): (0.652, 2.252),
    ("resnet18_narrow", True): (1.2, 4.2),
    ("googlenet_narrow", True): (6.0, 22.0),
    ("tiny_cnn", False): (0.012, 0.040),
    ("small_cnn", False): (0.046, 0.167),
}
_NORMALISING, _LOADING = 0.01, 0.045  # the same of normalising, and of augmenting as well
_EXAMPLES = {  # training, test
    "digits": (1437, 360),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "svhn-extra": (604_388, 26_032),
}
# What they are on what pruning leaves.
_PRUNED = {
    "el2n": "traditional",
    "el2n-random": "random-backprop",
    "diet-sb": "selective-backprop",
}
_SHORTEST = 5.0  # seconds of a run that says something of the pace


def passes(plan: RunConfig) -> tuple[float, float]:
    """Return how many passes over the data a run scores, and how many it trains on."""
    settings, length = plan.settings, plan.length.value
    if plan.arm in _PRUNED:
        scored, trained = passes(replace(plan, arm=_PRUNED[plan.arm]))
        keep, models = settings.keep, settings.models
        return keep * scored + models, keep * trained + models * settings.young * length
    if plan.arm == "traditional":
        return 0.0, length
    warmup = 0.0 if plan.arm in {"random-backprop", "random-scored"} else settings.warmup
    selective = length * (1.0 - warmup)
    scored = 0.0 if plan.arm == "random-backprop" else selective
    if plan.arm == "stale-sb":
        scored /= settings.stale
    return scored, length * warmup + settings.rate * selective


def cost(plan: RunConfig) -> float:
    """Return what a run of so many epochs costs, in passes of traditional training."""
    scored, trained = passes(plan)
    return scored / 3 + trained


def work(plan: RunConfig) -> float:
    """Return a run's size, by which it is compared with others of its kind."""
    examples = plan.limit or _EXAMPLES.get(plan.recipe.data, (1000, 0))[0]
    return examples * cost(plan)


def seconds(plan: RunConfig) -> float | None:
    """Return how long a run takes on one thread of a CPU, with its evaluations and probes.

    Returns:
        None where nothing is known of the net.
    """
    data = plan.recipe.data
    speed = _SPEEDS.get((plan.recipe.model, data in _COLOUR))
    if speed is None or data not in _EXAMPLES or plan.device != "cpu":
        return None
    forward, step = speed
    examples, tested = _EXAMPLES[data]
    if plan.limit is not None:
        examples = plan.limit
    scored, trained = passes(plan)
    total = examples * (scored * forward + trained * step + max(scored, trained) * _LOADING)
    looked, stepped = plan.evaluations * tested, 0
    for probe in plan.probes:
        without, with_gradient = probe.passes(examples, tested, plan.evaluations)
        looked, stepped = looked + without, stepped + with_gradient
    return (total + looked * (forward + _NORMALISING) + stepped * step) / 1000


class Pace:
    """Estimates of seconds: from finished runs of the same net and data, else from `seconds`."""

    def __init__(self, finished: Iterable[tuple[RunConfig, Run]]) -> None:
        found: dict[tuple[str, str, str], list[float]] = {}
        for plan, run in finished:
            elapsed = elapsed_of(run)
            if elapsed >= _SHORTEST:
                found.setdefault(_kind(plan), []).append(elapsed / work(plan))
        self._paces = {kind: median(paces) for kind, paces in found.items()}

    def seconds(self, plan: RunConfig) -> float | None:
        """Return how long a run takes, or None where nothing is known of its kind."""
        pace = self._paces.get(_kind(plan))
        return seconds(plan) if pace is None else pace * work(plan)


def total(times: Sequence[float | None], jobs: int) -> float | None:
    """Return how long all takes, so many at a time; None where the time of one is unknown."""
    known = [time for time in times if time is not None]
    return max([sum(known) / jobs, *known]) if len(known) == len(times) else None


def elapsed_of(run: Run) -> float:
    """Return the seconds that a finished run took, interruptions left out where that is known."""
    end = run.end or {}
    if "elapsed" in end:
        return float(end["elapsed"])
    begun = datetime.fromisoformat(run.header.started)
    return (datetime.fromisoformat(end.get("ended", run.header.started)) - begun).total_seconds()


def _kind(plan: RunConfig) -> tuple[str, str, str]:
    return plan.recipe.model, plan.recipe.data, plan.device
