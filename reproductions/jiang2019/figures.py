"""The figures and tables of the paper and its poster: what each says, what it needs and shows."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from reproductions import strategies
from reproductions.figures import Entry, PanelSpec, Scale, Setting, figures_of
from reproductions.jiang2019 import curves, inside, pareto, times
from reproductions.jiang2019.curves import TIME
from reproductions.probes import GradientAgreement, LossBands, LossQuantiles, LossRanks
from reproductions.strategies import (
    kath18,
    probed,
    random_backprop,
    selective,
    stale,
    traditional,
    variants,
)
from reproductions.table import percent
from reproductions.timing import StepTiming
from selective_backprop.lab.training.callbacks import Probe

NOISE = (0.01, 0.1, 0.2)
STALENESS = (2, 3, 5)
SELECTIVITIES = (1 / 4, 1 / 3, 1 / 2)
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


def _main(scale: Scale) -> Sequence[Setting]:
    return scale.main


def _noisy(scale: Scale) -> Sequence[Setting]:
    return (scale.noisy,)


def _plain(setting: Setting) -> Iterable[Entry]:
    return (traditional(setting),)


def _ours(setting: Setting) -> Iterable[Entry]:
    return (selective(setting),)


def _three(setting: Setting) -> Iterable[Entry]:
    return traditional(setting), selective(setting), stale(setting)


def _two(setting: Setting) -> Iterable[Entry]:
    return traditional(setting), selective(setting)


def _looked(lineup: Lineup, probe: Probe) -> Lineup:
    return lambda setting: [probed(entry, probe) for entry in lineup(setting)]


def _staleness(setting: Setting) -> Iterable[Entry]:
    fresh = ("n = 1 (SB)", selective(setting))
    return variants([fresh, *((f"n = {n}", stale(setting, n)) for n in STALENESS)])


def _flipped(scale: Scale) -> Sequence[PanelSpec]:
    setting, shown = scale.noisy, (traditional, random_backprop, selective)
    return [
        PanelSpec(
            f"{setting.title}, {percent(noise)} of the labels flipped",
            setting,
            tuple(make(setting, noise=noise) for make in shown),
        )
        for noise in NOISE
    ]


def _selectivities(setting: Setting) -> Iterable[Entry]:
    rates = [(f"SB {percent(rate)}", selective(setting, rate=rate)) for rate in SELECTIVITIES]
    return traditional(setting), *variants(rates)


def _swept(scale: Scale) -> Sequence[PanelSpec]:
    return _on(lambda scale: scale.swept, lambda each: _sweep(each, scale.sweep))(scale)


def _sweep(setting: Setting, rates: Sequence[float]) -> Iterable[Entry]:
    found: list[tuple[str, Entry]] = []
    for pace, recipe in (("first", setting.recipe), ("accelerated", setting.accelerated)):
        found.append((f"traditional {pace}", traditional(setting, recipe=recipe)))
        for rate in rates:
            for name, make in (("sb", selective), ("stale", stale), ("kath18", kath18)):
                entry = make(setting, rate=rate, recipe=recipe)
                found.append((f"{name} {percent(rate)} {pace}", entry))
    return variants(found)


def _accelerated(setting: Setting) -> Iterable[Entry]:
    lineup = (traditional, selective, stale, kath18)
    return [make(setting, recipe=setting.accelerated) for make in lineup]


def _poster(setting: Setting) -> Iterable[Entry]:
    return traditional(setting), random_backprop(setting), selective(setting)


_ALL = ("sb", "stale", "kath18")
_EVERYONE = _on(_main, strategies.everyone)
_QUANTILES = _on(_noisy, _looked(_ours, LossQuantiles()))
_BANDS = _on(_main, _looked(_two, LossBands()))
FIGURES = figures_of(
    Path(__file__).with_name("reported.toml"),
    {
        "fig-1": (times.present_until(1.2), _on(lambda scale: (scale.redundant,), _three)),
        "fig-2": (inside.present_easiest, _on(_main, _looked(_plain, LossRanks()))),
        "fig-3": (inside.present_losses, _QUANTILES),
        "fig-4": (inside.present_odds_by_loss, _QUANTILES),
        "fig-5": (inside.present_gradients, _on(_noisy, _looked(_ours, GradientAgreement()))),
        "fig-6": (curves.presenter(("updates",), curves.sooner(("updates",), *_ALL)), _EVERYONE),
        "fig-7": (curves.presenter(TIME, curves.by_time), _EVERYONE),
        "table-1": (times.present_speedups, _EVERYONE),
        "fig-8": (inside.present_confidence, _BANDS),
        "fig-9": (inside.present_accuracy, _BANDS),
        "fig-10": (times.present_until(1.4), _on(_main, _three)),
        "fig-11": (curves.presenter(("forwards",), curves.little_lost), _on(_main, _staleness)),
        "fig-12": (curves.presenter(TIME, curves.robust), _flipped),
        "fig-13": (curves.presenter(TIME, curves.selective_is_fast), _on(_main, _selectivities)),
        "fig-14": (pareto.present, _swept),
        "fig-15": (inside.present_odds, _on(_noisy, _looked(_two, LossRanks()))),
        "fig-16": (
            curves.presenter(TIME, curves.sooner(TIME, "sb")),
            _on(lambda scale: scale.nets, _two, "{0.recipe.model}, {0.paper_data}"),
        ),
        "fig-17": (
            curves.presenter(TIME, curves.sooner(TIME, *_ALL)),
            _on(_main, _accelerated, "{0.title}, accelerated schedule"),
        ),
        "fig-18": (
            times.present_steps,
            lambda scale: (),
            lambda scale: [StepTiming(recipe) for recipe in scale.timed],
        ),
        "poster": (curves.present_poster, _on(lambda scale: scale.poster, _poster)),
    },
)
