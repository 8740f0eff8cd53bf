"""Answers are told apart by their rewards; prompts that taught nothing rest, and come back."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb

groups = st.integers(1, 7).flatmap(
    lambda answers: st.lists(
        st.lists(st.integers(-3, 3).map(float), min_size=answers, max_size=answers),
        min_size=1,
        max_size=4,
    )
)


def test_equal_rewards_are_told_by_what_they_are_and_not_by_their_mean():
    rewards = torch.tensor([[0.1] * 11, [0.1] * 10 + [0.2]])
    advantages = rewards - rewards.mean(1, keepdim=True)
    assert advantages[0].count_nonzero()
    assert sb.informative(rewards).tolist() == [[False] * 11, [True] * 11]
    assert sb.informative(torch.tensor([[1, 1], [0, 1]])).tolist() == [[False] * 2, [True] * 2]
    assert sb.informative(torch.tensor([[True, False]])).tolist() == [[True, True]]
    large = torch.tensor([[2**24, 2**24 + 1], [9, 9]])
    assert sb.informative(large).all(1).tolist() == [True, False]


def test_answers_without_a_reward_neither_differ_nor_are_trained_on():
    nan = math.nan
    rewards = torch.tensor([[1.0, nan, 1.0], [1.0, nan, 0.0], [nan, nan, nan], [nan, 2.0, nan]])
    none, both = [False] * 3, [True, False, True]
    assert sb.informative(rewards).tolist() == [none, both, none, none]


def test_a_band_of_pass_rates_leaves_out_what_is_nearly_always_or_hardly_ever_solved():
    rewards = torch.tensor([[1.0] * n + [0.0] * (10 - n) for n in range(11)])
    kept = sb.informative(rewards, pass_rate=(0.2, 0.8)).all(1)
    assert kept.nonzero().flatten().tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert sb.informative(rewards).all(1).sum() == 9
    assert sb.informative(rewards, pass_rate=(0, 1)).all(1).sum() == 9  # equal ones are never kept


@given(groups, st.data())
def test_answers_of_highest_variance_are_those_of_the_best_of_all_subsets(rewards, data):
    """The plain twin tries every subset of a group."""
    keep = data.draw(st.integers(1, len(rewards[0])))
    chosen = sb.max_variance(torch.tensor(rewards), keep)
    assert chosen.sum(1).tolist() == [keep] * len(rewards)

    def variance(some):
        mean = sum(some) / keep
        return sum((each - mean) ** 2 for each in some) / keep

    for group, mask in zip(rewards, chosen.tolist(), strict=True):
        best = max(variance(some) for some in itertools.combinations(group, keep))
        assert variance([*itertools.compress(group, mask)]) == pytest.approx(best, abs=1e-5)


def test_of_rewards_far_from_zero_the_variance_is_found_too():
    rewards = torch.tensor([[1e4 + 0.25, 1e4, 1e4 + 1.0, 1e4 + 0.5]])
    assert sb.max_variance(rewards, 2).tolist() == [[False, True, True, False]]


TWO = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sb.informative(torch.ones(3)), sb.LossError, r"\(3,\).*\[prompt, answer\]"),
        (lambda: sb.informative([[1.0]]), sb.LossError, "no tensor"),
        (lambda: sb.max_variance(torch.ones(2, 0), 1), sb.LossError, r"\(2, 0\)"),
        (lambda: sb.max_variance(TWO, 4), sb.ConfigurationError, r"keep=4.*\[1, 3\]"),
        (lambda: sb.max_variance(TWO * math.nan, 1), sb.LossError, "not finite"),
        (lambda: sb.informative(TWO, pass_rate=(0.8, 0.2)), sb.ConfigurationError, "the lower"),
        (lambda: sb.informative(TWO, pass_rate=0.2), sb.ConfigurationError, "a pair"),
    ],
)
def test_what_are_no_groups_or_no_numbers_in_range_is_refused(call, error, message):
    with unhooked(), pytest.raises(error, match=message):
        call()


def test_prompts_that_taught_nothing_come_less_often_and_always_come_back():
    resting = sb.RestingPrompts(8, explore=0.5, least=0.1)
    first = [*resting]
    assert sorted(first) == [*range(8)]
    assert first != [*range(8)] != [*resting]
    nothing, something = torch.ones(1, 4), torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    for prompt in range(5):
        for _ in range(prompt):
            resting.record(torch.tensor([prompt]), nothing)
    assert resting.odds.tolist() == pytest.approx([1, 0.5, 0.25, 0.125, 0.1, 1, 1, 1])
    drawn = torch.tensor([*itertools.chain.from_iterable(resting for _ in range(4000))])
    shares = torch.bincount(drawn, minlength=8) / 4000
    assert shares.tolist() == pytest.approx(resting.odds.tolist(), abs=0.03)
    resting.record(torch.tensor([4, 5]), torch.cat([something, nothing]))
    assert resting.odds.tolist() == pytest.approx([1, 0.5, 0.25, 0.125, 1, 0.5, 1, 1])
    resting.record(torch.tensor([1, 7]), torch.tensor([True, False]))
    assert resting.odds.tolist() == pytest.approx([1, 1, 0.25, 0.125, 1, 0.5, 1, 0.5])


def test_all_results_of_a_prompt_that_comes_twice_count():
    resting = sb.RestingPrompts(4, least=0.05)
    taught = torch.tensor([False, False, True, False, False, True])
    resting.record(torch.tensor([1, 1, 2, 2, 3, 3]), taught)
    assert resting.odds.tolist() == [1, 0.25, 1, 1]
    resting.record(torch.tensor([1, 2], dtype=torch.int32), torch.zeros(2, 4))
    assert resting.odds.tolist() == [1, 0.125, 0.5, 1]


def test_a_pass_in_which_all_rest_has_the_prompt_of_the_highest_odds():
    resting = sb.RestingPrompts(2, explore=1e-6, least=1e-9)
    resting.record(torch.tensor([0, 1]), torch.zeros(2, 3))
    resting.record(torch.tensor([0]), torch.zeros(1, 3))
    assert [*resting] == [1]


def test_a_loader_draws_by_it_and_goes_on_from_a_saved_state():
    resting = sb.RestingPrompts(8, seed=3)
    loader = DataLoader(torch.arange(8), 3, sampler=resting)
    resting.record(torch.cat([*loader]), torch.zeros(8, 2))
    again = sb.RestingPrompts(8, seed=3)
    again.load_state_dict(resting.state_dict())
    assert [[*resting] for _ in range(5)] == [[*again] for _ in range(5)]
    assert [*sb.RestingPrompts(8, seed=3)] != [*sb.RestingPrompts(8, seed=4)]


def test_a_state_or_prompts_of_another_size_are_refused_and_change_nothing():
    resting = sb.RestingPrompts(8)
    with pytest.raises(sb.ConfigurationError, match='"visits"'):
        resting.load_state_dict(sb.RestingPrompts(7).state_dict())
    with pytest.raises(sb.ConfigurationError, match='"passes"'):
        resting.load_state_dict({"visits": torch.ones(8, dtype=torch.int64), "passes": -1})
    with pytest.raises(sb.ConfigurationError, match=r"prompts 3 to 8, .*only prompts 0 to 7"):
        resting.record(torch.tensor([3, 8]), torch.zeros(2, 2))
    with pytest.raises(sb.LossError, match="2 prompts for 1"):
        resting.record(torch.tensor([3]), torch.zeros(2, 2))
    assert resting.odds.tolist() == [1.0] * 8
