"""A budget of noise lets as many learned examples be skipped as it pays for, and no others."""

import math

import pytest
import reference
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb

ANY = sb.selectors.Context(batch_size=4, window=None)
losses = st.floats(-1, 4, width=32) | st.sampled_from([0.0, 1e-6, 1e-3])


def remember(known):
    history = sb.selectors.History(max(1, len(known)))
    history.file(torch.tensor(known))
    return history


def skip(selector, scores, known, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return selector.start(ANY).select(torch.tensor(scores), remember(known), generator)


def odds_of(selector, score, known):
    """How often a candidate is kept."""
    rows, _ = skip(selector, [score] * 4000, known)
    return len(rows) / 4000


@given(
    st.lists(losses, min_size=1, max_size=30),
    st.lists(losses, max_size=30),
    st.sampled_from([0.01, 0.1, 1.0]),
    st.sampled_from([0.02, 0.25, 1.0]),
    st.integers(0, 2**32),
)
def test_rows_and_weights_are_the_plain_rules(scores, known, noise, floor, seed):
    generator = torch.Generator().manual_seed(seed)
    tosses = torch.rand(len(scores), generator=generator, dtype=torch.float64).tolist()
    odds = [reference.budget_odds(loss, known, noise, floor) for loss in scores]
    rows, weights = skip(
        sb.selectors.NoiseBudget(noise, floor, correction=0.5), scores, known, seed
    )
    near = [
        row for row, (p, toss) in enumerate(zip(odds, tosses, strict=True)) if abs(p - toss) < 1e-9
    ]
    assert set(rows.tolist()) ^ set(reference.toss_coins(odds, tosses)) <= set(near)
    expected = [reference.budget_weight(scores[row], known, noise, floor, 0.5) for row in rows]
    assert weights.tolist() == pytest.approx(expected, rel=1e-4)


def test_odds_by_hand():
    # Pulls of 0.1 and, three of four, of a half: t = 0.1 + 0.1 * (0.01 + 0.75) / 0.1 > 1/2.
    known = [-math.log(0.9), math.log(2), math.log(2), math.log(2)]
    assert odds_of(sb.selectors.NoiseBudget(0.1), known[0], known) == pytest.approx(0.2, abs=0.03)
    # A tenth of it: t = 0.1 + 0.01 * 0.76 / 0.1 = 0.176.
    assert odds_of(sb.selectors.NoiseBudget(0.01), known[0], known) == pytest.approx(
        0.568, abs=0.03
    )
    assert odds_of(sb.selectors.NoiseBudget(0.01), known[1], known) == 1.0


@pytest.mark.parametrize("loss", [1e-4, 0.05, 0.5, 2.3])
def test_where_all_are_alike_hardly_any_is_skipped(loss):
    kept = odds_of(sb.selectors.NoiseBudget(0.1), loss, [loss] * 100)
    assert kept == pytest.approx(1 / 1.1 if loss < 0.6 else 1.0, abs=0.02)


def test_where_most_are_learned_most_are_skipped_and_what_is_not_is_kept():
    known = [1e-3] * 95 + [1.5] * 5
    assert odds_of(sb.selectors.NoiseBudget(0.1, floor=0.02), 1e-3, known) == pytest.approx(
        0.02, abs=0.01
    )
    assert odds_of(sb.selectors.NoiseBudget(0.1, floor=0.02), 1.5, known) == 1.0


def test_labels_that_stay_hard_count_as_an_even_chance_does():
    even, hopeless = ([0.05] * 60 + [hard] * 40 for hard in (math.log(2), 50.0))
    kept = [
        skip(sb.selectors.NoiseBudget(0.01), [0.05] * 500, each).rows for each in (even, hopeless)
    ]
    assert kept[0].tolist() == kept[1].tolist()


@pytest.mark.parametrize("known", [[], [0.05] * 60 + [1.0] * 40])
def test_what_is_unknown_is_always_kept_and_weighs_as_what_is_hard_does(known):
    rows, weights = skip(sb.selectors.NoiseBudget(), [torch.inf, 5.0] * 25, known)
    assert rows.tolist() == list(range(50))
    assert len(set(weights.tolist())) == 1
    assert float(weights[0]) == 1.0 if not known else float(weights[0]) < 1.0


def test_where_nothing_is_left_to_learn_the_floor_holds():
    assert odds_of(sb.selectors.NoiseBudget(floor=0.25), 0.0, [0.0] * 50) == pytest.approx(
        0.25, abs=0.03
    )


@pytest.mark.parametrize("correction", [0.0, 0.5, 1.0])
def test_weights_undo_as_much_of_the_draw_as_is_asked_for(correction):
    known = [0.05] * 60 + [1.0] * 40
    selector = sb.selectors.NoiseBudget(correction=correction)
    easy, hard = (skip(selector, [loss] * 50, known).weights for loss in (0.05, 1.0))
    odds = reference.budget_odds(0.05, known, 0.1, 0.1)
    assert len(set(easy.tolist())) == len(set(hard.tolist())) == 1
    assert float(easy[0] / hard[0]) == pytest.approx(odds**-correction, rel=1e-5)


@pytest.mark.parametrize("correction", [0.0, 0.5, 1.0])
def test_steps_are_as_long_as_if_nothing_had_been_skipped(correction):
    losses = 3.0 * torch.rand(20_000, generator=torch.Generator().manual_seed(1)) ** 6
    rows, weights = skip(
        sb.selectors.NoiseBudget(correction=correction), losses.tolist(), losses.tolist()
    )
    errors = 1.0 - torch.exp(-losses)
    assert len(rows) < 0.6 * len(losses)
    assert float((weights * errors[rows]).mean()) == pytest.approx(float(errors.mean()), rel=0.02)


def test_what_was_given_up_is_not_kept_and_leaves_the_budget_to_the_others():
    known = [0.05] * 60 + [1.0] * 40
    lost = [*known, *[-torch.inf] * 100]
    assert odds_of(sb.selectors.NoiseBudget(), -torch.inf, lost) == 0.0
    assert odds_of(sb.selectors.NoiseBudget(), 0.05, lost) == odds_of(
        sb.selectors.NoiseBudget(), 0.05, known
    )


def test_the_budget_follows_what_is_remembered():
    running = sb.selectors.NoiseBudget(correction=1.0).start(ANY)
    history, generator = sb.selectors.History(100), torch.Generator().manual_seed(0)
    history.file(torch.full((100,), 0.05))
    alike = running.select(torch.full((200,), 0.05), history, generator).rows
    history.file(torch.full((60,), 3.0))
    mixed = running.select(torch.full((200,), 0.05), history, generator).rows
    assert len(mixed) < 50 < 150 < len(alike)
