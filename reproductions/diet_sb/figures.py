"""What the Diet-SB report compares; how it was set up is not known, so all of this is ours.

"A share is pruned" means that so much of an epoch's examples is not trained on, the same for every
strategy: random training leaves out others each epoch, SB selects what is left, EL2N leaves the
lowest scores out of the data set for good, and Diet-SB does both, each by the root of what is left.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reproductions import strategies
from reproductions.diet_sb import methods, overlap
from reproductions.diet_sb.overlap import HALF, PRUNED
from reproductions.figures import Entry, PanelSpec, Scale, Setting, figures_of
from reproductions.probes import El2nRanks, Selections
from reproductions.strategies import probed
from selective_backprop.lab.analysis.tables import percent
from selective_backprop.lab.training.run_config import RunConfig

_DASHES = {"random": "dot", "sb": "solid", "el2n": "dash", "diet": "longdash"}


def accuracy(scale: Scale) -> Sequence[PanelSpec]:
    """Return random training, SB, EL2N and Diet-SB, at each share, and traditional training."""
    setting = scale.pruned
    four = [entry for share in PRUNED for entry in _four(setting, share)]
    return [PanelSpec(setting.title, setting, (strategies.entry("traditional", setting), *four))]


def seven(scale: Scale) -> Sequence[PanelSpec]:
    """Return seven methods, six of which leave out a half."""
    setting = scale.pruned
    random, ours, el2n, diet = _four(setting, HALF)
    stale = strategies.entry("stale", setting, rate=1 - HALF)
    both = _pruning(setting, "el2n-random", keep=math.sqrt(HALF), rate=math.sqrt(HALF))
    mixed = _entry("EL2N + random", "el2n-random", both)
    entries = (strategies.entry("traditional", setting), random, ours, stale, el2n, mixed, diet)
    plain = tuple(replace(each, label=each.label.removesuffix(" 50 %")) for each in entries)
    return [PanelSpec(f"{setting.title}, 50 % pruned", setting, plain)]


def nets(scale: Scale) -> Sequence[PanelSpec]:
    """Return two nets, young, whose EL2N scores are wanted."""
    return [_scored(setting) for setting in scale.scored]


def chosen(scale: Scale) -> Sequence[PanelSpec]:
    """Return SB, whose selections are counted, and the second young net."""
    setting = scale.pruned
    ours = probed(_four(setting, HALF)[1], Selections())
    return [PanelSpec(setting.title, setting, (ours,)), _scored(scale.scored[1])]


def _scored(setting: Setting) -> PanelSpec:
    return PanelSpec(
        setting.title, setting, (probed(strategies.entry("traditional", setting), El2nRanks()),)
    )


def _four(setting: Setting, share: float) -> tuple[Entry, Entry, Entry, Entry]:
    """Return the four strategies that train on all but a share of an epoch's examples."""
    left, words = 1 - share, f" {percent(share)}"
    root = math.sqrt(left)
    random = strategies.plan(setting, "random-backprop", rate=left)
    ours = strategies.plan(setting, "selective-backprop", rate=left)
    return (
        _entry(f"Random{words}", "random", random),
        _entry(f"SB{words}", "sb", ours),
        _entry(f"EL2N{words}", "el2n", _pruning(setting, "el2n", keep=left)),
        _entry(f"Diet-SB{words}", "diet", _pruning(setting, "diet-sb", keep=root, rate=root)),
    )


def _pruning(setting: Setting, arm: str, *, keep: float, rate: float | None = None) -> RunConfig:
    plan = strategies.plan(setting, arm, rate=rate)
    return replace(plan, settings=replace(plan.settings, keep=keep))


def _entry(label: str, key: str, plan: RunConfig) -> Entry:
    return strategies.styled(label, key, plan, dash=_DASHES.get(key, "solid"))


FIGURES = figures_of(
    Path(__file__).with_name("reported.toml"),
    {
        "diet-runtime": (methods.present_runtime, seven),
        "diet-accuracy": (methods.present_accuracy, accuracy),
        "diet-nets": (overlap.present_nets, nets),
        "diet-overlap": (overlap.present_selections, chosen),
        "diet-images": (overlap.present_images, chosen),
        "diet-classes": (overlap.present_classes, chosen),
    },
)
