"""The strategies: controls, Selective-Backprop's family and other papers' methods.

All raise a `ConfigurationError` if an argument is out of its range or of the wrong type.
"""

from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch.optim import Optimizer

from selective_backprop import scorers, selectors
from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_instance, check_rate
from selective_backprop._sampling.draws import Draw, DrawName
from selective_backprop._sampling.schedule import Schedule, VarianceGate
from selective_backprop._sampling.subset import Subset
from selective_backprop.scorers import AbstractScorer, Forward, Recorded, ReferenceLosses
from selective_backprop.scorers._forward import MeasureName
from selective_backprop.strategies._strategy import Strategy

FIRST_EPOCH = Schedule(warmup_epochs=1)


def traditional() -> Strategy:
    """Train on everything, as without this library: the baseline to compare with."""
    return Strategy("traditional", None, selectors.Everything())


def random_backprop(
    rate: float, *, draw: Draw | DrawName = Draw.EXACT, schedule: Schedule = Schedule()
) -> Strategy:
    """Train on a share of the examples, picked at random. Skipped examples are not loaded.

    Args:
        rate, draw: as for `selectors.Uniform`.
        schedule: when to select; by default always.
    """
    return Strategy("random-backprop", None, selectors.Uniform(rate, draw), schedule)


def random_scored(
    rate: float,
    *,
    draw: Draw | DrawName = Draw.EXACT,
    scorer: AbstractScorer = Forward(),
    schedule: Schedule = Schedule(),
) -> Strategy:
    """Score every example but select at random: the control for strategies that score examples.

    Args:
        rate, draw, schedule: as for `random_backprop`.
        scorer: computes the scores, which are then ignored.
    """
    return Strategy("random-scored", scorer, selectors.Uniform(rate, draw), schedule)


def top_k(
    rate: float, *, scorer: AbstractScorer = Forward(), schedule: Schedule = Schedule()
) -> Strategy:
    """Train on the examples with the highest scores of each window (`selectors.Top`).

    Args:
        rate: share of each window to train on, in (0, 1].
        scorer: computes the scores; by default each example's loss in a forward pass.
        schedule: when to select; by default always.

    Source:
        Kawaguchi and Lu 2020, arXiv:1907.04371 (ordered SGD).
    """
    return Strategy("top-k", scorer, selectors.Top(rate), schedule)


def low_k(
    rate: float, *, scorer: AbstractScorer = Forward(), schedule: Schedule = Schedule()
) -> Strategy:
    """Train on the examples with the lowest scores of each window.

    Args:
        rate, scorer, schedule: as for `top_k`.

    Source:
        Shah et al. 2020, arXiv:2001.03316. Their min-loss SGD is meant for data with outliers.
    """
    return Strategy("low-k", scorer, selectors.Bottom(rate), schedule)


