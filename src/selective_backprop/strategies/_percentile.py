"""Selective-Backprop and its family: the higher a loss ranks, the likelier it is trained on."""

from collections.abc import Callable, Iterable

from torch import nn
from torch.optim import Optimizer

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_rate
from selective_backprop._sampling.draws import Draw, DrawName
from selective_backprop._sampling.schedule import Schedule
from selective_backprop._sampling.subset import Subset
from selective_backprop.scorers import (
    AbstractPredictor,
    AbstractScorer,
    Average,
    Forward,
    Predicted,
    Proxy,
    Recorded,
    Stale,
)
from selective_backprop.selectors import Percentile
from selective_backprop.strategies._strategy import Strategy

FIRST_EPOCH = Schedule(warmup_epochs=1)


def selective_backprop(
    rate: float | None = None,
    *,
    beta: float | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    warmup_epochs: int = 1,
    start: float = 0.0,
    end: float = 1.0,
    plain_every: int | None = None,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Score every example with a forward pass, and train on those whose loss ranks high.

    An example whose loss exceeds a share `q` of recent losses is trained on with probability
    `q ** beta`, which is a share `rate = 1 / (beta + 1)` of all examples. Each example costs a
    forward pass and `rate` of a training step. If a backward pass costs two forwards, a rate of
    a third takes 2 forwards instead of 3, and saves that if the other examples were not needed.

    Args:
        rate: share of the examples to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        draw: `"exact"` takes a full batch from each window of candidates; `"bernoulli"` tosses
            a coin per candidate, as the paper does.
        history: how many recent losses are ranked against, R.
        warmup_epochs: epochs at the beginning that train on everything.
        start: fraction of training before which everything is trained on.
        end: fraction of training from which everything is trained on again.
        plain_every: one training batch in this many is unselective; None for no such batch.
        scorer: how examples are scored.

    Raises:
        ConfigurationError: if both or neither of `rate` and `beta` are given, or a value is out
            of its range.

    Source:
        Jiang et al. 2019, arXiv:1910.00762.
    """
    schedule = Schedule(warmup_epochs, start, end, plain_every)
    return Strategy("selective-backprop", scorer, _ranks(rate, beta, draw, history), schedule)


def stale_sb(
    rate: float | None = None,
    *,
    beta: float | None = None,
    epochs: int = 3,
    spread: bool = False,
    recorded: bool = False,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Selective-Backprop that scores each example only every few epochs.

    In between, as many examples are selected by their last scores, before anything is loaded.
    Per example, an epoch costs `1 / epochs` of a forward pass and `rate` of a training step.
    `epochs=1` is `selective_backprop`, bit for bit.

    Args:
        rate: share of the examples to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        epochs: for how many epochs a score is used, n, at least 1.
        spread: score an n-th of the examples in every epoch, instead of all in every n-th epoch.
        recorded: let losses that training recorded count as scores; needs
            `SelectiveLoader.record`.
        draw: as for `selective_backprop`.
        history: recent losses that fresh scores are ranked against; remembered ones are ranked
            against each other.
        schedule: when selection acts; by default from the second epoch on.
        scorer: how examples are scored.

    Raises:
        ConfigurationError: if both or neither of `rate` and `beta` are given, or a value is out
            of its range.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3.3 (StaleSB).
    """
    return Strategy(
        "stale-sb",
        Stale(scorer, epochs, spread, recorded),
        _ranks(rate, beta, draw, history),
        schedule,
    )


def predicted_sb(
    rate: float | None = None,
    *,
    beta: float | None = None,
    predictor: AbstractPredictor = Average(),
    epochs: int = 3,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Selective-Backprop that predicts losses from earlier ones between selection passes.

    Args:
        rate: share of the examples to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        predictor: predicts an example's score from its last ones: `Average()`, or
            `GaussianProcess()` or `Crossing(rate)`, which learn and need scikit-learn.
        epochs: for how many epochs predictions may use a score, including the epoch in which it
            was taken; then the example is scored again.
        draw: as for `selective_backprop`.
        history: recent losses that fresh scores are ranked against.
        schedule: when selection acts; by default from the second epoch on.
        scorer: how examples are scored.

    Raises:
        ConfigurationError: if both or neither of `rate` and `beta` are given, or a value is out
            of its range.
    """
    return Strategy(
        "predicted-sb",
        Predicted(scorer, predictor, epochs),
        _ranks(rate, beta, draw, history),
        schedule,
    )


def recorded_sb(
    rate: float | None = None,
    *,
    beta: float | None = None,
    max_age: int | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Selective-Backprop's rule on the losses that training computed anyway.

    There is no selection pass, and only selected examples are loaded, so an example costs `rate`
    of a training step. It is judged by its loss when it was last trained on, however long ago.
    The loop takes its loss from `SelectiveLoader.loss_fn`, or calls `record`.

    Args:
        rate: share of the examples to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        max_age: for how many epochs a loss is used; None for ever.
        draw: as for `selective_backprop`.
        schedule: when selection acts; by default from the second epoch on.

    Raises:
        ConfigurationError: if both or neither of `rate` and `beta` are given, or a value is out
            of its range.
    """
    return Strategy("recorded-sb", Recorded(max_age), _ranks(rate, beta, draw), schedule)


def proxy_sb(
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
    *,
    rate: float | None = None,
    beta: float | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Selective-Backprop with scores from a small model that is trained beside the large one.

    Args:
        make_model: returns the small model, which takes the same batches as the large one.
        make_optimizer: returns an optimiser of the parameters it is given.
        rate: share of the examples to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        draw: as for `selective_backprop`.
        history: how many recent losses are ranked against, R.
        schedule: when selection acts; by default from the second epoch on.

    Raises:
        ConfigurationError: if both or neither of `rate` and `beta` are given, or a value is out
            of its range.

    Source:
        Coleman et al. 2020, arXiv:1906.11829, for proxies that are trained beforehand.
    """
    return Strategy(
        "proxy-sb",
        Proxy(make_model, make_optimizer),
        _ranks(rate, beta, draw, history),
        schedule,
    )


def diet_sb(
    subset: Subset,
    *,
    rate: float | None = None,
    beta: float | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Prune the data set by early scores, then train on the rest with Selective-Backprop.

    Args:
        subset: the rest of the data set, such as `prune(el2n_scores(...), keep=0.8)` returns.
        rate: share of the rest to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        draw: as for `selective_backprop`.
        history: how many recent losses are ranked against, R.
        schedule: when selection acts; by default from the second epoch on.
        scorer: how examples are scored.

    Raises:
        ConfigurationError: if both or neither of `rate` and `beta` are given, a value is out of
            its range, or there is no subset.
    """
    ranks = _ranks(rate, beta, draw, history)
    return Strategy("diet-sb", scorer, ranks, schedule).within(subset)


def _ranks(
    rate: float | None, beta: float | None, draw: Draw | DrawName, history: int = 1024
) -> Percentile:
    if (rate is None) == (beta is None):
        given = "neither" if rate is None else "both"
        raise ConfigurationError(
            f"{given} of rate and beta given; they are one knob, rate = 1 / (beta + 1), so give "
            "one: rate=1/3 and beta=2 both keep a third"
        )
    if beta is None:
        beta = 1.0 / check_rate("rate", rate) - 1.0  # so that the mean of q ** beta is the rate
    return Percentile(beta, draw, history)
