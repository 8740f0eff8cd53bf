"""The strategy that sets its own rate, and skips little where skipping gains little."""

from selective_backprop._sampling.schedule import Schedule
from selective_backprop.scorers import Recorded
from selective_backprop.selectors import NoiseBudget
from selective_backprop.strategies._strategy import Strategy

HOPELESS = 0.05  # if a lower share of examples that are far off recovers, they are given up


def auto(
    noise: float = 0.1,
    *,
    max_age: int | None = 10,
    schedule: Schedule = Schedule(warmup_epochs=1),
) -> Strategy:
    """Skip examples that are learned, and examples that cannot be learned; there is no rate to set.

    How many learned examples are skipped follows from the losses that training recorded, as
    `NoiseBudget` describes: hardly any while the model is young, most once most are learned. An
    example is judged by the highest of its last two losses, and trained on until it has two. One
    that was skipped for `max_age` epochs is trained on again. Examples that stay far off while
    next to none of their kind recover, as mislabelled ones do, are skipped like learned ones
    (`give_up=` of `Recorded`). There is no selection pass, and skipped examples are not loaded.
    The loop takes its loss from `SelectiveLoader.loss_fn`, or records plain cross-entropies and
    applies the weights by hand; weights keep steps as long as those of plain training.

    Args:
        noise: how much to save: the variance that skipping may add to the gradient, as a share
            of the variance that is there, in (0, 1].
        max_age: the most epochs in a row in which an example can be skipped, at least 1; None
            for any number.
        schedule: when to skip; by default from the second epoch on.

    Raises:
        ConfigurationError: if a value is out of its range.
    """
    scorer = Recorded(max_age, highest_of=2, give_up=HOPELESS)
    return Strategy("auto", scorer, NoiseBudget(noise), schedule)
