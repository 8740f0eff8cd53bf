"""The figures and tables that can be redone, each with what its source says of it."""

from collections.abc import Mapping, Sequence

import selective_backprop as sb
from reproductions.diet_sb import diet
from reproductions.jiang2019 import (
    breakdown,
    curves,
    inside,
    lineup,
    losses,
    pareto,
    speedups,
    steps,
)
from reproductions.jiang2019.items import Entry, Item, Panel, Source
from reproductions.jiang2019.probes import LossQuantiles
from reproductions.jiang2019.settings import Scale, Setting
from reproductions.jiang2019.text import percent
from reproductions.jiang2019.timing import StepTiming

NOISE = (0.01, 0.1, 0.2)
STALENESS = (2, 3, 5)
SELECTIVITIES = (1 / 4, 1 / 3, 1 / 2)


def _everyone(scale: Scale) -> tuple[Panel, ...]:
    return tuple(Panel(each.title, each, lineup.everyone(each)) for each in scale.main)


def _three(setting: Setting) -> tuple[Entry, ...]:
    return lineup.traditional(setting), lineup.selective(setting), lineup.stale(setting)


def _redundant(scale: Scale) -> tuple[Panel, ...]:
    return (Panel(scale.redundant.title, scale.redundant, _three(scale.redundant)),)


def _looked_into(scale: Scale) -> tuple[Panel, ...]:
    entry = lineup.probed(lineup.selective(scale.noisy), LossQuantiles())
    return (Panel(scale.noisy.title, scale.noisy, (entry,)),)


def _broken_down(scale: Scale) -> tuple[Panel, ...]:
    return tuple(Panel(each.title, each, _three(each)) for each in scale.main)


def _staleness(scale: Scale) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            each.title,
            each,
            lineup.variants(
                [
                    ("n = 1 (SB)", lineup.selective(each)),
                    *((f"n = {n}", lineup.stale(each, n)) for n in STALENESS),
                ]
            ),
        )
        for each in scale.main
    )


def _noisy(scale: Scale) -> tuple[Panel, ...]:
    setting = scale.noisy
    return tuple(
        Panel(
            f"{setting.title}, {percent(noise)} of the labels flipped",
            setting,
            (
                lineup.traditional(setting, noise=noise),
                lineup.random_backprop(setting, noise=noise),
                lineup.selective(setting, noise=noise),
            ),
        )
        for noise in NOISE
    )


def _selectivities(scale: Scale) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            each.title,
            each,
            (
                lineup.traditional(each),
                *lineup.variants(
                    [
                        (f"SB {percent(rate)}", lineup.selective(each, rate=rate))
                        for rate in SELECTIVITIES
                    ]
                ),
            ),
        )
        for each in scale.main
    )


def _swept(scale: Scale) -> tuple[Panel, ...]:
    return tuple(Panel(each.title, each, _sweep(each, scale.sweep)) for each in scale.swept)


def _sweep(setting: Setting, rates: Sequence[float]) -> tuple[Entry, ...]:
    found: list[tuple[str, Entry]] = []
    paces = {"first": setting.recipe, "accelerated": setting.accelerated}
    for pace, recipe in paces.items():
        found.append((f"traditional {pace}", lineup.traditional(setting, recipe=recipe)))
        for rate in rates:
            share = f"{percent(rate)} {pace}"
            found += [
                (f"sb {share}", lineup.selective(setting, rate=rate, recipe=recipe)),
                (f"stale {share}", lineup.stale(setting, rate=rate, recipe=recipe)),
                (f"kath18 {share}", lineup.kath18(setting, rate=rate, recipe=recipe)),
            ]
    return lineup.variants(found)


def _nets(scale: Scale) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            f"{each.recipe.model}, {each.paper_data}",
            each,
            (lineup.traditional(each), lineup.selective(each)),
        )
        for each in scale.nets
    )


