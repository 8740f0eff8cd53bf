"""The famous methods: controls, Selective-Backprop's family, other papers', and `auto`.

All raise a `ConfigurationError` if a value is out of its range or a part is of another kind.
"""

from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch.optim import Optimizer

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance, check_rate
from selective_backprop._sampling.draws import Draw, DrawName
from selective_backprop._sampling.gate import VarianceGate
from selective_backprop._sampling.schedule import Schedule
from selective_backprop._sampling.subset import Subset
from selective_backprop.scorers import (
    AbstractPredictor,
    AbstractScorer,
    Average,
    Excess,
    Forward,
    Measure,
    Predicted,
    Proxy,
    Recorded,
    ReferenceLosses,
    Stale,
)
from selective_backprop.scorers._forward import MeasureName
from selective_backprop.selectors import (
    BelowMean,
    Bottom,
    Confident,
    Everything,
    Hide,
    Nonzero,
    Percentile,
    Proportional,
    Top,
    Uniform,
)
from selective_backprop.strategies._strategy import Strategy

FIRST_EPOCH = Schedule(warmup_epochs=1)
HOPELESS = 0.05  # if a lower share of examples that are far off recovers, they are given up
FADES = 8.0  # visits of the average example after its first, over which selection ends


def traditional() -> Strategy:
    """Train on everything, without selection: the control of every comparison."""
    return Strategy("traditional", None, Everything())


def random_backprop(
    rate: float, *, draw: Draw | DrawName = Draw.EXACT, schedule: Schedule = Schedule()
) -> Strategy:
    """Train on a random share of the examples; skipped examples are not even loaded.

    Args:
        rate: share of the examples to train on, in (0, 1].
        draw: `"exact"` takes a fixed number of each window, `"bernoulli"` tosses a coin per
            example.
        schedule: when to select; all the time by default.
    """
    return Strategy("random-backprop", None, Uniform(rate, draw), schedule)


def random_scored(
    rate: float, *, draw: Draw | DrawName = Draw.EXACT, schedule: Schedule = Schedule()
) -> Strategy:
    """Score every example and ignore the scores: a control that pays for scoring in vain.

    Args:
        rate: share of the examples to train on, in (0, 1].
        draw: as for `random_backprop`.
        schedule: when to select; all the time by default.
    """
    return Strategy("random-scored", Forward(), Uniform(rate, draw), schedule)


def random_k(rate: float, *, scorer: AbstractScorer = Forward()) -> Strategy:
    """Score every example, and train on a fixed number of each window at random.

    This is `random_scored` with exact draws, as the control of `top_k` and `low_k`.

    Args:
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored; the scores are ignored.
    """
    return Strategy("random-k", scorer, Uniform(rate))


def top_k(
    rate: float, *, scorer: AbstractScorer = Forward(), schedule: Schedule = Schedule()
) -> Strategy:
    """Train on the share of each window that scores highest.

    Args:
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored.
        schedule: when to select; all the time by default.

    Source:
        Kawaguchi and Lu 2020, arXiv:1907.04371 (ordered SGD).
    """
    return Strategy("top-k", scorer, Top(rate), schedule)


def low_k(
    rate: float, *, scorer: AbstractScorer = Forward(), schedule: Schedule = Schedule()
) -> Strategy:
    """Train on the share of each window that scores lowest.

    Args:
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored.
        schedule: when to select; all the time by default.

    Source:
        Shah et al. 2020, arXiv:2001.03316 (min-loss SGD), against outliers.
    """
    return Strategy("low-k", scorer, Bottom(rate), schedule)


def pruned(subset: Subset) -> Strategy:
    """Train on a part of the data set, chosen once, as if the rest did not exist.

    Args:
        subset: the part, such as `prune(el2n_scores(...), keep=0.5)` returns.

    Source:
        Paul et al. 2021, arXiv:2107.07075.
    """
    return Strategy("pruned", None, Everything()).within(subset)