def pruned(subset: Subset) -> Strategy:
    """Train on a part of the data set, such as `prune(el2n_scores(...), keep=0.5)`.

    The rest is never loaded.

    Source:
        Paul et al. 2021, arXiv:2107.07075.
    """
    return Strategy("pruned", None, selectors.Everything()).within(subset)


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

    An example whose loss exceeds a share `q` of the recent losses is trained on with probability
    `q ** beta`. This selects a share of about `rate = 1 / (beta + 1)` of all examples. With a rate
    of 1/3, an example costs two forward passes on average: one to score it, and 1/3 of the three
    that training costs, since a backward pass costs about two.

    Args:
        rate: share of the examples to train on, in (0, 1]. Pass either `rate` or `beta`.
        beta, draw, history: as for `selectors.Percentile`. The paper uses `draw="bernoulli"`.
        warmup_epochs, start, end: when to select, as for `Schedule`.
        scorer: computes the losses to rank.

    Source:
        Jiang et al. 2019, arXiv:1910.00762.
    """
    schedule = Schedule(warmup_epochs, start, end)
    if beta is not None and rate is None:
        ranking = selectors.Percentile(beta, draw, history)
    elif rate is not None and beta is None:
        ranking = _ranking(rate, draw, history)
    else:
        given = "neither" if rate is None else "both"
        raise ConfigurationError(
            f"{given} of rate and beta given; pass exactly one, since each sets the other by "
            "rate = 1 / (beta + 1): rate=1/3 and beta=2 both keep a third"
        )
    return Strategy("selective-backprop", scorer, ranking, schedule)


def _ranking(rate: float, draw: Draw | DrawName, history: int = 1024) -> selectors.Percentile:
    # With this beta, the mean of q ** beta is the rate if q is uniform in [0, 1].
    return selectors.Percentile(1.0 / check_rate("rate", rate) - 1.0, draw, history)


def stale_sb(
    rate: float,
    *,
    epochs: int = 3,
    spread: bool = False,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
    scorer: AbstractScorer = Forward(),
) -> Strategy:
    """Selective-Backprop that scores each example only every few epochs.

    In the epochs between, examples are selected by their last scores, before they are loaded. Per
    example and epoch, scoring costs on average `1 / epochs` of a forward pass.

    Args:
        rate, draw, history, scorer: as for `selective_backprop`. In epochs without scoring,
            examples are ranked against each other.
        epochs, spread: as for `scorers.Stale`.
        schedule: when to select; by default from the second epoch on.
    """
    scorer = scorers.Stale(scorer, epochs, spread)
    return Strategy("stale-sb", scorer, _ranking(rate, draw, history), schedule)


def predicted_sb(
    rate: float,
    *,
    predictor: scorers.AbstractPredictor = scorers.Average(),
    epochs: int = 3,
    draw: Draw | DrawName = Draw.EXACT,
    history: int = 1024,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Selective-Backprop that scores examples every few epochs and predicts scores in between.

    Args:
        rate, draw, history, schedule: as for `stale_sb`.
        predictor, epochs: as for `scorers.Predicted`.
    """
    scorer = scorers.Predicted(Forward(), predictor, epochs)
    return Strategy("predicted-sb", scorer, _ranking(rate, draw, history), schedule)


