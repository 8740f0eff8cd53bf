"""Laws that every selector keeps. A new one needs an entry in `SELECTORS`, and nothing else."""

from functools import partial

import fixture_extend
import pytest
import torch
from discovery import check_specification, final_classes, public_classes
from fixture_cases import share_of_cases
from fixture_loaders import streams
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from reproductions.rules.dbpd import Unsure
from reproductions.rules.divbs import Diversified
from reproductions.rules.orderdp import RandomThenTop

SELECTORS = [
    sb.selectors.Everything(),
    sb.selectors.Uniform(1 / 4),
    sb.selectors.Uniform(1 / 4, "bernoulli"),
    sb.selectors.Uniform(1.0),
    sb.selectors.Percentile(3),
    sb.selectors.Percentile(3, "bernoulli", history=64),
    sb.selectors.Percentile(0),
    sb.selectors.Percentile(0.25),
    sb.selectors.Top(1 / 4),
    sb.selectors.Top(1.0),
    sb.selectors.Bottom(1 / 4),
    sb.selectors.Bottom(1.0),
    sb.selectors.Proportional(),
    sb.selectors.Proportional(4, bias=0.5),
    sb.selectors.Proportional(1.5, bias=0),
    sb.selectors.BelowMean(),
    sb.selectors.BelowMean(0.8, history=64),
    sb.selectors.BelowMean(longer_steps=True),
    sb.selectors.Hide(),
    sb.selectors.Hide(0.5, confidence=0.5, history=64),
    sb.selectors.Confident(),
    sb.selectors.Confident(1.0),
    sb.selectors.Confident(0.3, correction=1.0),
    sb.selectors.Confident(0.1, correction=0.0),
]
RULES = [Unsure(0.7), RandomThenTop(0.8, 0.375), Diversified(1 / 4)]
ALL = SELECTORS + fixture_extend.SELECTORS + RULES
BATCH = 16

WITHOUT_CHANCE = (sb.selectors.Top, sb.selectors.Bottom, sb.selectors.Hide, Unsure)

BIASED_ON_PURPOSE = {
    sb.selectors.Percentile(3): "it prefers high scores",
    sb.selectors.Proportional(4, bias=0.5): "an exponent below 1 undoes a part of the draw only",
    sb.selectors.BelowMean(longer_steps=True): "kept rows weigh more than 1, since steps are fewer",
    sb.selectors.Confident(): "tempered, so that no row of a batch weighs four times another",
    sb.selectors.Confident(0.3, correction=1.0): "unbiased as a sum over kept rows, not as a mean",
}

TELL_TALE = [sb.selectors.Uniform(1 / 4), sb.selectors.Percentile(3)]  # they weigh nothing
WEIGHTED = [selector for selector in ALL if selector.terms.reweights]

every_selector = pytest.mark.parametrize("selector", ALL, ids=repr)

few = share_of_cases(1 / 2)  # of each law, for each of the selectors

seeds = st.integers(0, 2**32)

windows = st.lists(
    st.one_of(st.floats(-100, 100, width=32), st.sampled_from([0.0, 1.0, torch.inf])),
    min_size=1,
    max_size=64,
)


def context(selector: sb.selectors.AbstractSelector) -> sb.selectors.Context:
    """The training that the loader would start the selector in."""
    window = max(BATCH, round(BATCH / selector.terms.rate))
    exact = selector.terms.draw is sb.selectors.Draw.EXACT
    return sb.selectors.Context(BATCH, window if exact else None, examples=1000)


def begin(
    selector: sb.selectors.AbstractSelector,
) -> tuple[sb.selectors.RunningSelector, sb.selectors.History]:
    running = selector.start(context(selector))
    if selector.terms.features:  # two, fewer than rows are chosen; NaN if a score is infinite
        choose, two = running.select, lambda scores: torch.stack([scores.sin(), scores.cos()], 1)
        vars(running)["select"] = lambda scores, *more: choose(scores, *more, two(scores))
    return running, sb.selectors.History(max(1, selector.terms.history))


def select(running, history, scores: torch.Tensor, seed: int) -> sb.selectors.Choice:
    history.file(scores)
    return running.select(scores, history, torch.Generator().manual_seed(seed))


def test_every_selector_is_public_and_listed_here():
    own = final_classes(sb.selectors.AbstractSelector)
    assert own == public_classes(sb.selectors.AbstractSelector) == {*map(type, SELECTORS)}


@every_selector
def test_a_specification_is_final_frozen_and_compares_by_value(selector):
    check_specification(selector, sb.selectors.AbstractSelector)


