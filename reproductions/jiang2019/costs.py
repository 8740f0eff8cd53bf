"""How long a run takes, from what its passes were measured to take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from selective_backprop.lab.training.run_config import Plan


@dataclass(frozen=True)
class Speed:
    """Seconds per 1,000 examples, on one thread.

    Attributes:
        forward: of a pass without gradients.
        step: of a training step: forward, backward, optimiser.
    """

    forward: float
    step: float


# Measured on one thread of an AMD EPYC, torch 2.13; colour images have 32 pixels a side, grey 28.
_COLOUR = {"cifar10", "cifar100", "svhn", "svhn-extra"}
_SPEEDS: Mapping[tuple[str, bool], Speed] = {
    ("tiny_cnn", True): Speed(0.017, 0.053),
    ("small_cnn", True): Speed(0.077, 0.220),
    ("resnet9_narrow", True): Speed(0.652, 2.252),
    ("resnet18_narrow", True): Speed(1.2, 4.2),
    ("googlenet_narrow", True): Speed(6.0, 22.0),
    ("tiny_cnn", False): Speed(0.012, 0.040),
    ("small_cnn", False): Speed(0.046, 0.167),
}
_EXAMPLES = {  # training, test
    "digits": (1437, 360),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "svhn-extra": (604_388, 26_032),
}
# Seconds per 1,000 examples: normalising, and augmenting as well.
_NORMALISING, _LOADING = 0.01, 0.045
_WITHOUT_SCORING = {"traditional", "random-backprop"}
_REMEMBERING = {"stale-sb"}
# What they are on what pruning leaves.
_PRUNED = {
    "el2n": "traditional",
    "el2n-random": "random-backprop",
    "diet-sb": "selective-backprop",
}


def passes(plan: Plan) -> tuple[float, float]:
    """Return how many passes over the data a run scores, and how many it trains on."""
    rate, length = plan.settings.rate, plan.length.value
    if plan.arm in _PRUNED:
        scored, trained = passes(replace(plan, arm=_PRUNED[plan.arm]))
        keep, models = plan.settings.keep, plan.settings.models
        return keep * scored + models, keep * trained + models * plan.settings.young * length
    if plan.arm == "traditional":
        return 0.0, length
    warmup = 0.0 if plan.arm in {"random-backprop", "random-scored"} else plan.settings.warmup
    selective = length * (1.0 - warmup)
    scored = 0.0 if plan.arm in _WITHOUT_SCORING else selective
    if plan.arm in _REMEMBERING:
        scored /= plan.settings.stale
    return scored, length * warmup + rate * selective


def cost(plan: Plan) -> float:
    """Return what a run of so many epochs costs, in passes of traditional training."""
    scored, trained = passes(plan)
    return scored / 3 + trained


def seconds(plan: Plan) -> float | None:
    """Return how long a run takes on one thread of a CPU, evaluations and probes included.

    Returns:
        None where nothing is known of the net.
    """
    data = plan.recipe.data
    speed = _SPEEDS.get((plan.recipe.model, data in _COLOUR))
    if speed is None or data not in _EXAMPLES or plan.device != "cpu":
        return None
    examples, tested = _EXAMPLES[data]
    if plan.limit is not None:
        examples = plan.limit
    scored, trained = passes(plan)
    training = examples * (scored * speed.forward + trained * speed.step)
    loading = examples * max(scored, trained) * _LOADING
    evaluating = plan.evaluations * tested * (speed.forward + _NORMALISING)
    looking = 0.0
    for probe in plan.probes:
        forward, backward = probe.passes(examples, tested, plan.evaluations)
        looking += forward * (speed.forward + _NORMALISING) + backward * speed.step
    return (training + loading + evaluating + looking) / 1000


def work(plan: Plan) -> float:
    """Return a run's size for comparison with others' where its seconds are unknown."""
    examples = plan.limit or _EXAMPLES.get(plan.recipe.data, (1000, 0))[0]
    return examples * cost(plan)
