"""The strategy that sets its own rate, and skips little where little is to be gained."""

from selective_backprop._sampling.schedule import Schedule
from selective_backprop.scorers import Recorded
from selective_backprop.selectors import NoiseBudget
from selective_backprop.strategies._strategy import Strategy

HOPELESS = 0.05  # of examples far off, how many must recover for hard ones to be worth training on


def auto(
    noise: float = 0.1,
    *,
    max_age: int | None = 10,
    schedule: Schedule = Schedule(warmup_epochs=1),
) -> Strategy:
    """Skip what is learned, for as long as it is not missed, and what cannot be; set no rate.

    How many learned examples are skipped follows from the losses that training recorded, as
    `NoiseBudget` describes: hardly any while the model is young, most once most are learned. An
    example is judged by the highest of its last two losses, and trained on until there are two;
    what was skipped for `max_age` epochs is trained on. Examples that stay far off while next to
    none of their kind recover, as mislabelled ones do, are skipped like learned ones
    (`give_up=` of `Recorded`). There is no selection pass, and what is skipped is not loaded.
    The loop takes its loss from `SelectiveLoader.loss_fn`, or records plain cross-entropies and
    weighs by hand; weights keep steps as long as those of plain training.

    Args:
        noise: how much to save: the variance that skipping may add to the gradient, as a share
            of what there is, in (0, 1].
        max_age: how long at most unseen: epochs in a row that an example can be skipped in, at
            least 1; None for any number.
        schedule: when to skip; by default from the second epoch on.

    Raises:
        ConfigurationError: if a value is out of its range.
    """
    scorer = Recorded(max_age, highest_of=2, give_up=HOPELESS)
    return Strategy("auto", scorer, NoiseBudget(noise), schedule)
