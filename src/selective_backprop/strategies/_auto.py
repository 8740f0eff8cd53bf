"""The strategy that sets its own rate, and skips little where little is to be gained."""

from selective_backprop._schedule import Schedule
from selective_backprop.scorers import Recorded
from selective_backprop.selectors import NoiseBudget
from selective_backprop.strategies._strategy import Strategy


def auto(
    noise: float = 0.1,
    *,
    max_age: int = 10,
    schedule: Schedule = Schedule(warmup_epochs=1, end=5 / 6),
) -> Strategy:
    """Skip learned examples for as long as what is left out is not missed; set no rate.

    How many are skipped follows from the losses that training recorded, as `NoiseBudget`
    describes: hardly any while the model is young, most once most are learned. An example is
    judged by the highest of its last two losses, and trained on until there are two; what was
    skipped for `max_age` epochs is trained on. There is no selection pass, and what is skipped
    is not loaded. The loop must call `SelectiveLoader.record` and use the weights.

    Args:
        noise: how much to save: the variance that skipping may add to the gradient, as a share
            of what there is, in (0, 1].
        max_age: how long at most unseen: epochs in a row that an example can be skipped in, at
            least 1.
        schedule: when to skip; by default neither in the first epoch nor in the last sixth of
            training. Its length must be known.

    Raises:
        ConfigurationError: if a value is out of its range.
    """
    scorer = Recorded(max_age, highest_of=2)
    return Strategy("auto", scorer, NoiseBudget(noise), schedule)