def recorded_sb(
    rate: float,
    *,
    max_age: int | None = None,
    draw: Draw | DrawName = Draw.EXACT,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Selective-Backprop that uses training losses as scores.

    There are no extra forward passes, and skipped examples are not loaded. An example's score is
    its loss when it was last trained on, even if this was many epochs ago. Use
    `SelectiveLoader.loss_fn` as the loss of your loop, or call `SelectiveLoader.record`.

    Args:
        rate, draw, schedule: as for `stale_sb`.
        max_age: as for `scorers.Recorded`.
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
    """Selective-Backprop by the losses of a small model, trained on the same batches as your model.

    Args:
        make_model, make_optimizer: as for `scorers.Proxy`.
        rate, draw, history, schedule: as for `stale_sb`.
    """
    scorer = scorers.Proxy(make_model, make_optimizer)
    return Strategy("proxy-sb", scorer, _ranking(rate, draw, history), schedule)


def diet_sb(subset: Subset, rate: float, *, schedule: Schedule = FIRST_EPOCH) -> Strategy:
    """Selective-Backprop on a part of the data set that you chose beforehand.

    Args:
        subset: the part of the data set to keep, such as `prune(el2n_scores(...), keep=0.8)`.
        rate: share of this part to train on, in (0, 1].
        schedule: as for `stale_sb`.
    """
    ranking = _ranking(rate, Draw.EXACT)
    return Strategy("diet-sb", Forward(), ranking, schedule).within(subset)


def kath18(
    presample: float = 3.0,
    *,
    measure: scorers.Measure | MeasureName = scorers.Measure.ERROR_NORM,
    bias: float = 1.0,
    schedule: Schedule = Schedule(gate=VarianceGate()),
) -> Strategy:
    """Importance sampling: draw each batch from a larger group, in proportion to gradient norms.

    Use `SelectiveLoader.loss_fn` as the loss of your loop. Or multiply the losses by
    `selection.weights`, and pass the model's outputs to `SelectiveLoader.record`. The default
    schedule decides by these outputs when to sample. Without outputs it needs extra forward passes.

    Args:
        presample, bias: as for `selectors.Proportional`.
        measure: how examples are scored: by `"error-norm"` (the paper's upper bound of the
            gradient's norm) or by `"loss"`. An example is drawn in proportion to its score.
        schedule: when to sample. By default, only while sampling lowers the variance of the
            gradient enough to pay for scoring (`VarianceGate`).

    Source:
        Katharopoulos and Fleuret 2018, arXiv:1803.00942. The defaults of `presample` and
        `VarianceGate` are as in the authors' code.
    """
    shares = selectors.Proportional(presample, bias)
    return Strategy("kath18", Forward(measure), shares, schedule)


def infobatch(
    prune: float = 0.5, *, longer_steps: bool = True, schedule: Schedule = Schedule(end=0.875)
) -> Strategy:
    """Skip some examples with losses below the mean loss, and give the others below it more weight.

    An example's loss is its last training loss, recorded as for `recorded_sb`. If you record losses
    yourself, train on the losses times `selection.weights`.

    Args:
        prune, longer_steps: as for `selectors.BelowMean`. True is the paper's.
        schedule: when to skip; by default until seven eighths of training are done, as in the
            paper. For this, pass `epochs=` to the loader.

    Source:
        Qin et al. 2023, arXiv:2303.04947.
    """
    return Strategy("infobatch", Recorded(), selectors.BelowMean(prune, longer_steps), schedule)


def kakurenbo(
    share: float = 0.3,
    *,
    confidence: float = 0.7,
    scorer: AbstractScorer = Forward(),
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Leave out the easiest examples: those that the model predicts correctly and confidently.

    At the end of each epoch, a forward pass scores the examples that were left out. Those that the
    model has forgotten are trained on again. Record losses as for `recorded_sb`; pass `epochs=`.

    Args:
        share, confidence: as for `selectors.Hide`.
        scorer: scores the examples that were left out.
        schedule: when to leave examples out; by default from the second epoch on.

    Source:
        Nguyen et al. 2023, arXiv:2310.10102.
    """
    easiest = selectors.Hide(share, confidence)
    return Strategy("kakurenbo", Recorded(rescore=scorer), easiest, schedule)


def easy_skip(
    floor: float = 0.25, *, schedule: Schedule = Schedule(start=0.25, end=5 / 6)
) -> Strategy:
    """Skip examples whose label the model is sure of, each for at most four epochs in a row.

    Losses are recorded, and weights used, as for `infobatch`.

    Args:
        floor: as for `selectors.Confident`.
        schedule: when to skip; by default after the first quarter and before the last sixth of
            training. For this, pass `epochs=` to the loader.
    """
    return Strategy("easy-skip", Recorded(max_age=4), selectors.Confident(floor), schedule)


def rho_loss(
    reference: ReferenceLosses | Tensor,
    rate: float,
    *,
    scorer: AbstractScorer = Forward(),
    schedule: Schedule = Schedule(),
) -> Strategy:
    """Train on the examples whose loss is furthest above their loss in a reference model.

    Args:
        reference, scorer: as for `scorers.Excess`. The reference may be a tensor, `[example]`.
        rate, schedule: as for `top_k`.

    Source:
        Mindermann et al. 2022, arXiv:2206.07137 (RHO-LOSS).
    """
    if isinstance(reference, Tensor):
        reference = ReferenceLosses(reference)
    return Strategy("rho-loss", scorers.Excess(reference, scorer), selectors.Top(rate), schedule)


def tail_sft(
    rate: float = 0.5,
    *,
    initial: ReferenceLosses | Tensor | None = None,
    max_age: int | None = 4,
    schedule: Schedule = FIRST_EPOCH,
) -> Strategy:
    """Skip the examples whose loss has fallen furthest since training began.

    The model fits these examples already. An example's score is its last training loss minus its
    initial loss. Losses are recorded as for `recorded_sb`: of a text, the mean over its tokens.

    Args:
        rate: as for `top_k`.
        initial: the losses before training, `[example]`; `example_losses` computes them. With
            None, each example's first training loss is used.
        max_age, schedule: as for `recorded_sb`.

    Source:
        Malladi et al. 2026, arXiv:2608.25756 (TailSFT). The default rate is that of TRL's example.
        The paper takes losses from each step's forward pass, so it saves only backward passes.
    """
    if isinstance(initial, Tensor):
        initial = ReferenceLosses(initial)
    check_instance("initial", initial, ReferenceLosses, "torch.tensor(losses)", optional=True)
    excess = scorers.Excess(initial, Recorded(max_age))
    return Strategy("tail-sft", excess, selectors.Top(rate), schedule)
