"""The figures and tables of the paper and its poster: what each says, what it needs and shows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from reproductions.figures import (
    Entry,
    PanelSpec,
    Published,
    Scale,
    Setting,
    entry,
    figures_of,
    probed,
    variants,
)
from reproductions.jiang2019 import curves, inside, times
from reproductions.jiang2019.curves import TIME
from reproductions.probes import (
    BatchGradients,
    GradientAgreement,
    LossBands,
    LossQuantiles,
    LossRanks,
    TargetConfidences,
)
from reproductions.timing import StepTiming
from selective_backprop_lab.analysis.tables import percent
from selective_backprop_lab.training.probes import Probe

TUNING_SEEDS = (100,)  # no other run has them
NOISE = (0.01, 0.1, 0.2)
STALENESS = (2, 3, 5)
SNAPSHOT = 10  # epochs, or all of a shorter run
# What figures 3, 5 and 15 say was trained; how long is not said.
LOOKED_INTO = Published("CIFAR-10", "mobilenet_v2", batch_size=128, examples=50_000)
Lineup = Callable[[Setting], Iterable[Entry]]
Panels = Callable[[Scale], Sequence[PanelSpec]]


def _on(settings: Callable[[Scale], Sequence[Setting]], lineup: Lineup, title: str = "") -> Panels:
    """Return panels of some settings, each with a lineup; `title` may name parts of a setting."""

    def panels(scale: Scale) -> list[PanelSpec]:
        return [
            PanelSpec(title.format(each) or each.title, each, tuple(lineup(each)))
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
    return (replace(scale.inside, published=LOOKED_INTO),)


def _everyone(scale: Scale) -> Sequence[PanelSpec]:
    return _on(_at("main"), _of(*scale.lineup))(scale)


def _tuning(scale: Scale) -> Sequence[PanelSpec]:
    """Return every strategy at every learning rate, with a seed that nothing else has."""

    def tried(setting: Setting) -> Iterable[Entry]:
        for key in scale.lineup:
            for rate in scale.tuned:
                one = replace(setting, learning_rates={key: rate})
                yield replace(entry(key, one), seeds=TUNING_SEEDS)

    return _on(_at("main"), tried)(scale)


def _of(*keys: str, probe: Probe | None = None) -> Lineup:
    """Return a lineup of strategies, looked into by a probe where there is one."""

    def lineup(setting: Setting) -> list[Entry]:
        entries = [entry(key, setting) for key in keys]
        return [probed(each, probe) for each in entries] if probe else entries

    return lineup


def _snapshots(setting: Setting) -> Iterable[Entry]:
    """Return runs whose confidences are seen once: at the look that is nearest to epoch ten."""
    looks = setting.evaluations
    nearest = min(looks, max(1, round(looks * SNAPSHOT / setting.recipe.epochs)))
    return _of("traditional", "sb", probe=TargetConfidences(nearest / looks))(setting)


def _staleness(setting: Setting) -> Iterable[Entry]:
    older = [(f"n = {n}", entry("stale", setting, stale=n)) for n in STALENESS]
    return variants([("n = 1 (SB)", entry("sb", setting)), *older])


def _flipped(scale: Scale) -> Sequence[PanelSpec]:
    setting = scale.noisy
    return [
        PanelSpec(
            f"{setting.title}, {percent(noise)} of the labels flipped",
            setting,
            tuple(entry(key, setting, noise=noise) for key in ("traditional", "random", "sb")),
        )
        for noise in NOISE
    ]


def _selectivities(scale: Scale) -> Sequence[PanelSpec]:
    def compared(setting: Setting) -> Iterable[Entry]:
        found = [
            (f"SB {percent(rate)}", entry("sb", setting, rate=rate)) for rate in scale.selectivities
        ]
        return entry("traditional", setting), *variants(found)

    return _on(_at("main"), compared)(scale)


def _swept(scale: Scale) -> Sequence[PanelSpec]:
    def sweep(setting: Setting) -> Iterable[Entry]:
        found: list[tuple[str, Entry]] = []
        for pace, recipe in (("first", setting.recipe), ("accelerated", setting.accelerated)):
            found.append((f"traditional {pace}", entry("traditional", setting, recipe=recipe)))
            for rate in scale.sweep:
                for key in _OTHERS:
                    name = f"{key} {percent(rate)} {pace}"
                    found.append((name, entry(key, setting, rate=rate, recipe=recipe)))
        return variants(found)

    return _on(_at("swept"), sweep)(scale)


def _scheduled(recipe: str) -> Lineup:
    """Return a lineup that trains by another recipe of its setting."""
    keys = ("traditional", *_OTHERS)
    return lambda setting: [entry(key, setting, recipe=getattr(setting, recipe)) for key in keys]


_OTHERS = ("sb", "stale", "kath18")
_TRENDS = curves.presenter(TIME, curves.sooner(TIME, dict.fromkeys(_OTHERS, "trends")))
_THREE = ("traditional", "sb", "stale")
_QUANTILES = _on(_inside, _of("sb", probe=LossQuantiles()))
_BANDS = _on(_at("main"), _of("traditional", "sb", probe=LossBands()))
FIGURES = figures_of(
    Path(__file__).with_name("reported.toml"),
    {
        "fig-1": (times.present_until(1.2, times.judge_time), _on(_at("redundant"), _of(*_THREE))),
        "fig-2": (
            inside.present_easiest,
            _on(lambda scale: scale.main[:1], _of("traditional", probe=LossRanks())),
        ),
        "fig-3": (inside.present_losses, _QUANTILES),
        "fig-4": (inside.present_odds_by_loss, _QUANTILES),
        "fig-5": (
            inside.present_gradients,
            _on(_inside, _of("traditional", probe=BatchGradients())),
        ),
        "fig-6": (
            curves.presenter(("updates",), curves.sooner(("updates",), {"sb": "nearly-all"})),
            _everyone,
        ),
        "fig-7": (curves.present_time, _everyone),
        "table-1": (times.present_speedups, _everyone),
        "tuning": (times.present_tuning, _tuning),
        "fig-8": (
            partial(
                inside.present_percentiles,
                "confidence",
                "target confidence",
                inside.judge_confidence,
            ),
            _on(_at("main"), _snapshots),
        ),
        "fig-9": (
            partial(inside.present_percentiles, "accuracy", "accuracy", inside.judge_accuracy),
            _on(_at("main"), _snapshots),
        ),
        "fig-10": (times.present_until(1.4, times.judge_parts), _on(_at("main"), _of(*_THREE))),
        "fig-11": (
            curves.presenter(("forwards",), curves.little_lost),
            _on(_at("main"), _staleness),
        ),
        "fig-12": (curves.presenter(TIME, curves.robust), _flipped),
        "fig-13": (curves.presenter(TIME, curves.selective_is_fast), _selectivities),
        "fig-14": (curves.present_front, _swept),
        "fig-15": (inside.present_odds, _on(_inside, _of("traditional", "sb", probe=LossRanks()))),
        "fig-16": (
            _TRENDS,
            _on(
                _at("nets"),
                _of("traditional", "random", *_OTHERS),
                "{0.recipe.model}, {0.paper_data}",
            ),
        ),
        "fig-17": (
            _TRENDS,
            _on(_at("main"), _scheduled("accelerated"), "{0.title}, accelerated schedule"),
        ),
        "static": (_TRENDS, _on(_at("main"), _scheduled("static"), "{0.title}, static")),
        "batch-size": (_TRENDS, _on(_at("batches"), _of("traditional", *_OTHERS))),
        "ours-gradients": (
            inside.present_drawn_batches,
            _on(_inside, _of("sb", probe=GradientAgreement())),
        ),
        "ours-bands": (inside.present_bands, _BANDS),
        "fig-18": (
            times.present_steps,
            lambda scale: (),
            lambda scale: [StepTiming(recipe) for recipe in scale.timed],
        ),
        "poster": (curves.present_poster, _on(_at("poster"), _of("traditional", "random", "sb"))),
    },
)
