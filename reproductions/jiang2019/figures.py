"""The figures and tables of the paper and its poster: what each says, what it needs and shows."""

from collections.abc import Callable, Iterable, Sequence

from reproductions import strategies
from reproductions.figures import Entry, Figure, PanelSpec, Scale, Setting, Source
from reproductions.jiang2019 import curves, inside, pareto, times
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


def _timed(scale: Scale) -> Sequence[StepTiming]:
    return [StepTiming(recipe) for recipe in scale.timed]


_EVERYONE = _on(_main, strategies.everyone)
_QUANTILES = _on(_noisy, _looked(lambda setting: [selective(setting)], LossQuantiles()))
_BANDS = _on(_main, _looked(_two, LossBands()))
_OURS = "its numbers are not repeated here."
FIGURES = (
    Figure(
        "fig-1",
        "Where the time to 1.2 times Traditional's final error goes",
        Source.PAPER,
        (
            "Wide-ResNet on SVHN to 1.72 % (1.2 times Traditional's final error): SB leaves out "
            "about 70 % of the backpropagations and halves the time; Stale-SB with n = 3 takes "
            "another 26 % off.",
            "Table 1 gives 1.72 % as Traditional's own final error on SVHN, not as 1.2 times it.",
        ),
        times.present_until(1.2),
        _on(lambda scale: (scale.redundant,), _three),
    ),
    Figure(
        "fig-2",
        "The easiest and the hardest images",
        Source.PAPER,
        (
            "Shows the images of a data set that are easiest and hardest by the rank of their "
            "loss. In which run and when losses are ranked is ours.",
        ),
        inside.present_easiest,
        _on(_main, _looked(lambda setting: [traditional(setting)], LossRanks())),
    ),
    Figure(
        "fig-3",
        "The distribution of losses",
        Source.PAPER,
        ("A snapshot of the losses' CDF while MobileNetV2 trains on CIFAR-10.",),
        inside.present_losses,
        _QUANTILES,
    ),
    Figure(
        "fig-4",
        "Odds of selection by loss",
        Source.PAPER,
        (
            "An example's odds are the share of the recent losses that are lower than its own, to "
            "the power of β: the larger β, the fewer are selected.",
        ),
        inside.present_odds_by_loss,
        _QUANTILES,
    ),
    Figure(
        "fig-5",
        "The gradient of high-loss batches",
        Source.PAPER,
        (
            "Shows over training how similar the gradients of high-loss batches and of random ones "
            f"are to the gradient of all data, by cosine and by the share of equal signs; {_OURS} "
            "Sizes and draws of the batches are ours.",
        ),
        inside.present_gradients,
        _on(_noisy, _looked(lambda setting: [selective(setting)], GradientAgreement())),
    ),
    Figure(
        "fig-6",
        "Error against updates of the net",
        Source.PAPER,
        ("SB reaches nearly every test error with significantly fewer updates.",),
        curves.presenter(("updates",), curves.sooner(("updates",), "sb", "stale", "kath18")),
        _EVERYONE,
    ),
    Figure(
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
        _EVERYONE,
    ),
    Figure(
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
        times.present_speedups,
        _EVERYONE,
    ),
    Figure(
        "fig-8",
        "Target confidence of easy and of hard examples",
        Source.PAPER,
        (
            f"Shows the confidence in the target over training by percentile, with SB and without; "
            f"{_OURS} Bands of a fifth each, of the test examples, are ours.",
        ),
        inside.present_confidence,
        _BANDS,
    ),
    Figure(
        "fig-9",
        "Accuracy on easy and on hard examples",
        Source.PAPER,
        (
            f"Shows the accuracy over training by percentile, with SB and without; {_OURS} Bands "
            "of a fifth each, of the test examples, are ours.",
        ),
        inside.present_accuracy,
        _BANDS,
    ),
    Figure(
        "fig-10",
        "Where the time to 1.4 times Traditional's final error goes",
        Source.PAPER,
        (
            "SB takes less time to the target by less time in backward passes; Stale-SB with "
            "n = 3 takes two thirds off the selection passes.",
        ),
        times.present_until(1.4),
        _on(_main, _three),
    ),
    Figure(
        "fig-11",
        "Losses that are older",
        Source.PAPER,
        (
            "Scoring every second or third epoch has little effect on the final error; n above 3 "
            "was not tried.",
        ),
        curves.presenter(("forwards",), curves.little_lost),
        _on(_main, _staleness),
    ),
    Figure(
        "fig-12",
        "Labels that are wrong",
        Source.PAPER,
        (
            "With 1 and 10 % of CIFAR-10's labels flipped SB reaches a comparable final error, "
            "with 20 % it overfits to the wrong labels and ends higher; it is faster in all three.",
        ),
        curves.presenter(curves.TIME, curves.robust),
        _flipped,
    ),
    Figure(
        "fig-13",
        "Selectivities",
        Source.PAPER,
        (
            "More selective is faster, but may end higher: within 0.92 points of Traditional on "
            "CIFAR-10 at 20 %, within 2.54 points on CIFAR-100 at 25 %.",
            "SB speeds up training at selectivities of 20 to 65 %.",
        ),
        curves.presenter(curves.TIME, curves.selective_is_fast),
        _on(_main, _selectivities),
    ),
    Figure(
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
    Figure(
        "fig-15",
        "Odds of selection of five examples",
        Source.PAPER,
        (
            "Shows the selection probability of five examples over training, with selection and "
            f"without; {_OURS} Which five is ours.",
        ),
        inside.present_odds,
        _on(_noisy, _looked(_two, LossRanks())),
    ),
    Figure(
        "fig-16",
        "Other nets",
        Source.PAPER,
        ("On CIFAR-10 the same trends show with ResNet-18, DenseNet and MobileNetV2.",),
        curves.presenter(curves.TIME, curves.sooner(curves.TIME, "sb")),
        _on(lambda scale: scale.nets, _two, "{0.recipe.model}, {0.paper_data}"),
    ),
    Figure(
        "fig-17",
        "An accelerated schedule",
        Source.PAPER,
        (
            "The same trends show where the learning rate falls earlier.",
            "SVHN's accelerated schedule falls at epochs 48 and 96 in the setup, and at 60 and "
            "120, as the first one does, in the appendix.",
        ),
        curves.presenter(curves.TIME, curves.sooner(curves.TIME, "sb", "stale", "kath18")),
        _on(_main, _accelerated, "{0.title}, accelerated schedule"),
    ),
    Figure(
        "fig-18",
        "Forward and backward passes of a step",
        Source.PAPER,
        (
            "With MobileNetV2 on a Tesla K20, a GTX 1070 and a Titan V a backward pass takes up to "
            "2.5 times as long as a forward pass.",
        ),
        times.present_steps,
        timings=_timed,
    ),
    Figure(
        "poster",
        "Error against images backpropagated, and the share filtered",
        Source.POSTER,
        (
            "Shows error against images backpropagated on CIFAR-10 and MNIST, with the share that "
            f"is filtered; {_OURS}",
        ),
        curves.present_poster,
        _on(lambda scale: scale.poster, _poster),
    ),
)
