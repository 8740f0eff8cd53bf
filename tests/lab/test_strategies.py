import math
from dataclasses import replace

import pytest
import torch
from discovery import strategies
from fixture_lab import fixture_plan
from torch import nn
from torch.nn.functional import cross_entropy

import selective_backprop as sb
from selective_backprop_lab.preparation import Preparation, focal, generalised, trimmed
from selective_backprop_lab.strategies import (
    BOUNDS,
    STRATEGIES,
    StrategyOptions,
    find_strategy,
    parse_strategies,
)

CHOSEN = StrategyOptions(rate=1 / 4, draw=sb.selectors.Draw.BERNOULLI, warmup=0.3, history=77)
FITTED = Preparation(
    subset=sb.Subset(torch.arange(3), 8),
    reference=sb.scorers.ReferenceLosses(torch.ones(8)),
    proxy=(lambda: nn.Linear(2, 2), torch.optim.SGD),
)
PRUNED = {"diet-sb", "el2n", "el2n-random", "grand"}
KEPT = PRUNED | {"oracle", "cleaned", "unique"}
UNWARMED = {"traditional", "random-backprop", "random-scored", "el2n", "el2n-random", "grand"}
UNWARMED |= {"reseeded", "oracle", "cleaned", "unique", "stale-sb-released"}
OWN_SCHEDULE = {"kath18", "kath18-loss-gated", "kath18-published", "infobatch", "easy-skip"}
OWN_SCHEDULE |= {"auto", "auto-trim", "auto-brief"}


def strategy(name, chosen=CHOSEN):
    return find_strategy(name).make(chosen, FITTED)


def test_every_strategy_of_the_library_can_be_compared():
    names = {name.replace("_", "-") for name in strategies()}
    assert names - {"pruned"} <= set(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_pruning_leaves_is_what_the_pruned_arms_train_on_and_no_other(name):
    assert strategy(name).subset == (FITTED.subset if name in KEPT else None)


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in OWN_SCHEDULE])
def test_what_chooses_by_score_warms_up_for_a_fraction_of_the_run_and_nothing_else_does(name):
    expected = sb.Schedule(warmup_epochs=0, start=0.0 if name in UNWARMED else 0.3)
    assert strategy(name).schedule == expected


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("rate", 0.0, r"^rate=0.*\(0, 1\]"),
        ("warmup", 1.0, r"^warmup=1.*\[0, 1\)"),
        ("random_warmup", 1.0, r"^random_warmup=1.*\[0, 1\)"),
        ("keep", math.nan, r"^keep=nan.*\(0, 1\]"),
        ("young", 1.0, r"^young=1.*\(0, 1\)"),
        ("stale", 1, r"^stale=1: .* at least 2"),
        ("models", 0, r"^models=0: .* at least 1"),
    ],
)
def test_settings_out_of_range_are_refused_whatever_the_arm(name, wrong, said):
    with pytest.raises(sb.ConfigurationError, match=said):
        StrategyOptions(**{name: wrong})


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_rate_of_everything_makes_every_arm_but_those_that_draw_from_more_than_a_batch(name):
    if name in ("kath18", "kath18-loss", "kath18-loss-gated"):
        with pytest.raises(sb.ConfigurationError, match=r"presample=1\.0"):
            fixture_plan(name, rate=1.0)
    else:
        assert strategy(name, StrategyOptions(rate=1.0))


BY_LOSS = {name for name in STRATEGIES if name not in UNWARMED | OWN_SCHEDULE}
STALE = {"stale-sb", "stale-sb-spread", "predicted-sb", "predicted-sb-gp", "predicted-sb-crossing"}
WARMED = STALE | {"selective-backprop", "diet-sb", "proxy-sb"}
STALE, RANKED = (each | {"stale-sb-released"} for each in (STALE, WARMED))
DRAWN = WARMED | {"random-backprop", "random-scored", "recorded-sb", "el2n-random"}
RATED = (DRAWN | RANKED | BY_LOSS | {"kath18", "kath18-loss-gated"}) - {"kakurenbo"}


@pytest.mark.parametrize(
    ("name", "value", "concerned"),
    [
        ("rate", 1 / 3 + 1e-12, RATED),
        ("draw", sb.selectors.Draw.BERNOULLI, DRAWN),
        ("warmup", 0.1 + 1e-12, BY_LOSS),
        ("random_warmup", 0.1, {"random-backprop", "random-scored", "el2n-random"}),
        ("history", 1025, RANKED),
        ("stale", 4, STALE),
        ("keep", 0.7 + 1e-12, PRUNED),
        ("models", 3, PRUNED),
        ("young", 0.1 + 1e-12, PRUNED | {"rho-loss", "rho-loss-shared", "cleaned"}),
    ],
)
def test_an_option_makes_another_run_of_the_arms_that_use_it_alone(name, value, concerned):
    one, other = StrategyOptions(), StrategyOptions(**{name: value})
    named = {
        arm
        for arm in STRATEGIES
        if replace(fixture_plan(arm), settings=one).record_name
        != replace(fixture_plan(arm), settings=other).record_name
    }
    assert named == concerned
    made = {arm for arm in STRATEGIES if repr(strategy(arm, one)) != repr(strategy(arm, other))}
    if name not in {"keep", "models", "young"}:  # which show in what is prepared
        assert made == concerned


def test_a_list_of_arms_is_read_in_its_order_without_repetition():
    assert parse_strategies(" top-k , ,traditional,top-k,") == ("top-k", "traditional")
    assert {*parse_strategies(" all ")} == STRATEGIES.keys() - BOUNDS


@pytest.mark.parametrize(("text", "message"), [(",,", "no strategy"), ("top-k,topq,all", "'topq'")])
def test_a_list_that_names_none_or_an_unknown_one_is_refused(text, message):
    with pytest.raises(sb.ConfigurationError, match=message):
        parse_strategies(text)


def batch(rows=20):
    draw = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(rows, 5, generator=draw, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(5, (rows,), generator=draw)


def test_the_focal_loss_is_the_papers_and_its_gradient_is_finite_where_nothing_is_left():
    logits, targets = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    p = logits.softmax(1).gather(1, targets[:, None])[:, 0]
    assert torch.allclose(focal(logits, targets, 0.0), -((1 - p) ** 2) * p.log())
    sure = torch.tensor([[99.0, 0.0]], requires_grad=True)
    focal(sure, torch.tensor([0]), 0.0).sum().backward()
    assert sure.grad.isfinite().all()


def test_the_generalised_loss_is_the_papers_and_goes_over_into_cross_entropy():
    logits, targets = batch()
    p = logits.softmax(1)[torch.arange(20), targets]
    assert torch.allclose(generalised(logits, targets, 0.0, q=0.3), (1 - p**0.3) / 0.3)
    plain = cross_entropy(logits, targets, reduction="none")
    assert torch.allclose(generalised(logits, targets, 0.0, q=1e-9), plain)


@pytest.mark.parametrize(
    ("progress", "left_out"), [(0.0, 0), (0.25, 0), (0.325, 2), (0.4, 4), (1.0, 4)]
)
def test_trimming_leaves_out_the_highest_losses_once_it_has_begun(progress, left_out):
    logits, targets = batch()
    plain = cross_entropy(logits, targets, reduction="none")
    kept = plain.detach().argsort()[: 20 - left_out]
    found = trimmed(logits, targets, progress, share=0.2)
    assert torch.allclose(found.mean(), plain[kept].mean())
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert {*gradient.abs().sum(1).nonzero()[:, 0].tolist()} == {*kept.tolist()}