def _accelerated(scale: Scale) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            f"{each.title}, accelerated schedule",
            each,
            (
                lineup.traditional(each, recipe=each.accelerated),
                lineup.selective(each, recipe=each.accelerated),
                lineup.stale(each, recipe=each.accelerated),
                lineup.kath18(each, recipe=each.accelerated),
            ),
        )
        for each in scale.main
    )


def _poster(scale: Scale) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            each.title,
            each,
            (
                lineup.traditional(each),
                lineup.random_backprop(each),
                lineup.selective(each),
            ),
        )
        for each in scale.poster
    )


def _timed(scale: Scale) -> tuple[StepTiming, ...]:
    return tuple(StepTiming(recipe) for recipe in scale.timed)


_ALL = (
    Item(
        "fig-1",
        "Where the time to 1.2 times Traditional's final error goes",
        Source.PAPER,
        (
            "Wide-ResNet on SVHN to 1.72 % (1.2 times Traditional's final error): SB leaves out "
            "about 70 % of the backpropagations and halves the time; Stale-SB with n = 3 takes "
            "another 26 % off.",
            "Table 1 gives 1.72 % as Traditional's own final error on SVHN, not as 1.2 times it.",
        ),
        breakdown.presenter(1.2),
        _redundant,
    ),
    inside.FIG_2,
    Item(
        "fig-3",
        "The distribution of losses",
        Source.PAPER,
        ("A snapshot of the losses' CDF while MobileNetV2 trains on CIFAR-10.",),
        losses.present_cdf,
        _looked_into,
    ),
    Item(
        "fig-4",
        "Odds of selection by loss",
        Source.PAPER,
        (
            "An example's odds are the share of the recent losses that are lower than its own, to "
            "the power of β: the larger β, the fewer are selected.",
        ),
        losses.present_odds,
        _looked_into,
    ),
    inside.FIG_5,
    Item(
        "fig-6",
        "Error against updates of the net",
        Source.PAPER,
        ("SB reaches nearly every test error with significantly fewer updates.",),
        curves.presenter(("updates",), curves.sooner(("updates",), "sb", "stale", "kath18")),
        _everyone,
    ),
    Item(
        "fig-7",
        "Error against time",
        Source.PAPER,
        (
            "SB reaches within 10, 20 and 40 % of Traditional's final error 1.2 to 1.5 times "
            "faster on CIFAR-10, and 3.4 to 5 times faster on SVHN; within 20 and 40 % on "
            "CIFAR-100 20 % faster, at a small loss of final accuracy.",
            "SB is 1.02 to 1.8 times as fast as Kath18, and Kath18 0.8 to 3.4 times as fast as "
            "Traditional.",
        ),
        curves.presenter(curves.TIME, curves.by_time),
        _everyone,
    ),
    Item(
        "table-1",
        "Speed-up to multiples of Traditional's final error",
        Source.PAPER,
        (
            "Final errors of Traditional: 2.96 % on CIFAR-10, 18.21 % on CIFAR-100, 1.72 % on "
            "SVHN; the speed-ups stand in the table.",
            "On average Stale-SB with n = 3 reaches target errors 26 % sooner than SB.",
            "The text says that on CIFAR-100 SB does not reach 1.1 times Traditional's final "
            "error in the time allotted; the table gives it a speed-up of 1.2.",
        ),
        speedups.present,
        _everyone,
    ),
    inside.FIG_8,
    inside.FIG_9,
    Item(
        "fig-10",
        "Where the time to 1.4 times Traditional's final error goes",
        Source.PAPER,
        (
            "SB takes less time to the target by less time in backward passes; Stale-SB with "
            "n = 3 takes two thirds off the selection passes.",
        ),
        breakdown.presenter(1.4),
        _broken_down,
    ),
    Item(
        "fig-11",
        "Losses that are older",
        Source.PAPER,
        (
            "Scoring every second or third epoch has little effect on the final error; n above 3 "
            "was not tried.",
        ),
        curves.presenter(("forwards",), curves.little_lost),
        _staleness,
    ),
    Item(
        "fig-12",
        "Labels that are wrong",
        Source.PAPER,
        (
            "With 1 and 10 % of CIFAR-10's labels flipped SB reaches a comparable final error, "
            "with 20 % it overfits to the wrong labels and ends higher; it is faster in all three.",
        ),
        curves.presenter(("seconds", "cost"), curves.robust),
        _noisy,
    ),
    Item(
        "fig-13",
        "Selectivities",
        Source.PAPER,
        (
            "More selective is faster, but may end higher: within 0.92 points of Traditional on "
            "CIFAR-10 at 20 %, within 2.54 points on CIFAR-100 at 25 %.",
            "SB speeds up training at selectivities of 20 to 65 %.",
        ),
        curves.presenter(curves.TIME, curves.selective_is_fast),
        _selectivities,
    ),
    Item(
        "fig-14",
        "The front of time against error",
        Source.PAPER,
        (
            "Of the Pareto-optimal points on CIFAR-10, CIFAR-100 and SVHN, SB and Stale-SB make up "
            "72, 47 and 80 %, Traditional 10, 43 and 6 %, Kath18 10, 8 and 14 %.",
            "With very large budgets Traditional reaches lower errors.",
        ),
        pareto.present,
        _swept,
    ),
    inside.FIG_15,
    Item(
        "fig-16",
        "Other nets",
        Source.PAPER,
        ("On CIFAR-10 the same trends show with ResNet-18, DenseNet and MobileNetV2.",),
        curves.presenter(curves.TIME, curves.sooner(curves.TIME, "sb")),
        _nets,
    ),
    Item(
        "fig-17",
        "An accelerated schedule",
        Source.PAPER,
        (
            "The same trends show where the learning rate falls earlier.",
            "SVHN's accelerated schedule falls at epochs 48 and 96 in the setup, and at 60 and "
            "120, as the first one does, in the appendix.",
        ),
        curves.presenter(curves.TIME, curves.sooner(curves.TIME, "sb", "stale", "kath18")),
        _accelerated,
    ),
    Item(
        "fig-18",
        "Forward and backward passes of a step",
        Source.PAPER,
        (
            "With MobileNetV2 on a Tesla K20, a GTX 1070 and a Titan V a backward pass takes up to "
            "2.5 times as long as a forward pass.",
        ),
        steps.present,
        timings=_timed,
    ),
    Item(
        "poster",
        "Error against images backpropagated, and the share filtered",
        Source.POSTER,
        (
            "Shows error against images backpropagated on CIFAR-10 and MNIST, with the share that "
            "is filtered; its numbers are not repeated here.",
        ),
        curves.present_poster,
        _poster,
    ),
    *diet.DIET,
)