def selective_backprop(
    rate: float | None = None,
    *,
    beta: float | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    warmup_epochs: int = 1,
    start: float = 0.0,
    end: float = 1.0,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Score every example with a forward pass, and train on examples whose loss ranks high.

    An example whose loss exceeds a share `q` of recent losses is trained on with probability `q **
    beta`. That keeps about a share `rate = 1 / (beta + 1)` of all examples. Each example costs a
    forward pass and `rate` of a training step. If a backward pass costs two forward passes, an
    example costs two forward passes instead of three at a rate of a third.

    Args:
        rate: share of the examples to train on, in (0, 1]; give this or `beta`.
        beta: selectivity, at least 0; give this or `rate`.
        draw: `"exact"` takes a full batch from each window of candidates; `"bernoulli"` tosses
            a coin per candidate, as the paper does.
        history: how many recent losses are ranked against, R.
        warmup_epochs: epochs at the beginning that train on everything.
        start: fraction of training before which everything is trained on.
        end: fraction of training from which everything is trained on again.
        scorer: how examples are scored.

    Source:
        Jiang et al. 2019, arXiv:1910.00762.
    """
    schedule = Schedule(warmup_epochs, start, end)
    if beta is not None and rate is None:
        ranking = Percentile(beta, draw, history)
    elif rate is not None and beta is None:
        ranking = _ranking(rate, draw, history)
    else:
        given = "neither" if rate is None else "both"
        raise ConfigurationError(
            f"{given} of rate and beta given; they are one knob, rate = 1 / (beta + 1), so give "
            "one: rate=1/3 and beta=2 both keep a third"
        )
    return Strategy("selective-backprop", scorer, ranking, schedule)


def _ranking(rate: float, draw: Draw | DrawName, history: int = 1024) -> Percentile:
    # The beta with which the mean of q ** beta, for q uniform in [0, 1], is the rate.
    return Percentile(1.0 / check_rate("rate", rate) - 1.0, draw, history)


def stale_sb(
    rate: float,
    *,
    epochs: int = 3,
    spread: bool = False,
    recorded: bool = False,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Selective-Backprop that scores each example only every few epochs.

    In between, the same share of examples is selected by their last scores, before anything is
    loaded. On average an example costs `1 / epochs` of a forward pass and `rate` of a training step
    in each epoch. `epochs=1` is `selective_backprop`, bit for bit.

    Args:
        rate: share of the examples to train on, in (0, 1].
        epochs: for how many epochs a score is used, n, at least 1.
        spread: score an n-th of the examples in every epoch, instead of all in every n-th epoch.
        recorded: let losses that training recorded count as scores; needs
            `SelectiveLoader.record`.
        draw: as for `selective_backprop`.
        history: number of recent losses that fresh scores are ranked against. Remembered scores are
            ranked against each other.
        schedule: when selection acts; by default from the second epoch on.
        scorer: how examples are scored.

    Source:
        Jiang et al. 2019, arXiv:1910.00762, section 3.3 (StaleSB).
    """
    scorer = Stale(scorer, epochs, spread, recorded)
    return Strategy("stale-sb", scorer, _ranking(rate, draw, history), schedule)


def predicted_sb(
    rate: float,
    *,
    predictor: AbstractPredictor = Average(),
    epochs: int = 3,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Selective-Backprop that predicts losses from earlier ones between selection passes.

    Args:
        rate: share of the examples to train on, in (0, 1].
        predictor: predicts an example's score from its last ones: `Average()`, or
            `GaussianProcess()` or `Crossing(rate)`, which learn and need scikit-learn.
        epochs: number of epochs after which an example is scored again; at least 2.
        draw: as for `selective_backprop`.
        history: recent losses that fresh scores are ranked against.
        schedule: when selection acts; by default from the second epoch on.
    """
    scorer = Predicted(Forward(), predictor, epochs)
    return Strategy("predicted-sb", scorer, _ranking(rate, draw, history), schedule)


def recorded_sb(
    rate: float,
    *,
    max_age: int | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Selective-Backprop's rule on the losses that training computed anyway.

    There is no selection pass, and only selected examples are loaded, so an example costs `rate` of
    a training step. Its score is its loss when it was last trained on, however long ago. The loop
    takes its loss from `SelectiveLoader.loss_fn`, or calls `record`.

    Args:
        rate: share of the examples to train on, in (0, 1].
        max_age: for how many epochs a loss is used; None for ever.
        draw: as for `selective_backprop`.
        schedule: when selection acts; by default from the second epoch on.
    """
    return Strategy("recorded-sb", Recorded(max_age), _ranking(rate, draw), schedule)


def proxy_sb(
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
    *,
    rate: float,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Selective-Backprop with scores from a small model that is trained beside the large one.

    Args:
        make_model: returns the small model, which takes the same batches as the large one.
        make_optimizer: returns an optimiser of the parameters it is given.
        rate: share of the examples to train on, in (0, 1].
        draw: as for `selective_backprop`.
        history: how many recent losses are ranked against, R.
        schedule: when selection acts; by default from the second epoch on.

    Source:
        Coleman et al. 2020, arXiv:1906.11829, for proxies that are trained beforehand.
    """
    scorer = Proxy(make_model, make_optimizer)
    return Strategy("proxy-sb", scorer, _ranking(rate, draw, history), schedule)


def diet_sb(subset: Subset, rate: float, *, schedule: Schedule = FIRST_EPOCH) -> Strategy:
    """Prune the data set by early scores, then train on the rest with Selective-Backprop.

    Args:
        subset: the rest of the data set, such as `prune(el2n_scores(...), keep=0.8)` returns.
        rate: share of the rest to train on, in (0, 1].
        schedule: when selection acts; by default from the second epoch on.
    """
    ranking = _ranking(rate, Draw.EXACT)
    return Strategy("diet-sb", Forward(), ranking, schedule).within(subset)


def kath18(
    presample: float = 3.0,
    *,
    measure: Measure | MeasureName = Measure.ERROR_NORM,
    bias: float = 1.0,
    schedule: Schedule = Schedule(gate=VarianceGate()),
) -> Strategy:
    """Importance sampling: draw each batch from a presample, in proportion to gradient norms.

    The loop takes its loss from `SelectiveLoader.loss_fn`, or applies the weights by hand and
    calls `record` with its outputs. The schedule's gate uses the outputs to decide when sampling
    begins. If the loop does neither, the gate pays for scoring passes.

    Args:
        presample: candidates per row of a training batch, more than 1; the paper's B / b.
        measure: rows are drawn in proportion to it: `"error-norm"`, the paper's bound of the
            gradient's norm, or `"loss"`.
        bias: exponent of the weights, in [0, 1]. 1 makes the gradient unbiased; 0 gives no weights,
            as the Selective-Backprop paper ran it.
        schedule: when to sample; by default while sampling saves more variance than its scoring
            costs. The paper is reported to have sampled 128 of 640 on CIFAR, from a threshold (tau)
            of 1.5 on: `kath18(5, schedule=Schedule(gate=VarianceGate(threshold=1.5)))`.

    Source:
        Katharopoulos and Fleuret 2018, arXiv:1803.00942; the defaults of `presample` and of the
        gate are as in the authors' code.
    """
    return Strategy("kath18", Forward(measure), Proportional(presample, bias), schedule)


def infobatch(
    prune: float = 0.5, *, longer_steps: bool = True, schedule: Schedule = Schedule(end=0.875)
) -> Strategy:
    """Skip some examples below the mean loss at random; other examples below it weigh more.

    Losses are recorded in training: there is no selection pass, and skipped examples are
    not loaded. The loop takes its loss from `SelectiveLoader.loss_fn`, or records losses and
    applies the weights by hand.

    Args:
        prune: probability of being skipped below the mean, in [0, 1); the paper's r.
        longer_steps: use the published weights. Their mean is above 1, so the fewer steps of an
            epoch are longer. False makes `(weights * losses).mean()` unbiased.
        schedule: when to skip; by default until seven eighths of training are done, as in the
            paper. Its length must be known.

    Source:
        Qin et al. 2023, arXiv:2303.04947.
    """
    return Strategy("infobatch", Recorded(), BelowMean(prune, longer_steps), schedule)


def kakurenbo(
    share: float = 0.3,
    *,
    confidence: float = 0.7,
    scorer: AbstractScorer = Forward(),
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Hide the examples of lowest loss that are predicted correctly and with confidence.

    At an epoch's end, hidden examples are scored by a forward pass, so that they come back when the
    model forgets them. The loop takes its loss from `SelectiveLoader.loss_fn`, or calls `record`.

    Args:
        share: the largest share to hide, in (0, 1). It falls to 0.8, 0.6 and 0.4 times this value
            after 0.3, 0.6 and 0.8 of training.
        confidence: the least confidence of a hidden example, in [1/2, 1).
        scorer: scores the hidden examples.
        schedule: when to hide; by default from the second epoch on.

    Source:
        Nguyen et al. 2023, arXiv:2310.10102. The paper also divides the learning rate by the share
        that is trained on; this is left to the loop.
    """
    return Strategy("kakurenbo", Recorded(rescore=scorer), Hide(share, confidence), schedule)


def easy_skip(
    floor: float = 0.25, *, schedule: Schedule = Schedule(start=0.25, end=5 / 6)
) -> Strategy:
    """Skip examples that are surely learned, each for at most four epochs in a row.

    The odds of being kept are `2 * (1 - exp(-loss))` within [`floor`, 1], where `loss` is from the
    last training on the example. Kept rows weigh `odds ** -0.5`. There is no selection pass, and
    skipped examples are not loaded. The loop takes its loss from `SelectiveLoader.loss_fn`, or
    records losses and applies the weights by hand.

    Args:
        floor: the lowest odds of being kept, in (0, 1].
        schedule: when to skip; by default neither in the first quarter nor in the last sixth of
            training. Its length must be known.
    """
    return Strategy("easy-skip", Recorded(max_age=4), Confident(floor), schedule)


def rho_loss(
    reference: ReferenceLosses | Tensor,
    rate: float,
    *,
    scorer: AbstractScorer = Forward(),
    schedule: Schedule = Schedule(),
) -> Strategy:
    """Train on the examples of each window whose loss most exceeds a reference model's.

    Args:
        reference: one loss per example of the data set, `[example]`, from a model trained
            elsewhere.
        rate: share of each window to train on, in (0, 1].
        scorer: how examples are scored. `Recorded()` takes the losses that training recorded, so
            that examples are selected before they are loaded.
        schedule: when to select; all the time by default.

    Source:
        Mindermann et al. 2022, arXiv:2206.07137 (RHO-LOSS).
    """
    if isinstance(reference, Tensor):
        reference = ReferenceLosses(reference)
    return Strategy("rho-loss", Excess(reference, scorer), Top(rate), schedule)


def tail_sft(
    rate: float = 0.5,
    *,
    initial: ReferenceLosses | Tensor | None = None,
    max_age: int | None = 4,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Leave out the share of each window whose loss has fallen furthest below its initial loss.

    What the model fits already is skipped, and training focuses on the rest. An example's score
    is its last recorded loss minus its first one. There is no selection pass, and skipped
    examples are not loaded: an example costs `rate` of a training step. The loop takes its
    loss from `SelectiveLoader.loss_fn`, or calls `record`, with one loss per example; for a text,
    the mean of its tokens' losses, so that length makes no difference.

    Args:
        rate: share of each window to train on, in (0, 1]; the rest is left out.
        initial: one loss per example of the data set, `[example]`, of the model before training;
            `example_losses` computes them. None takes the first loss that training recorded of each
            example. By then the model has learned from other examples.
        max_age: the most epochs in a row for which an example is skipped; None sets no limit.
        schedule: when to skip; by default from the second epoch on, since the first one records.

    Source:
        Malladi et al. 2026, arXiv:2608.25756 (TailSFT); a half is left out by default, as in the
        example in TRL. There the losses come from the step's own forward pass, so only backward
        passes are saved.
    """
    if isinstance(initial, Tensor):
        initial = ReferenceLosses(initial)
    check_instance("initial", initial, ReferenceLosses, "torch.tensor(losses)", optional=True)
    return Strategy("tail-sft", Excess(initial, Recorded(max_age)), Top(rate), schedule)


def drop_zero(scorer: AbstractScorer = Forward(), *, schedule: Schedule = Schedule()) -> Strategy:
    """Leave out examples that score exactly 0, and fill batches up with the next ones.

    Use it with a loss whose gradient is exactly 0 if the loss is 0, such as a hinge loss. Then
    training loses only what momentum and weight decay do in the steps that are not taken.

    With `Recorded(max_age)` there is no selection pass: if training recorded a loss of 0, the
    example is not loaded for `max_age` epochs, and then tried again. This can skip prompts before
    answers are generated. If rewards are at most 1, record `1 - rewards.amin(1)`, which is 0 for
    a prompt whose answers were all right.

    To leave out rows of gradient 0 and keep the gradient of the whole batch, use `NonzeroRows`.

    Args:
        scorer: scores the examples. `Forward()` computes each candidate's loss;
            `Recorded(max_age=4)` remembers what training recorded.
        schedule: when to leave out; all the time by default.

    Source:
        Zheng et al. 2025, arXiv:2506.02177 (GRESO), for skipping prompts by earlier rewards.
        There the odds of a prompt fall with each visit that taught nothing. Here `max_age` is a
        fixed limit.
    """
    return Strategy("drop-zero", scorer, Nonzero(), schedule)


def auto(*, trim: bool = False, schedule: Schedule = FIRST_EPOCH) -> Strategy:
    """Skip learned examples in the first passes, and wrong labels after; there is no rate to set.

    Training records losses. An example is kept with odds `2 * (1 - exp(-loss))` within [0.1, 1],
    where `loss` is the higher of its last two. So an example is skipped only if the model gives its
    class a probability above 1/2. After ten epochs without training, an example is trained on
    again.

    Low losses are raised in two cases. First, they rise with the number of visits, because a model
    comes to remember its examples, and what it cannot remember is mostly noise. After nine visits
    of the average example all are kept (`fades=` of `Recorded`). Second, they are raised in a class
    that has more than half of the examples, because it is easily guessed (`prior=` of `Recorded`).

    An example is left out once its loss has stayed so high that hardly any example with such a loss
    is learned later. Mislabelled examples are like that (`give_up=` of `Recorded`). Classes that
    are not half learned are spared.

    There is no selection pass, and skipped examples are not loaded. The loop takes its loss from
    `SelectiveLoader.loss_fn`, or records plain cross-entropies, with their targets. All kept rows
    weigh the same.

    Args:
        trim: whether to leave out the examples with the highest losses from the second epoch on, as
            many as seem to be labelled wrong in the first epoch (`trim=` of `Recorded`). Use it
            with label smoothing, such as 0.3: without smoothing a model learns wrong labels by
            heart.
        schedule: when to skip; by default from the second epoch on.
    """
    scorer = Recorded(10, highest_of=2, give_up=HOPELESS, fades=FADES, prior=True, trim=trim)
    return Strategy("auto", scorer, Confident(floor=0.1, correction=0.0), schedule)
