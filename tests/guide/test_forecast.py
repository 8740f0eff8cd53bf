"""An epoch is put together from loops by plain arithmetic."""

from dataclasses import replace

import pytest

import selective_backprop as sb
from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._forecast import Ingredients, foresee
from selective_backprop.guide._mixes import Mix, list_mixes, written
from selective_backprop.guide._redundancy import Redundancy
from selective_backprop.guide._scorers import CheapScorer
from selective_backprop.guide._spending import Spent
from selective_backprop.guide._worth import forecast_worth

# Seconds of what was timed: three plain batches, two of each other kind.
ROUND = {
    "traditional": Spent({"load": 3.0, "forward": 6.0, "backward": 9.0}, steps=3),
    "random": Spent({"load": 2.0, "forward": 4.0, "backward": 6.0}, steps=2),
    "scored": Spent({"load": 6.0, "score": 12.0, "forward": 4.0, "backward": 6.0}, steps=2),
    "recalled": Spent({"load": 2.0, "select": 1.0, "forward": 4.0, "backward": 6.0}, steps=2),
    "scorer forward": Spent({"score": 8.0}, scored=8),
    "scorer int8": Spent({"score": 4.0}, scored=8),
}
SIZES = Ingredients(batch_size=2, window=6, examples=60)  # 30 batches, 10 windows
TRAITS = DataTraits(
    **(
        dict.fromkeys(DataTraits.__dataclass_fields__)
        | {"sample": 60, "classes": 2, "effective_classes": 2.0, "remarks": (), "seconds": 1.0}
    )
)
CHEAP = {
    "int8": CheapScorer(
        sb.experimental.Int8(sb.scorers.Forward(), check=None),
        "sb.experimental.Int8(sb.scorers.Forward())",
    )
}


def seconds(name: str, ingredients: Ingredients = SIZES, found=ROUND) -> float:
    mixes = list_mixes(1 / 3, CHEAP, indexed=True, redundancy=None)
    return sum(ingredients.epoch(mixes[name], found).values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("traditional", 30 * 6.0),
        ("random-backprop", 10 * 6.0),
        ("selective-backprop", 10 * 14.0),
        ("int8-sb", 10 * (14.0 - 6.0 / 2)),  # half the cost of exact scores
        ("stale-sb", 10 * (14.0 / 3 + 2 / 3 * 6.5)),
        ("int8-stale-sb", 10 * (11.0 / 3 + 2 / 3 * 6.5)),
        ("recorded-sb", 10 * 6.5),
    ],
)
def test_an_epoch_takes_what_its_windows_take(name, expected):
    assert seconds(name) == pytest.approx(expected)


def test_an_epoch_scored_beside_training_is_made_up_of_a_loop_of_its_own():
    beside = {"pipelined": replace(CHEAP["int8"], overlaps=True)}
    mixes = list_mixes(1 / 3, beside, indexed=True, redundancy=None)
    found = ROUND | {"pipelined": Spent({"load": 6.0, "backward": 8.0}, steps=2)}
    mix = mixes["pipelined-sb"]
    assert sum(SIZES.epoch(mix, found).values()) == pytest.approx(10 * 7.0)
    assert (SIZES.scored(mix), SIZES.loaded(mix), SIZES.trained(mix)) == (60, 60, 20)
    assert "pipelined-stale-sb" not in mixes


def test_an_epoch_s_start_is_charged_once_and_in_a_cycle_in_its_share():
    ingredients = Ingredients(2, 6, 60, {"traditional": 5.0, "scored": 3.0, "recalled": 9.0})
    assert seconds("traditional", ingredients) == pytest.approx(185)
    assert seconds("stale-sb", ingredients) - seconds("stale-sb") == pytest.approx(1 + 6)


def test_what_a_scorer_takes_besides_is_charged_in_exact_passes():
    ingredients = Ingredients(2, 6, 60, beside={"int8": 0.25})
    assert seconds("int8-sb", ingredients) - seconds("int8-sb") == pytest.approx(10 * 6 / 4)