ITEMS: Mapping[str, Item] = {item.name: item for item in _ALL}


def items_at(scale: Scale) -> list[Item]:
    """Return what can be redone at a scale."""
    names = ITEMS if scale.items is None else scale.items
    return [item for item in _ALL if item.name in names]


def find_items(names: Sequence[str], scale: Scale | None = None) -> list[Item]:
    """Return the items of some names, each once; `all` stands for all that a scale has.

    Args:
        names: of items, or `all`.
        scale: at which they are to be redone; None for any.

    Raises:
        ConfigurationError: if there is no such item, the scale has it not, or none is named.
    """
    there = ITEMS if scale is None else {item.name: item for item in items_at(scale)}
    if not names:
        raise sb.ConfigurationError(f"name what to reproduce: list, all, or {', '.join(ITEMS)}")
    for name in names:
        if name != "all" and name not in ITEMS:
            raise sb.ConfigurationError(
                f"there is no figure or table {name!r}; there are {', '.join(ITEMS)}, and all"
            )
        if scale is not None and name != "all" and name not in there:
            raise sb.ConfigurationError(
                f"{name} is not redone at scale {scale.name}, which has {', '.join(there)}; "
                "--scale small and --scale full have everything"
            )
    return list(there.values()) if "all" in names else [there[n] for n in dict.fromkeys(names)]
