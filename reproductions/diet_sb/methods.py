"""The poster's methods at its percentages, which are "with respect to the total training dataset".

| method | total dropped (before training) | examples kept | candidates trained on |
| :-- | :-- | --: | --: |
| Random-Backprop, SB | x (0 %) | all | 1 − x |
| EL2N | x (x) | 1 − x | all |
| Diet-SB | 50 % (25 %) | 75 % | 2/3 |
| Diet-SB | 62.5 % (25 %) | 75 % | 1/2 |

Methods that drop candidates first train on all of them for an epoch. EL2N prunes by two young nets;
its source uses ten.
"""

from collections.abc import Sequence
from dataclasses import replace

from reproductions import settings
from reproductions.evidence import Panel
from reproductions.settings import Arm, Setting
from selective_backprop_lab.analysis.queries import BASELINE

PRUNED_FIRST = 0.25  # by EL2N, before Diet-SB selects
BACKPROP = (0.25, 0.5, 0.75, 0.85, 0.9)  # dropped by Random-Backprop and SB
EL2N = (0.25, 0.5)
DIET = (0.5, 0.625)
FEW_BACKPROP = (0.5, 0.75, 0.9)  # the same of CIFAR-10, of which the poster shows no figure
EARLY = 0.1  # of a run, after which EL2N scores are taken, as the runs that prune take them
METHODS = {  # name, arm and dash, by key
    "random": ("Random-Backprop", "random-backprop", "dot"),
    "sb": ("SB", "selective-backprop", "solid"),
    "el2n": ("EL2N", "el2n", "dash"),
    "diet": ("Diet-SB", "diet-sb", "longdash"),
}


def make_arm(method: str, dropped: float, setting: Setting) -> Arm:
    """Return a method that trains on all but a share of the training examples in an epoch."""
    first = {"el2n": dropped, "diet": PRUNED_FIRST}.get(method, 0.0)
    name, arm, dash = METHODS[method]
    run = settings.plan(setting, arm, rate=(1 - dropped) / (1 - first))
    if first:
        run = replace(run, settings=replace(run.settings, keep=1 - first, young=EARLY))
    share = f"{100 * dropped:g}"
    return settings.styled(f"{name} {share} %", f"{method}-{share}", run, dash=dash)


def baseline(setting: Setting) -> Arm:
    """Return traditional training, which the poster calls Baseline."""
    return replace(settings.make_arm(BASELINE, setting), label="Baseline")


def panel(setting: Setting, **shares: Sequence[float]) -> Panel:
    """Return the baseline and each method at its shares."""
    arms = [make_arm(method, share, setting) for method in shares for share in shares[method]]
    return Panel(setting.title, setting, (baseline(setting), *arms))


def early(setting: Setting) -> Setting:
    """Return the training after which EL2N scores are taken."""
    epochs = max(2, round(EARLY * setting.recipe.epochs))  # one would be all warm-up
    young = settings.changed(setting, epochs=epochs)
    return replace(young, title=f"{setting.title}, young", evaluations=1)
