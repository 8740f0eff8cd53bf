"""The figures and tables of the paper and its poster: what each needs, draws and lists."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from reproductions import probes
from reproductions.claims import by_panel, figures_of
from reproductions.jiang2019 import curves, inside, times
from reproductions.jiang2019.scales import OTHER_NETS, TUNED
from reproductions.measures import Panel
from reproductions.settings import Arm, Published, Scale, Setting, make_arm, variants
from reproductions.training import StepTiming
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.analysis.tables import percent
from selective_backprop_lab.recipe import Rates, Recipe
from selective_backprop_lab.training.run_config import Probe

TUNING_SEEDS = (100, 101, 102)  # no other run has them
TUNED_SEEDS = (0, 1, 2)
NOISE = (0.0, 0.01, 0.1, 0.2)
LOOKS = 6  # at gradients of single examples, in a run
STALENESS = (2, 3, 5)
SNAPSHOT = 10  # epochs, or all of a shorter run
# The training of figures 3 to 5 and 15, which do not say how long it was.
PROBED = Published("CIFAR-10", "mobilenet_v2", batch_size=128, examples=50_000)
# That of appendix A.3, with the nets of figure 16, which does not say it either.
OTHERS = replace(PROBED, model=listed(OTHER_NETS), rates=Rates.CONSTANT, nesterov=False)
_SELECTIVE = ("sb", "stale", "kath18")
Lineup = Callable[[Setting], Iterable[Arm]]
Panels = Callable[[Scale], Sequence[Panel]]
Settings = Callable[[Scale], Iterable[Setting]]


def _on(settings: Settings | str, lineup: Lineup, title: str = "{0.title}") -> Panels:
    def panels(scale: Scale) -> Sequence[Panel]:
        found = scale[settings] if isinstance(settings, str) else settings(scale)
        return [Panel(title.format(each), each, tuple(lineup(each))) for each in found]

    return panels


def _inside(scale: Scale) -> Sequence[Setting]:
    return [replace(each, published=PROBED) for each in scale["inside"]]


def _of(*keys: str, probe: Probe | None = None, **options: Any) -> Lineup:
    seen = (probe,) if probe else ()
    return lambda setting: [make_arm(key, setting, probes=seen, **options) for key in keys]


def _everyone(scale: Scale) -> Sequence[Panel]:
    return [*_on("main", _of(*scale.lineup))(scale), *_gated(scale)]


def _gated(scale: Scale) -> Sequence[Panel]:
    return _on("gated", _of("traditional", *_SELECTIVE, "released"))(scale)


def _nets(scale: Scale) -> Sequence[Panel]:
    found = list[Panel]()
    for each in scale["nets"]:
        model = each.recipe.model
        told = OTHERS if model not in OTHER_NETS else replace(OTHERS, model=model)
        arms = _of("traditional", "random", *_SELECTIVE)(each)
        found.append(Panel(f"{model}, {told.data}", replace(each, published=told), tuple(arms)))
    return [*found, *_gated(scale)]


def _tuning(scale: Scale) -> Sequence[Panel]:
    def tried(setting: Setting) -> Iterable[Arm]:
        for key in (*scale.lineup, *scale.controls):
            best = TUNED.get(setting.recipe.data, {}).get(key)
            for rate in widened(scale.tuned, best):
                one = replace(setting, learning_rates={key: rate})
                yield replace(make_arm(key, one), key=f"{key} {rate:g}", seeds=TUNING_SEEDS)

    return _on("rated", tried)(scale)


def widened(rates: Sequence[float], best: float | None) -> list[float]:
    """Return a grid of learning rates, doubled and halved until the best is not at its edge."""
    grid = sorted(rates)
    while grid and best is not None and best <= grid[0]:
        grid.insert(0, grid[0] / 2)
    while grid and best is not None and best >= grid[-1]:
        grid.append(2 * grid[-1])
    return grid


def _rated(scale: Scale) -> Sequence[Setting]:
    rates = TUNED if scale.tuned else {}
    return [replace(one, learning_rates=rates.get(one.recipe.data, {})) for one in scale["rated"]]


def _tuned(scale: Scale) -> Sequence[Panel]:
    def lineup(setting: Setting) -> Iterable[Arm]:
        keys = [*scale.lineup, *scale.controls]
        return _judged_beside(*(key for key in keys if key in setting.learning_rates))(setting)

    return _on(_rated, lineup)(scale)


def _judged_beside(*keys: str) -> Lineup:
    def arms(setting: Setting) -> Iterable[Arm]:
        found = _of(*keys)(setting)
        # The runs that found their rates have other seeds.
        return [replace(a, seeds=TUNED_SEEDS) for a in found] if setting.learning_rates else found

    return arms


def _snapshots(setting: Setting) -> Iterable[Arm]:
    count = setting.evaluations
    nearest = min(count, max(1, round(count * SNAPSHOT / setting.recipe.epochs)))
    return _of("traditional", "sb", probe=probes.TargetConfidences(nearest / count))(setting)


def _staleness(setting: Setting) -> Iterable[Arm]:
    older = [(f"n = {n}", make_arm("stale", setting, stale=n)) for n in STALENESS]
    return variants([("n = 1 (SB)", make_arm("sb", setting)), *older])


def _flipped(scale: Scale) -> Sequence[Panel]:
    found = list[Panel]()
    for noise in NOISE:
        title = f"{{0.title}}, {percent(noise) if noise else 'none'} of the labels flipped"
        found += _on("noisy", _of("traditional", "random", "sb", noise=noise), title)(scale)
    return found


def _selectivities(scale: Scale) -> Sequence[Panel]:
    def compared(setting: Setting) -> Iterable[Arm]:
        found = [(f"SB {percent(r)}", make_arm("sb", setting, rate=r)) for r in scale.selectivities]
        return make_arm("traditional", setting), *variants(found)

    return _on("main", compared)(scale)


def _swept(scale: Scale) -> Sequence[Panel]:
    def sweep(setting: Setting) -> Iterable[Arm]:
        found: list[tuple[str, Arm]] = []
        paces, rates = {"first": setting}, (setting.rate,)
        if setting.falls:  # else one schedule and one selectivity
            paces["accelerated"] = replace(setting, recipe=_accelerated(setting))
            rates = scale.sweep
        for pace, paced in paces.items():
            found.append((f"traditional {pace}", make_arm("traditional", paced)))
            for rate, key in product(rates, _SELECTIVE):
                arm = make_arm(key, paced, rate=rate)
                found.append((f"{key} {percent(rate)} {pace}", arm))
        return variants(found)

    gated = [replace(each, falls=()) for each in scale["gated"]]
    return _on(lambda scale: [*scale["swept"], *gated], sweep)(scale)


def _accelerated(setting: Setting) -> Recipe:
    return replace(setting.recipe, steps=setting.falls or setting.recipe.steps)


def _scheduled(recipe: Callable[[Setting], Recipe], title: str) -> Panels:
    arms = _of("traditional", *_SELECTIVE)
    return _on("main", lambda setting: arms(replace(setting, recipe=recipe(setting))), title)


def _made(
    panels: Panels, draw: Callable[..., Any], table: Callable[..., Any], **options: Any
) -> dict[str, Any]:
    draw, table = partial(draw, **options), partial(table, **options)
    return {"planned": panels, "draw": draw, "tables": by_panel(table)}


def _along(panels: Panels, *axes: str, marked: bool = False) -> dict[str, Any]:
    draw = partial(curves.draw_errors, axes=axes or curves.TIME, marked=marked)
    return _made(panels, draw, curves.ends_table)


def _until(factor: float, settings: Settings | str) -> dict[str, Any]:
    return {
        "planned": _on(settings, _judged_beside("traditional", "sb", "stale")),
        "draw": partial(times.draw_times, factor=factor),
        "tables": partial(times.times_tables, factor=factor),
    }


def _confidences(key: str) -> dict[str, Any]:
    panels = _on("main", _snapshots)
    return _made(panels, inside.draw_percentiles, inside.percentiles_table, key=key)


_EASIEST = _on("first", _of("traditional", probe=probes.LossRanks()))
_QUANTILES = _on(_inside, _of("traditional", probe=probes.LossQuantiles()))
_GRADIENTS = _on(_inside, _of("traditional", probe=probes.BatchGradients()))
_RANKED = _on(_inside, _of("traditional", "sb", probe=probes.LossRanks()))
_SPEEDUPS = {"tables": times.speedup_tables}
FIGURES = figures_of(
    Path(__file__).with_name("reported.toml"),
    {
        "fig-1": _until(1.2, "redundant"),
        "fig-2": _made(_EASIEST, inside.draw_easiest, inside.easiest_table),
        "fig-3": _made(_QUANTILES, inside.draw_losses, inside.losses_table),
        "fig-4": _made(_QUANTILES, inside.draw_odds_by_loss, inside.odds_by_loss_table),
        "fig-5": _made(_GRADIENTS, inside.draw_gradients, inside.gradients_table),
        "small-gradients": {
            "planned": _on(
                lambda scale: [replace(each, evaluations=LOOKS) for each in _inside(scale)],
                _of("traditional", probe=probes.GradientNorms()),
            ),
            "tables": by_panel(inside.norms_table),
        },
        "predictors": _along(_on("first", _of("stale", "predicted", "predicted-gp")), "cost"),
        "fig-6": _along(_everyone, "updates", marked=True),
        "fig-7": _along(_everyone, marked=True) | {"tables": curves.time_tables},
        "table-1": {"planned": _everyone, "first": times.speedup_claims(), **_SPEEDUPS},
        "tuned": {"planned": _tuned, **_SPEEDUPS},
        "tuning": {"planned": _tuning, "tables": by_panel(times.tuning_table)},
        "fig-8": _confidences("confidence"),
        "fig-9": _confidences("accuracy"),
        "fig-10": _until(1.4, _rated),
        "fig-11": _along(_on("rated", _staleness), "forwards"),
        # Panels were trained one after the other, so their seconds do not compare.
        "fig-12": _along(_flipped) | {"tables": by_panel(partial(curves.ends_table, timed=False))},
        "fig-13": _along(_selectivities),
        "fig-14": _made(_swept, curves.draw_front, curves.front_table),
        "fig-15": _made(_RANKED, inside.draw_odds, inside.odds_table),
        "fig-16": _along(_nets),
        "fig-17": _along(_scheduled(_accelerated, "{0.title}, accelerated schedule")),
        "static": _along(
            _scheduled(lambda each: replace(each.recipe, rates=Rates.CONSTANT), "{0.title}, static")
        ),
        "batch-size": _along(_on("batches", _of("traditional", *_SELECTIVE))),
        "fig-18": {
            "planned": lambda scale: (),
            "draw": times.draw_steps,
            "tables": times.steps_table,
            "timed": lambda scale: [StepTiming(each.recipe) for each in scale["timed"]],
        },
        "poster": {
            "planned": _on("poster", _of("traditional", "random", "sb")),
            "draw": curves.draw_poster,
            "tables": lambda evidence: [
                curves.ends_table(panel) for panel in curves.filtered_named(evidence).panels
            ],
        },
    },
    {**curves.MEASURES, **inside.MEASURES, **times.MEASURES},
)
