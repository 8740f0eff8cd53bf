"""What the Diet-SB report compares; how it was set up is not known, so all of this is ours.

"A share is pruned" means that so much of an epoch's examples is not trained on, the same for every
strategy: random training leaves out others each epoch, SB selects what is left, EL2N leaves the
lowest scores out of the data set for good, and Diet-SB does both, each by the root of what is left.
"""

import math
from dataclasses import replace

from reproductions.jiang2019 import lineup
from reproductions.jiang2019.example_probes import El2nRanks, Selections
from reproductions.jiang2019.items import Entry, Panel
from reproductions.jiang2019.settings import Scale, Setting
from reproductions.jiang2019.text import percent
from selective_backprop.lab.report.styles import Style, strategy_colours
from selective_backprop.lab.training.run_config import Plan

PRUNED = (0.25, 0.5, 0.75)
HALF = 0.5
_DASHES = {"random": "dot", "sb": "solid", "el2n": "dash", "diet": "longdash"}


def accuracy(scale: Scale) -> tuple[Panel, ...]:
    """Return random training, SB, EL2N and Diet-SB, at each share, and traditional training."""
    setting = scale.pruned
    four = [entry for share in PRUNED for entry in _four(setting, share)]
    return (Panel(setting.title, setting, (lineup.traditional(setting), *four)),)


def seven(scale: Scale) -> tuple[Panel, ...]:
    """Return seven methods, six of which leave out a half."""
    setting = scale.pruned
    random, ours, el2n, diet = _four(setting, HALF)
    stale = lineup.stale(setting, rate=1 - HALF)
    both = _pruning(setting, "el2n-random", keep=math.sqrt(HALF), rate=math.sqrt(HALF))
    entries = (
        lineup.traditional(setting),
        random,
        ours,
        stale,
        el2n,
        _entry("EL2N + random", "el2n-random", both),
        diet,
    )
    plain = tuple(replace(each, label=each.label.removesuffix(" 50 %")) for each in entries)
    return (Panel(f"{setting.title}, 50 % pruned", setting, plain),)


def nets(scale: Scale) -> tuple[Panel, ...]:
    """Return two nets, young, whose EL2N scores are wanted."""
    return tuple(_scored(setting) for setting in scale.scored)


def chosen(scale: Scale) -> tuple[Panel, ...]:
    """Return SB, whose selections are counted, and the second young net."""
    setting = scale.pruned
    ours = lineup.probed(_four(setting, HALF)[1], Selections())
    return Panel(setting.title, setting, (ours,)), _scored(scale.scored[1])


def _scored(setting: Setting) -> Panel:
    return Panel(setting.title, setting, (lineup.probed(lineup.traditional(setting), El2nRanks()),))


def _four(setting: Setting, share: float) -> tuple[Entry, Entry, Entry, Entry]:
    """Return the four strategies that train on all but a share of an epoch's examples."""
    left = 1 - share
    words = f" {percent(share)}"
    return (
        _entry(f"Random{words}", "random", lineup.plan(setting, "random-backprop", rate=left)),
        _entry(f"SB{words}", "sb", lineup.plan(setting, "selective-backprop", rate=left)),
        _entry(f"EL2N{words}", "el2n", _pruning(setting, "el2n", keep=left)),
        _entry(
            f"Diet-SB{words}",
            "diet",
            _pruning(setting, "diet-sb", keep=math.sqrt(left), rate=math.sqrt(left)),
        ),
    )


def _pruning(setting: Setting, arm: str, *, keep: float, rate: float | None = None) -> Plan:
    plan = lineup.plan(setting, arm, rate=rate)
    return replace(plan, settings=replace(plan.settings, keep=keep))


def _entry(label: str, key: str, plan: Plan) -> Entry:
    colour = strategy_colours([plan.arm])[plan.arm]
    return Entry(label, plan, Style(colour, _DASHES.get(key, "solid"), 2.0), key)
