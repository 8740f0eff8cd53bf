"""The figures and tables of the paper and its poster: what each needs, draws and lists."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from reproductions.evidence import Panel
from reproductions.figures import by_panel, figures_of
from reproductions.jiang2019 import curves, inside, times
from reproductions.jiang2019.recipes import OTHER_NETS
from reproductions.jiang2019.scales import TUNED
from reproductions.probes import (
    BatchGradients,
    GradientNorms,
    LossQuantiles,
    LossRanks,
    TargetConfidences,
)
from reproductions.settings import Arm, Published, Scale, Setting, make_arm, probed, variants
from reproductions.timing import StepTiming
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import percent
from selective_backprop_lab.recipe import Rates
from selective_backprop_lab.training.probes import Probe

TUNING_SEEDS = (100, 101, 102)  # no other run has them
TUNED_SEEDS = (0, 1, 2)
NOISE = (0.0, 0.01, 0.1, 0.2)
LOOKS = 6  # at gradients of single examples, in a run
STALENESS = (2, 3, 5)
SNAPSHOT = 10  # epochs, or all of a shorter run
# What figures 3, 5 and 15 say was trained; how long is not said.
PROBED = Published("CIFAR-10", "mobilenet_v2", batch_size=128, examples=50_000)
# Appendix A.3, of the nets of figure 16; their length is not said.
OTHERS = Published(
    "CIFAR-10",
    listed(OTHER_NETS),
    batch_size=128,
    examples=50_000,
    rates=Rates.CONSTANT,
    nesterov=False,
)
Lineup = Callable[[Setting], Iterable[Arm]]
Panels = Callable[[Scale], Sequence[Panel]]


def _on(settings: Callable[[Scale], Iterable[Setting]], lineup: Lineup, title: str = "") -> Panels:
    """Return panels of some settings, each with a lineup; `title` may name parts of a setting."""

    def panels(scale: Scale) -> list[Panel]:
        return [
            Panel(title.format(each) or each.title, each, tuple(lineup(each)))
            for each in settings(scale)
        ]

    return panels


def _at(field: str) -> Callable[[Scale], Sequence[Setting]]:
    """Return what takes the settings, or the one, of a scale's field."""

    def settings(scale: Scale) -> Sequence[Setting]:
        found = getattr(scale, field)
        return found if isinstance(found, tuple) else (found,)

    return settings


def _inside(scale: Scale) -> Sequence[Setting]:
    return (replace(scale.inside, published=PROBED),)


def _everyone(scale: Scale) -> Sequence[Panel]:
    return [*_on(_at("main"), _of(*scale.lineup))(scale), *_gated(scale)]


def _gated(scale: Scale) -> Sequence[Panel]:
    return _on(_at("gated"), _of("traditional", *_OTHERS, "released"))(scale)


def _nets(scale: Scale) -> Sequence[Panel]:
    lineup = _of("traditional", "random", *_OTHERS)
    title = "{0.recipe.model}, {0.published.data}"

    def said(scale: Scale) -> Iterator[Setting]:
        for each in scale.nets:
            ours = each.recipe.model
            model = ours if ours in OTHER_NETS else OTHERS.model
            yield replace(each, published=replace(OTHERS, model=model))

    return [*_on(said, lineup, title)(scale), *_gated(scale)]


def _tuning(scale: Scale) -> Sequence[Panel]:
    """Return every strategy at every learning rate, with seeds that nothing else has.

    Where the best is at the edge of the grid, one more is tried beyond.
    """

    def tried(setting: Setting) -> Iterable[Arm]:
        for key in scale.lineup:
            best = TUNED.get(setting.recipe.data, {}).get(key)
            for rate in widened(scale.tuned, best):
                one = replace(setting, learning_rates={key: rate})
                yield replace(make_arm(key, one), key=f"{key} {rate:g}", seeds=TUNING_SEEDS)

    return _on(_at("main"), tried)(scale)


def widened(rates: Sequence[float], best: float | None) -> list[float]:
    """Return a grid of learning rates, doubled and halved until the best is not at its edge."""
    grid = sorted(rates)
    if grid and best is not None:
        while best <= grid[0]:
            grid.insert(0, grid[0] / 2)
        while best >= grid[-1]:
            grid.append(2 * grid[-1])
    return grid