def test_workers_are_waited_for_where_loading_takes_longer_than_all_else():
    # A batch of 2 takes them 4 s; without loading, a plain epoch takes 150 s and SB's 110.
    ingredients = Ingredients(2, 6, 60, loading=(4.0, 7.0))
    assert seconds("traditional", ingredients) == pytest.approx(150 + 7)  # 120 s are hidden
    assert seconds("selective-backprop", ingredients) == pytest.approx(110 + 7 + 10)
    assert seconds("random-backprop", ingredients) == pytest.approx(50 + 7)  # 40 s are hidden


def test_ratios_are_taken_within_rounds_and_a_training_counts_what_does_not_select():
    slow = {
        name: Spent({p: 3 * s for p, s in each.phases.items()}, each.scored, each.steps)
        for name, each in ROUND.items()
    }
    mixes = list_mixes(1 / 3, {}, indexed=True, redundancy=None)
    found = foresee(mixes, SIZES, [ROUND, slow], 4, TRAITS)
    ours = found["selective-backprop"]
    assert (ours.relative.low, ours.relative.high) == pytest.approx((7 / 9, 7 / 9))
    assert (ours.seconds.low, ours.seconds.high) == pytest.approx((140, 420))
    assert ours.training == pytest.approx((1 + 3 * 7 / 9) / 4)  # the first epoch keeps everything
    assert found["random-backprop"].training == pytest.approx(1 / 3)
    assert foresee(mixes, SIZES, [ROUND], None, TRAITS)["stale-sb"].training is None


def test_a_worth_at_equal_seconds_is_less_what_an_epoch_takes_beyond_its_rows():
    mixes = list_mixes(1 / 3, {}, indexed=True, redundancy=None)
    found = foresee(mixes, SIZES, [ROUND], 4, TRAITS)
    ours = found["recorded-sb"]
    assert ours.worth == forecast_worth("recorded-sb", TRAITS, 4)
    assert ours.share == pytest.approx(1 / 3)
    assert ours.worth is not None
    assert ours.pays is not None
    for end in ("times", "low", "high"):  # of 6.0, it takes 6.5
        assert getattr(ours.pays, end) == pytest.approx(getattr(ours.worth, end) / (65 / 60))
    assert found["predicted-sb"].pays is None  # of which no worth is on record


def test_what_is_kept_by_loss_follows_from_the_losses():
    losses = tuple(float(number) for number in range(21))  # mean 10
    redundancy = Redundancy(1, 60, 1 / 3, losses, *[0.5] * 6)
    mixes = list_mixes(1 / 3, {}, indexed=True, redundancy=redundancy)
    assert mixes["infobatch"].parts["recalled"] / 3 == pytest.approx(1 - 0.5 * 0.475)
    assert mixes["easy-skip"].parts["recalled"] / 3 == pytest.approx((0.25 / 2 + 19.5) / 20)
    assert mixes["auto"].parts["recalled"] / 3 == pytest.approx((0.1 / 2 + 19.5) / 20)
    for name in ("easy-skip", "infobatch", "auto"):
        assert mixes[name].varies
        assert mixes[name].weighs == (name != "auto")
        assert mixes[name].records


def test_without_indices_nothing_is_selected_before_loading():
    assert set(list_mixes(1 / 3, CHEAP, indexed=False, redundancy=None)) == {
        "traditional",
        "random-scored",
        "selective-backprop",
        "int8-sb",
    }


@pytest.mark.parametrize(
    ("rate", "code"),
    [(1 / 3, "rate=1 / 3"), (0.25, "rate=1 / 4"), (1, "rate=1"), (0.7071, "rate=0.7071")],
)
def test_a_rate_is_written_as_people_write_it(rate, code):
    assert written(rate) == code
    assert eval(written(rate).removeprefix("rate=")) == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("scorers", [{}, CHEAP])
def test_the_code_of_each_strategy_makes_that_strategy(scorers):
    redundancy = Redundancy(1, 60, 1 / 3, (1.0, 2.0), *[0.5] * 6)
    for name, mix in list_mixes(1 / 3, scorers, indexed=True, redundancy=redundancy).items():
        made = eval(mix.code, {"sb": sb})
        assert isinstance(mix, Mix)
        assert made.selector == mix.strategy.selector, name
        assert made.schedule == mix.strategy.schedule, name
        assert type(made.scorer) is type(mix.strategy.scorer), name