@every_selector
@few
@given(values=windows, seed=seeds)
def test_rows_are_valid_and_ascending_and_as_many_as_promised_with_weights_of_their_own(
    selector, values, seed
):
    scores, terms = torch.tensor(values), selector.terms
    running, history = begin(selector)
    rows, weights = select(running, history, scores, seed)
    assert rows.dtype == torch.int64
    assert rows.tolist() == sorted(rows.tolist())
    assert set(rows.tolist()) <= set(range(len(values)))
    if not isinstance(selector, sb.selectors.Proportional):
        assert len(set(rows.tolist())) == len(rows)
    if weights is not None:
        assert weights.shape == rows.shape
        assert weights.is_floating_point()
        assert bool((weights > 0).all())
    if terms.draw is sb.selectors.Draw.EXACT:
        assert len(rows) == context(selector).quota(len(values))
    if not terms.promises:  # what is unknown is kept
        assert set(scores.isposinf().nonzero().flatten().tolist()) <= set(rows.tolist())
    assert select(*begin(selector), scores, seed).rows.tolist() == rows.tolist()


@every_selector
@pytest.mark.parametrize("past", [0, 64])
def test_no_candidates_are_no_rows(selector, past):
    running, history = begin(selector)
    history.file(torch.rand(past))
    rows, weights = select(running, history, torch.empty(0), seed=0)
    assert rows.tolist() == [] == ([] if weights is None else weights.tolist())


@every_selector
def test_chance_repeated_rows_and_weights_are_where_the_terms_say_so_and_nowhere_else(selector):
    scores = torch.rand(64)
    found = [select(*begin(selector), scores, seed) for seed in range(10)]
    drawn = [tuple(choice.rows.tolist()) for choice in found]
    by_chance = not isinstance(selector, WITHOUT_CHANCE) and selector.terms.rate < 1
    assert (len(set(drawn)) > 1) == by_chance
    repeats = any(len(set(rows)) < len(rows) for rows in drawn)
    assert repeats == isinstance(selector, sb.selectors.Proportional)
    assert all((choice.weights is not None) == selector.terms.reweights for choice in found)


@every_selector
def test_scores_history_and_global_streams_are_left_alone(selector):
    running, history = begin(selector)
    scores = torch.rand(64)
    history.file(scores)
    before = scores.clone(), history.recent.clone(), len(history), streams()
    for _ in range(3):
        running.select(scores, history, torch.Generator())
    assert torch.equal(scores, before[0])
    assert torch.equal(history.recent, before[1])
    assert (len(history), streams()) == before[2:]


@every_selector
def test_the_rate_is_about_what_was_promised(selector):
    if not selector.terms.promises:
        return
    generator = torch.Generator().manual_seed(0)
    running, history = begin(selector)
    window = max(BATCH, round(BATCH / selector.terms.rate))
    history.file(torch.rand(history.capacity, generator=generator))
    kept = 0
    for _ in range(150):
        scores = torch.rand(window, generator=generator)
        history.file(scores)
        kept += len(running.select(scores, history, generator).rows)
    assert kept / (150 * window) == pytest.approx(selector.terms.rate, abs=0.02)


def is_biased(selector, windows, values, generator, draws) -> bool:
    """Whether the weighted mean over kept rows is off the mean over all, beyond chance.

    Kept rows fill training batches, so it is the mean over the rows of all draws that a loop
    trains on: `(weights * values).mean()`, batch after batch.
    """
    (running, history), sums, kept, means = begin(selector), [], [], []
    for _ in range(draws):
        window = windows()
        history.file(window)
        rows, weights = running.select(window, history, generator)
        weights = torch.ones(len(rows)) if weights is None else weights
        sums.append(weights.double() @ values(window)[rows])
        means.append(values(window).mean(0))
        kept.append(len(rows))
    sums, means, kept = torch.stack(sums), torch.stack(means), torch.tensor(kept).double()
    found = sums.sum(0) / kept.sum()
    scatter = (sums - found * kept[:, None]) / kept.mean() - (means - means.mean(0))
    error = scatter.std(0) / draws**0.5
    return bool(((found - means.mean(0)).abs() > 4 * error + 1e-6).any())  # float32 weights


@pytest.mark.parametrize("selector", [*WEIGHTED, *TELL_TALE], ids=repr)
def test_weights_make_the_mean_unbiased_unless_it_is_biased_on_purpose(selector):
    generator = torch.Generator().manual_seed(0)
    window = partial(torch.rand, 64, generator=generator)
    biased = is_biased(selector, window, lambda s: s.double().square()[:, None], generator, 600)
    assert biased == (selector in BIASED_ON_PURPOSE)


@every_selector
def test_a_selector_goes_on_where_its_state_was_taken_and_knows_of_no_other_training(
    selector, tmp_path
):
    generator = torch.Generator().manual_seed(0)
    (running, history), (resumed, remembered) = begin(selector), begin(selector)
    first, *windows = torch.rand(7, 64, generator=generator)
    expected = select(*begin(selector), first, 9).rows.tolist()
    for seed, scores in enumerate(windows[:3]):
        select(running, history, scores, seed)
    assert select(*begin(selector), first, 9).rows.tolist() == expected
    torch.save((running.state_dict(), history.state_dict()), tmp_path / "state")
    state, past = torch.load(tmp_path / "state", weights_only=True)
    resumed.load_state_dict(state)
    remembered.load_state_dict(past)
    for seed, scores in enumerate(windows[3:]):
        expected = select(running, history, scores, seed).rows.tolist()
        assert select(resumed, remembered, scores, seed).rows.tolist() == expected