def _rated(scale: Scale) -> Sequence[Setting]:
    """Return the main settings, with a learning rate for each strategy where these were tuned."""
    rates = TUNED if scale.tuned else {}
    return [replace(each, learning_rates=rates.get(each.recipe.data, {})) for each in scale.main]


def _tuned(scale: Scale) -> Sequence[Panel]:
    """Return every strategy at the learning rate that was found for it."""

    def lineup(setting: Setting) -> Iterable[Arm]:
        for key in (key for key in scale.lineup if key in setting.learning_rates):
            yield make_arm(key, setting)

    return _judged_beside(_on(_rated, lineup))(scale)


def _judged_beside(panels: Panels) -> Panels:
    """Return panels whose tuned arms have seeds that rates were not tried with."""

    def seeded(panel: Panel) -> Panel:
        if not panel.setting.learning_rates:
            return panel
        return replace(panel, arms=tuple(replace(a, seeds=TUNED_SEEDS) for a in panel.arms))

    return lambda scale: [seeded(panel) for panel in panels(scale)]


def _norms(scale: Scale) -> Sequence[Setting]:
    return [replace(each, evaluations=LOOKS) for each in _inside(scale)]


def _of(*keys: str, probe: Probe | None = None) -> Lineup:
    """Return a lineup of strategies, with a probe where there is one."""

    def lineup(setting: Setting) -> list[Arm]:
        arms = [make_arm(key, setting) for key in keys]
        return [probed(each, probe) for each in arms] if probe else arms

    return lineup


def _snapshots(setting: Setting) -> Iterable[Arm]:
    """Return runs whose confidences are seen once: at the evaluation nearest to epoch ten."""
    count = setting.evaluations
    nearest = min(count, max(1, round(count * SNAPSHOT / setting.recipe.epochs)))
    return _of("traditional", "sb", probe=TargetConfidences(nearest / count))(setting)


def _staleness(setting: Setting) -> Iterable[Arm]:
    older = [(f"n = {n}", make_arm("stale", setting, stale=n)) for n in STALENESS]
    return variants([("n = 1 (SB)", make_arm("sb", setting)), *older])


def _flipped(scale: Scale) -> Sequence[Panel]:
    setting = scale.noisy
    return [
        Panel(
            f"{setting.title}, {percent(noise) if noise else 'none'} of the labels flipped",
            setting,
            tuple(make_arm(key, setting, noise=noise) for key in ("traditional", "random", "sb")),
        )
        for noise in NOISE
    ]


def _selectivities(scale: Scale) -> Sequence[Panel]:
    def compared(setting: Setting) -> Iterable[Arm]:
        found = [
            (f"SB {percent(rate)}", make_arm("sb", setting, rate=rate))
            for rate in scale.selectivities
        ]
        return make_arm("traditional", setting), *variants(found)

    return _on(_at("main"), compared)(scale)


def _swept(scale: Scale) -> Sequence[Panel]:
    def sweep(setting: Setting) -> Iterable[Arm]:
        found: list[tuple[str, Arm]] = []
        paces, rates = {"first": setting.recipe}, scale.sweep
        if setting.falls:
            paces["accelerated"] = setting.accelerated
        else:  # one schedule and one selectivity
            rates = (setting.rate,)
        for pace, recipe in paces.items():
            found.append((f"traditional {pace}", make_arm("traditional", setting, recipe=recipe)))
            for rate in rates:
                for key in _OTHERS:
                    name = f"{key} {percent(rate)} {pace}"
                    found.append((name, make_arm(key, setting, rate=rate, recipe=recipe)))
        return variants(found)

    gated = [replace(each, falls=()) for each in scale.gated]
    return _on(lambda scale: [*scale.swept, *gated], sweep)(scale)


def _scheduled(recipe: str) -> Lineup:
    """Return a lineup that trains by another recipe of its setting."""
    keys = ("traditional", *_OTHERS)
    return lambda setting: [make_arm(key, setting, recipe=getattr(setting, recipe)) for key in keys]


_OTHERS = ("sb", "stale", "kath18")
_QUANTILES = _on(_inside, _of("sb", probe=LossQuantiles()))
_THREE = _of("traditional", "sb", "stale")


