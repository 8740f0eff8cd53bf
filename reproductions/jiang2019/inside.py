"""The paper's figures of what happens inside a run, each with what its source says of it."""

from reproductions.jiang2019 import bands, easiest, gradients, lineup, odds
from reproductions.jiang2019.example_probes import LossRanks
from reproductions.jiang2019.items import Item, Panel, Source
from reproductions.jiang2019.net_probes import GradientAgreement, LossBands
from reproductions.jiang2019.settings import Scale


def _ranked(scale: Scale) -> tuple[Panel, ...]:
    return tuple(
        Panel(each.title, each, (lineup.probed(lineup.traditional(each), LossRanks()),))
        for each in scale.main
    )


def _gradients(scale: Scale) -> tuple[Panel, ...]:
    entry = lineup.probed(lineup.selective(scale.noisy), GradientAgreement())
    return (Panel(scale.noisy.title, scale.noisy, (entry,)),)


def _banded(scale: Scale) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            each.title,
            each,
            tuple(
                lineup.probed(entry, LossBands())
                for entry in (lineup.traditional(each), lineup.selective(each))
            ),
        )
        for each in scale.main
    )


def _followed(scale: Scale) -> tuple[Panel, ...]:
    setting = scale.noisy
    entries = (lineup.traditional(setting), lineup.selective(setting))
    probed = tuple(lineup.probed(entry, LossRanks()) for entry in entries)
    return (Panel(setting.title, setting, probed),)


FIG_2 = Item(
    "fig-2",
    "The easiest and the hardest images",
    Source.PAPER,
    (
        "Shows the images of a data set that are easiest and hardest by the rank of their loss. "
        "In which run and when losses are ranked is ours.",
    ),
    easiest.present,
    _ranked,
)
FIG_5 = Item(
    "fig-5",
    "The gradient of high-loss batches",
    Source.PAPER,
    (
        "Shows over training how similar the gradients of high-loss batches and of random ones "
        "are to the gradient of all data, by cosine and by the share of equal signs; its numbers "
        "are not repeated here. Sizes and draws of the batches are ours.",
    ),
    gradients.present,
    _gradients,
)
FIG_8 = Item(
    "fig-8",
    "Target confidence of easy and of hard examples",
    Source.PAPER,
    (
        "Shows the confidence in the target over training by percentile, with SB and without; its "
        "numbers are not repeated here. Bands of a fifth each, of the test examples, are ours.",
    ),
    bands.presenter("confidence", "target confidence", bands.sure),
    _banded,
)
FIG_9 = Item(
    "fig-9",
    "Accuracy on easy and on hard examples",
    Source.PAPER,
    (
        "Shows the accuracy over training by percentile, with SB and without; its numbers are not "
        "repeated here. Bands of a fifth each, of the test examples, are ours.",
    ),
    bands.presenter("accuracy", "accuracy", bands.right),
    _banded,
)
FIG_15 = Item(
    "fig-15",
    "Odds of selection of five examples",
    Source.PAPER,
    (
        "Shows the selection probability of five examples over training, with selection and "
        "without; its numbers are not repeated here. Which five is ours.",
    ),
    odds.present,
    _followed,
)
