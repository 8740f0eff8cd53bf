"""The strategies that the papers compare, in a setting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import selective_backprop as sb
from reproductions.figures import Entry, Setting
from reproductions.training import cost
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.budget import Budget
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.report.styles import Style, strategy_colours
from selective_backprop.lab.strategies import StrategyOptions
from selective_backprop.lab.training.callbacks import Probe
from selective_backprop.lab.training.run_config import RunConfig

STALE = 3
# Kath18 as the paper ran it: by loss, unweighted, from when its variance says so.
STRATEGIES = {
    "traditional": ("Traditional", BASELINE),
    "random": ("Random-Backprop", "random-backprop"),
    "scored": ("Random, scored", "random-scored"),
    "sb": ("SB", "selective-backprop"),
    "stale": ("Stale-SB", "stale-sb"),
    "kath18": ("Kath18", "kath18-loss-gated"),
}
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
) -> RunConfig:
    """Return one strategy's run in a setting, as the paper ran it.

    Candidates are drawn each on its own coin, and everything trains for the same epochs, at a
    learning rate that follows them.
    """
    return RunConfig(
        recipe=recipe or setting.recipe,
        arm=arm,
        settings=StrategyOptions(
            rate=setting.rate if rate is None else rate,
            draw=sb.selectors.Draw.BERNOULLI,
            warmup=setting.warmup,
            # Arms that do not remember scores are the same run whatever it says.
            stale=max(2, stale),
        ),
        seed=0,
        length=Budget("epochs", float(setting.recipe.epochs)),
        evaluations=setting.evaluations,
        limit=setting.limit,
        noise=noise,
    )


def entry(key: str, setting: Setting, **options: Any) -> Entry:
    """Return a strategy of `STRATEGIES` in a setting; the options are those of `plan`."""
    label, arm = STRATEGIES[key]
    if key == "kath18":
        options = {"rate": setting.kath18_rate} | options
    return styled(label, key, plan(setting, arm, **options))


def shortened(setting: Setting) -> Entry:
    """Return traditional training of SB's cost, its schedule shortened to that."""
    budget = round(cost(plan(setting, "selective-backprop")), 2)
    it = replace(plan(setting, BASELINE), length=Budget("cost", budget))
    return styled("Traditional, shortened", "shortened", it, dash="dash")


def everyone(setting: Setting) -> list[Entry]:
    """Return the paper's strategies and their controls."""
    first, *others = (entry(key, setting) for key in STRATEGIES)
    return [first, shortened(setting), *others]


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


def styled(label: str, key: str, it: RunConfig, *, dash: str = "solid") -> Entry:
    """Return an entry in the colour of its strategy."""
    arm = "kath18" if it.arm.startswith("kath18") else it.arm
    colour, width = strategy_colours([arm])[arm], 2.4 if arm == BASELINE else 2.0
    return Entry(label, it, Style(colour, dash, width), key)