def _along(panels: Panels, *axes: str, marked: bool = False) -> dict[str, Any]:
    """Return how error along axes is drawn and listed."""
    draw = partial(curves.draw_errors, axes=axes or curves.TIME, marked=marked)
    return {"panels": panels, "draw": draw, "tables": by_panel(curves.ends_table)}


def _until(factor: float, settings: Callable[[Scale], Sequence[Setting]]) -> dict[str, Any]:
    return {
        "panels": _judged_beside(_on(settings, _THREE)),
        "draw": partial(times.draw_times, factor=factor),
        "tables": partial(times.times_tables, factor=factor),
    }


def _percentiles(key: str) -> dict[str, Any]:
    return {
        "panels": _on(_at("main"), _snapshots),
        "draw": partial(inside.draw_percentiles, key=key),
        "tables": by_panel(partial(inside.percentiles_table, key=key)),
    }


def _probed(panels: Panels, draw: Callable[..., Any], table: Callable[..., Any]) -> dict[str, Any]:
    return {"panels": panels, "draw": draw, "tables": by_panel(table)}


FIGURES = figures_of(
    Path(__file__).with_name("reported.toml"),
    {
        "fig-1": _until(1.2, _at("redundant")),
        "fig-2": _probed(
            _on(lambda scale: scale.main[:1], _of("traditional", probe=LossRanks())),
            inside.draw_easiest,
            inside.easiest_table,
        ),
        "fig-3": _probed(_QUANTILES, inside.draw_losses, inside.losses_table),
        "fig-4": _probed(_QUANTILES, inside.draw_odds_by_loss, inside.odds_by_loss_table),
        "fig-5": _probed(
            _on(_inside, _of("traditional", probe=BatchGradients())),
            inside.draw_gradients,
            inside.gradients_table,
        ),
        "small-gradients": {
            "panels": _on(_norms, _of("traditional", probe=GradientNorms())),
            "tables": by_panel(inside.norms_table),
        },
        "predictors": _along(
            _on(lambda scale: scale.main[:1], _of("stale", "predicted", "predicted-gp")), "cost"
        ),
        "fig-6": _along(_everyone, "updates", marked=True),
        "fig-7": _along(_everyone, marked=True) | {"tables": curves.time_tables},
        "table-1": {"panels": _everyone, "tables": times.speedup_tables},
        "tuned": {"panels": _tuned, "tables": times.speedup_tables},
        "tuning": {"panels": _tuning, "tables": by_panel(times.tuning_table)},
        "fig-8": _percentiles("confidence"),
        "fig-9": _percentiles("accuracy"),
        "fig-10": _until(1.4, _rated),
        "fig-11": _along(_on(_at("main"), _staleness), "forwards"),
        # Panels were trained one after the other, so their seconds do not compare.
        "fig-12": _along(_flipped)
        | {"tables": lambda evidence: [curves.ends_table(p, timed=False) for p in evidence.panels]},
        "fig-13": _along(_selectivities),
        "fig-14": _probed(_swept, curves.draw_front, curves.front_table),
        "fig-15": _probed(
            _on(_inside, _of("traditional", "sb", probe=LossRanks())),
            inside.draw_odds,
            inside.odds_table,
        ),
        "fig-16": _along(_nets),
        "fig-17": _along(
            _on(_at("main"), _scheduled("accelerated"), "{0.title}, accelerated schedule")
        ),
        "static": _along(_on(_at("main"), _scheduled("static"), "{0.title}, static")),
        "batch-size": _along(_on(_at("batches"), _of("traditional", *_OTHERS))),
        "fig-18": {
            "panels": lambda scale: (),
            "draw": times.draw_steps,
            "tables": times.steps_table,
            "timings": lambda scale: [StepTiming(recipe) for recipe in scale.timed],
        },
        "poster": {
            "panels": _on(_at("poster"), _of("traditional", "random", "sb")),
            "draw": curves.draw_poster,
            "tables": lambda evidence: [
                curves.ends_table(panel) for panel in curves.filtered_named(evidence).panels
            ],
        },
    },
    {**curves.MEASURES, **inside.MEASURES, **times.MEASURES},
    {"table-1": times.speedup_claims()},
)
