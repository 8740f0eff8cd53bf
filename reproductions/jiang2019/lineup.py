"""The strategies that the papers compare, in a setting."""

from collections.abc import Sequence
from dataclasses import replace

import selective_backprop as sb
from reproductions.jiang2019.costs import cost
from reproductions.jiang2019.items import Entry
from reproductions.jiang2019.settings import Setting
from selective_backprop.lab.analysis.grouping import BASELINE
from selective_backprop.lab.budget import Length
from selective_backprop.lab.recipe import Recipe
from selective_backprop.lab.report.styles import Style, strategy_colours
from selective_backprop.lab.strategies import Settings
from selective_backprop.lab.training.callbacks import Probe
from selective_backprop.lab.training.run_config import Plan

KATH18 = "kath18-loss-gated"
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


def traditional(setting: Setting, *, noise: float = 0.0, recipe: Recipe | None = None) -> Entry:
    """Return traditional training."""
    it = plan(setting, BASELINE, noise=noise, recipe=recipe)
    return Entry("Traditional", it, _style(BASELINE), "traditional")


def shortened(setting: Setting) -> Entry:
    """Return traditional training of SB's cost, its schedule shortened to that."""
    budget = round(cost(plan(setting, "selective-backprop")), 2)
    it = replace(plan(setting, BASELINE), length=Length("cost", budget))
    style = replace(_style(BASELINE), dash="dash")
    return Entry("Traditional, shortened", it, style, "shortened")


def random_backprop(setting: Setting, *, noise: float = 0.0) -> Entry:
    """Return training on a random share, without a selection pass."""
    it = plan(setting, "random-backprop", noise=noise)
    return Entry("Random-Backprop", it, _style(it.arm), "random")


def random_scored(setting: Setting) -> Entry:
    """Return the control that pays for scores and selects at random."""
    it = plan(setting, "random-scored")
    return Entry("Random, scored", it, _style(it.arm), "scored")


def selective(
    setting: Setting,
    *,
    rate: float | None = None,
    noise: float = 0.0,
    recipe: Recipe | None = None,
) -> Entry:
    """Return Selective-Backprop."""
    it = plan(setting, "selective-backprop", rate=rate, noise=noise, recipe=recipe)
    return Entry("SB", it, _style(it.arm), "sb")


def stale(
    setting: Setting,
    epochs: int = STALE,
    *,
    rate: float | None = None,
    recipe: Recipe | None = None,
) -> Entry:
    """Return Stale-SB, which scores every so many epochs."""
    it = plan(setting, "stale-sb", rate=rate, stale=epochs, recipe=recipe)
    return Entry("Stale-SB", it, _style(it.arm), "stale")


def kath18(setting: Setting, *, rate: float | None = None, recipe: Recipe | None = None) -> Entry:
    """Return Kath18 as the paper ran it: by loss, unweighted, from when its variance says so."""
    rate = setting.kath18_rate if rate is None else rate
    it = plan(setting, KATH18, rate=rate, recipe=recipe)
    return Entry("Kath18", it, _style("kath18"), "kath18")


def probed(entry: Entry, *probes: Probe) -> Entry:
    """Return an entry whose runs are looked into."""
    return replace(entry, plan=replace(entry.plan, probes=probes))


def everyone(setting: Setting) -> tuple[Entry, ...]:
    """Return the paper's strategies and their controls."""
    return (
        traditional(setting),
        shortened(setting),
        random_backprop(setting),
        random_scored(setting),
        selective(setting),
        stale(setting),
        kath18(setting),
    )


def variants(entries: Sequence[tuple[str, Entry]]) -> tuple[Entry, ...]:
    """Return entries under names, colours and dashes of their own.

    Args:
        entries: name, and what it stands for.
    """
    return tuple(
        replace(
            entry,
            label=label,
            key=label,
            style=Style(colour=_VARIANTS[i % 6], dash=_DASHES[i % 6], width=2.0),
        )
        for i, (label, entry) in enumerate(entries)
    )


def _style(arm: str) -> Style:
    width = 2.4 if arm == BASELINE else 2.0
    return Style(colour=strategy_colours([arm])[arm], dash="solid", width=width)
