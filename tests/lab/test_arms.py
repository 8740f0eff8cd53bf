import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop.lab.arms import ARMS, DEFAULT_ARMS, Settings, make_strategy, parse_arms

CHOSEN = Settings(rate=1 / 4, draw=sb.Draw.BERNOULLI, warmup=0.3, history=77)


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_is_called_what_its_strategy_is_called(name):
    assert make_strategy(name, Settings()).name == name


def test_by_default_the_method_stands_beside_its_controls():
    controls = {"traditional", "random-backprop", "random-scored"}
    assert set(DEFAULT_ARMS) == controls | {"selective-backprop"}
    assert DEFAULT_ARMS[0] == "traditional"


@pytest.mark.parametrize(
    ("name", "scorer", "selector"),
    [
        ("traditional", None, sb.Everything()),
        ("random-backprop", None, sb.Uniform(1 / 4, sb.Draw.BERNOULLI)),
        ("random-scored", sb.Forward(), sb.Uniform(1 / 4, sb.Draw.BERNOULLI)),
        ("selective-backprop", sb.Forward(), sb.Percentile(3.0, sb.Draw.BERNOULLI, 77)),
        ("top-k", sb.Forward(), sb.Top(1 / 4)),
        ("low-k", sb.Forward(), sb.Bottom(1 / 4)),
    ],
)
def test_an_arm_scores_and_selects_as_its_settings_say(name, scorer, selector):
    strategy = make_strategy(name, CHOSEN)
    assert (strategy.scorer, strategy.selector) == (scorer, selector)


@pytest.mark.parametrize("name", ARMS)
def test_what_chooses_by_score_warms_up_for_a_fraction_of_the_run_and_nothing_else_does(name):
    by_score = {"selective-backprop", "top-k", "low-k"}
    expected = sb.Schedule(warmup_epochs=0, start=0.3 if name in by_score else 0.0)
    assert make_strategy(name, CHOSEN).schedule == expected


@given(st.floats(allow_nan=True).filter(lambda rate: not 0.0 < rate <= 1.0))
@example(0.0)
@example(math.nextafter(1.0, 2.0))
def test_a_rate_out_of_range_is_refused_whatever_the_arm(rate):
    with pytest.raises(sb.ConfigurationError, match=r"^rate=.*\(0, 1\]"):
        Settings(rate=rate)


@given(st.floats(allow_nan=True).filter(lambda warmup: not 0.0 <= warmup < 1.0))
@example(1.0)
@example(math.nextafter(0.0, -1.0))
def test_a_warm_up_out_of_range_is_refused_whatever_the_arm(warmup):
    with pytest.raises(sb.ConfigurationError, match=r"^warmup=.*\[0, 1\)"):
        Settings(warmup=warmup)


@given(st.floats(0.0, 1.0, exclude_min=True), st.floats(0.0, 1.0, exclude_max=True))
def test_all_other_rates_and_warm_ups_make_every_arm(rate, warmup):
    settings = Settings(rate=rate, warmup=warmup)
    if math.isinf(1.0 / rate):
        return  # the smallest floats have no selectivity
    assert all(make_strategy(name, settings) for name in ARMS)


def test_an_unknown_arm_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(sb.ConfigurationError, match="'selective'") as refusal:
        make_strategy("selective", Settings())
    assert all(name in str(refusal.value) for name in ARMS)


@pytest.mark.parametrize(
    ("text", "arms"),
    [
        ("traditional", ("traditional",)),
        ("top-k,traditional", ("top-k", "traditional")),
        (" top-k , ,traditional,top-k,", ("top-k", "traditional")),
        (" all ", tuple(ARMS)),
    ],
)
def test_a_list_of_arms_is_read_in_its_order_without_repetition(text, arms):
    assert parse_arms(text) == arms


@pytest.mark.parametrize("text", ["", " ", ",,"])
def test_a_list_that_names_no_arm_is_refused(text):
    with pytest.raises(sb.ConfigurationError, match="no strategy is named"):
        parse_arms(text)


def test_a_list_with_one_unknown_arm_is_refused_by_that_name():
    with pytest.raises(sb.ConfigurationError, match="'topk'"):
        parse_arms("traditional,topk,all")
