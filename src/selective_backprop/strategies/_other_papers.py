"""Methods of other papers, before and after Selective-Backprop, that follow other rules."""

from torch import Tensor

from selective_backprop._sampling.gate import VarianceGate
from selective_backprop._sampling.schedule import Schedule
from selective_backprop.scorers import (
    AbstractScorer,
    Excess,
    Forward,
    Measure,
    Recorded,
    ReferenceLosses,
)
from selective_backprop.scorers._forward import MeasureName
from selective_backprop.selectors import BelowMean, Confident, Hide, Proportional, Top
from selective_backprop.strategies._strategy import Strategy


def kath18(
    presample: float = 3.0,
    *,
    measure: Measure | MeasureName = Measure.ERROR_NORM,
    bias: float = 1.0,
    schedule: Schedule = Schedule(gate=VarianceGate()),
) -> Strategy:
    """Importance sampling: draw each batch from a presample, in proportion to gradient norms.

    The loop takes its loss from `SelectiveLoader.loss_fn`, or applies the weights by hand and
    calls `record` with its outputs. Until sampling begins, the schedule's gate judges by these;
    a loop that does neither pays for scores.

    Args:
        presample: candidates per row of a training batch, more than 1; the paper's B / b.
        measure: what rows are drawn in proportion to: `"error-norm"`, the paper's bound of the
            gradient's norm, or `"loss"`.
        bias: how much of the draw the weights undo, in [0, 1]. 1 makes the gradient unbiased; 0
            gives no weights, as the Selective-Backprop paper ran it.
        schedule: when to sample; by default whenever it saves more variance than its scoring
            costs. On CIFAR, the paper is reported to have sampled 128 of 640 from a tau of 1.5
            on: `kath18(5, schedule=Schedule(gate=VarianceGate(threshold=1.5)))`.

    Raises:
        ConfigurationError: if a value is out of its range.

    Source:
        Katharopoulos and Fleuret 2018, arXiv:1803.00942; the defaults of `presample` and of the
        gate are those of the authors' code.
    """
    return Strategy(
        "kath18",
        Forward(measure),
        Proportional(presample, bias),
        schedule,
    )


def infobatch(
    prune: float = 0.5,
    *,
    longer_steps: bool = True,
    schedule: Schedule = Schedule(end=0.875),
) -> Strategy:
    """Skip examples below the mean loss at random, and give those of them that stay more weight.

    Losses are those that training computed: there is no selection pass, and skipped examples are
    not loaded. The loop takes its loss from `SelectiveLoader.loss_fn`, or records losses and
    applies the weights by hand.

    Args:
        prune: probability of being skipped below the mean, in [0, 1); the paper's r.
        longer_steps: use the published weights, whose mean exceeds 1, so that an epoch goes as
            far in fewer steps. False makes `(weights * losses).mean()` unbiased.
        schedule: when to skip; by default until seven eighths of training are done, as in the
            paper. Its length must be known.

    Raises:
        ConfigurationError: if `prune` is out of range.

    Source:
        Qin et al. 2023, arXiv:2303.04947.
    """
    return Strategy("infobatch", Recorded(), BelowMean(prune, longer_steps), schedule)


def kakurenbo(
    share: float = 0.3,
    *,
    confidence: float = 0.7,
    falls: tuple[tuple[float, float], ...] = ((0.3, 0.8), (0.6, 0.6), (0.8, 0.4)),
    scorer: AbstractScorer = Forward(),
    schedule: Schedule = Schedule(warmup_epochs=1),
) -> Strategy:
    """Hide the examples of lowest loss that are predicted correctly and with confidence.

    At an epoch's end, the examples hidden in it are scored by a forward pass, so that they come
    back when the model forgets them. The loop takes its loss from `SelectiveLoader.loss_fn`, or
    calls `record`.

    Args:
        share: at most this share is hidden, in (0, 1).
        confidence: the least confidence of a hidden example, in [1/2, 1).
        falls: fractions of training, each with the factor for `share` from there on.
        scorer: scores the hidden examples.
        schedule: when to hide; by default from the second epoch on.

    Raises:
        ConfigurationError: if a value is out of its range.

    Source:
        Nguyen et al. 2023, arXiv:2310.10102. Its learning rate, divided by the share that is
        trained on, is left to the loop.
    """
    return Strategy("kakurenbo", Recorded(rescore=scorer), Hide(share, confidence, falls), schedule)


def easy_skip(
    floor: float = 0.25,
    *,
    max_age: int | None = 4,
    schedule: Schedule = Schedule(start=0.25, end=5 / 6),
) -> Strategy:
    """Skip only examples that are surely learned, and none for long.

    The odds of being kept are `2 * (1 - exp(-loss))` within [`floor`, 1], by the loss when the
    example was last trained on; kept rows weigh `odds ** -0.5`. There is no selection pass, and
    skipped examples are not loaded. The loop takes its loss from `SelectiveLoader.loss_fn`, or
    records losses and applies the weights by hand.

    Args:
        floor: the lowest odds of being kept, in (0, 1].
        max_age: the most epochs in a row in which an example can be skipped, at least 1; None for
            any number.
        schedule: when to skip; by default neither in the first quarter nor in the last sixth of
            training. Its length must be known.

    Raises:
        ConfigurationError: if a value is out of its range.
    """
    return Strategy("easy-skip", Recorded(max_age), Confident(floor), schedule)


def rho_loss(
    reference: ReferenceLosses | Tensor,
    rate: float,
    *,
    scorer: AbstractScorer = Forward(),
    schedule: Schedule = Schedule(),
) -> Strategy:
    """Train on the share of each window whose loss is furthest above a reference model's.

    Args:
        reference: one loss per example of the data set, `[example]`, from a model trained
            elsewhere.
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored.
        schedule: when to select; all the time by default.

    Raises:
        ConfigurationError: if `reference` does not hold one finite loss per example, or the rate
            is out of range.

    Source:
        Mindermann et al. 2022, arXiv:2206.07137 (RHO-LOSS).
    """
    if isinstance(reference, Tensor):
        reference = ReferenceLosses(reference)
    return Strategy("rho-loss", Excess(reference, scorer), Top(rate), schedule)
