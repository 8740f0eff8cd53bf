"""The strategies that the papers compare, in a setting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import selective_backprop as sb
from reproductions.costs import cost
from reproductions.figures import Entry, Setting
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.budget import Length
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.report.styles import Style, strategy_colours
from selective_backprop.lab.strategies import Settings
from selective_backprop.lab.training.callbacks import Probe
from selective_backprop.lab.training.run_config import Plan

STALE = 3
# Of one strategy's variants: Okabe and Ito's, dark and light alternating.
_VARIANTS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_DASHES = ("solid", "dash", "dashdot", "dot", "longdash", "longdashdot")


def plan(
    setting: Setting,
    arm: str,
    *,
    rate: float | None = None,
    stale: int = STALE,
    noise: float = 0.0,
    recipe: Recipe | None = None,
) -> Plan:
    """Return one strategy's run in a setting, as the paper ran it.

    Candidates are drawn each on its own coin, and everything trains for the same epochs, at a
    learning rate that follows them.
    """
    return Plan(
        recipe=recipe or setting.recipe,
        arm=arm,
        settings=Settings(
            rate=setting.rate if rate is None else rate,
            draw=sb.selectors.Draw.BERNOULLI,
            warmup=setting.warmup,
            # Arms that do not remember scores are the same run whatever it says.
            stale=max(2, stale),
        ),
        seed=0,
        length=Length("epochs", float(setting.recipe.epochs)),
        evaluations=setting.evaluations,
        limit=setting.limit,
        noise=noise,
    )


def traditional(setting: Setting, **options: Any) -> Entry:
    """Return traditional training; the options of all these are those of `plan`."""
    return _entry("Traditional", "traditional", plan(setting, BASELINE, **options))


def shortened(setting: Setting) -> Entry:
    """Return traditional training of SB's cost, its schedule shortened to that."""
    budget = round(cost(plan(setting, "selective-backprop")), 2)
    it = replace(plan(setting, BASELINE), length=Length("cost", budget))
    entry = _entry("Traditional, shortened", "shortened", it)
    return replace(entry, style=replace(entry.style, dash="dash"))


def random_backprop(setting: Setting, **options: Any) -> Entry:
    """Return training on a random share, without a selection pass."""
    return _entry("Random-Backprop", "random", plan(setting, "random-backprop", **options))


def random_scored(setting: Setting) -> Entry:
    """Return the control that pays for scores and selects at random."""
    return _entry("Random, scored", "scored", plan(setting, "random-scored"))


def selective(setting: Setting, **options: Any) -> Entry:
    """Return Selective-Backprop."""
    return _entry("SB", "sb", plan(setting, "selective-backprop", **options))


def stale(setting: Setting, epochs: int = STALE, **options: Any) -> Entry:
    """Return Stale-SB, which scores every so many epochs."""
    return _entry("Stale-SB", "stale", plan(setting, "stale-sb", stale=epochs, **options))


def kath18(setting: Setting, *, rate: float | None = None, recipe: Recipe | None = None) -> Entry:
    """Return Kath18 as the paper ran it: by loss, unweighted, from when its variance says so."""
    rate = setting.kath18_rate if rate is None else rate
    it = plan(setting, "kath18-loss-gated", rate=rate, recipe=recipe)
    return replace(_entry("Kath18", "kath18", it), style=_style("kath18"))


def everyone(setting: Setting) -> tuple[Entry, ...]:
    """Return the paper's strategies and their controls."""
    controls = (shortened, random_backprop, random_scored)
    return tuple(make(setting) for make in (traditional, *controls, selective, stale, kath18))


def probed(entry: Entry, *probes: Probe) -> Entry:
    """Return an entry whose runs are looked into."""
    return replace(entry, plan=replace(entry.plan, probes=probes))


def variants(entries: Sequence[tuple[str, Entry]]) -> tuple[Entry, ...]:
    """Return entries under names, colours and dashes of their own."""
    return tuple(
        replace(
            entry, label=label, key=label, style=Style(_VARIANTS[i % 6], _DASHES[i % 6], width=2.0)
        )
        for i, (label, entry) in enumerate(entries)
    )


def _entry(label: str, key: str, it: Plan) -> Entry:
    return Entry(label, it, _style(it.arm), key)


def _style(arm: str) -> Style:
    return Style(strategy_colours([arm])[arm], "solid", width=2.4 if arm == BASELINE else 2.0)
