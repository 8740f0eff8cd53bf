"""The poster's methods at its percentages, which are "with respect to the total training dataset".

| method | total dropped (before training) | examples kept | candidates trained on |
| :-- | :-- | --: | --: |
| Random-Backprop, SB | x (0 %) | all | 1 − x |
| EL2N | x (x) | 1 − x | all |
| Diet-SB | 50 % (25 %) | 75 % | 2/3 |
| Diet-SB | 62.5 % (25 %) | 75 % | 1/2 |

Whatever drops candidates trains on all of them for an epoch first. EL2N prunes by two young nets
where its source uses ten.
"""

from collections.abc import Sequence
from dataclasses import replace

from reproductions import figures

BASELINE = "traditional"
PRUNED_FIRST = 0.25  # by EL2N, before Diet-SB selects
BACKPROP = (0.25, 0.5, 0.75, 0.85, 0.9)  # dropped by Random-Backprop and SB
EL2N = (0.25, 0.5)
DIET = (0.5, 0.625)
FEW_BACKPROP = (0.5, 0.75, 0.9)  # the same of CIFAR-10, of which the poster shows no figure
NAMES = {"random": "Random-Backprop", "sb": "SB", "el2n": "EL2N", "diet": "Diet-SB"}
YOUNG = 0.1  # of a run, after which EL2N scores are taken, as the runs that prune take them
_ARMS = {
    "random": ("random-backprop", "dot"),
    "sb": ("selective-backprop", "solid"),
    "el2n": ("el2n", "dash"),
    "diet": ("diet-sb", "longdash"),
}


def percents(share: float) -> str:
    """Return a share in per cent, as the poster writes it."""
    return f"{100 * share:g} %"


def key_of(method: str, dropped: float) -> str:
    """Return what judges know a method at a share by, such as `diet-62.5`."""
    return f"{method}-{100 * dropped:g}"


def entry(method: str, dropped: float, setting: figures.Setting) -> figures.Entry:
    """Return a method that trains on all but a share of the training examples in an epoch."""
    first = {"el2n": dropped, "diet": PRUNED_FIRST}.get(method, 0.0)
    arm, dash = _ARMS[method]
    plan = figures.plan(setting, arm, rate=(1 - dropped) / (1 - first))
    if first:
        plan = replace(plan, settings=replace(plan.settings, keep=1 - first, young=YOUNG))
    label = f"{NAMES[method]} {percents(dropped)}"
    return figures.styled(label, key_of(method, dropped), plan, dash=dash)


def baseline(setting: figures.Setting) -> figures.Entry:
    """Return traditional training, which the poster calls Baseline."""
    return replace(figures.entry(BASELINE, setting), label="Baseline")


def panel(
    setting: figures.Setting, title: str, *rows: tuple[str, Sequence[float]]
) -> figures.PanelSpec:
    """Return the baseline and each method at its shares."""
    found = [entry(method, share, setting) for method, shares in rows for share in shares]
    return figures.PanelSpec(title, setting, (baseline(setting), *found))


def young(setting: figures.Setting) -> figures.Setting:
    """Return the training after which EL2N scores are taken."""
    epochs = max(2, round(YOUNG * setting.recipe.epochs))  # one would be all warm-up
    recipe = replace(setting.recipe, epochs=epochs)
    return replace(setting, title=f"{setting.title}, young", recipe=recipe, evaluations=1)
