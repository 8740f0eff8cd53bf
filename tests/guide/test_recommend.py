"""What is recommended follows from worths on record, and selecting is no matter of course."""

import pytest

from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._forecast import Forecast
from selective_backprop.guide._mixes import list_mixes
from selective_backprop.guide._recommend import Recommendation, recommend
from selective_backprop.guide._redundancy import Redundancy
from selective_backprop.guide._rounds import summarise
from selective_backprop.guide._worth import WorthForecast


def redundancy(**changed: float) -> Redundancy:
    values = {
        "loss_share": 0.9,
        "gradient_share": 0.8,
        "cosine": 0.9,
        "random_cosine": 0.6,
        "equal_signs": 0.8,
        "random_equal_signs": 0.7,
    }
    return Redundancy(9, 100, 1 / 3, (0.0, 1.0), **(values | changed))


def traits(**found: float | None) -> DataTraits:
    usual = dict.fromkeys(DataTraits.__dataclass_fields__)
    known = {"sample": 1000, "copies": 0.0, "classes": 10, "effective_classes": 9.9}
    return DataTraits(**(usual | known | {"remarks": (), "seconds": 1.0} | found))


def asked(
    worths: dict[str, float],
    *,
    relative: float = 0.5,
    share: float = 0.5,
    found: Redundancy | None = None,
    diverged: bool = False,
    data: DataTraits | None = None,
) -> Recommendation:
    mixes = list_mixes(1 / 3, {}, indexed=True, redundancy=redundancy())
    forecasts = {
        name: Forecast(
            seconds=summarise([1.0]),
            relative=summarise([relative]),
            phases={},
            scored=0,
            loaded=0,
            trained=0,
            share=share,
            varies=mix.varies,
            training=None,
            worth=WorthForecast(worths[name], 0.9, 3.0, ("skewed", "films"))
            if name in worths
            else None,
            code=mix.code,
        )
        for name, mix in mixes.items()
    }
    return recommend(forecasts, mixes, found, traits() if data is None else data, diverged=diverged)


def test_what_is_worth_most_on_data_like_these_is_recommended_with_its_code():
    found = asked({"auto": 1.5, "recorded-sb": 1.4, "infobatch": 0.9}, relative=0.52)
    assert found.strategy == "auto"
    assert "(skewed; films), auto equalled 1.50 times" in found.reasons[0]
    assert "(0.90 to 3.00)" in found.reasons[0]
    assert "takes 52% of a traditional one here, and trains on 50%" in found.reasons[1]
    assert "that is 1.44 times" in found.reasons[1]
    assert found.code[1:] == (
        "loader = sb.SelectiveLoader(train_loader, model, loss_fn, sb.auto())",
        "loss_fn = loader.loss_fn",
        "for inputs, targets in loader:",
    )
    assert asked({"auto": 1.3, "recorded-sb": 1.4}).strategy == "auto"
    assert asked({"auto": 1.3, "recorded-sb": 1.7}).strategy == "recorded-sb"


@pytest.mark.parametrize(
    ("worth", "relative"), [(1.05, 0.5), (1.5, 0.75)], ids=["little gained", "slow here"]
)
def test_what_is_worth_no_more_than_a_tenth_is_not_recommended(worth, relative):
    found = asked({"auto": worth, "infobatch": worth - 0.1}, relative=relative)
    assert (found.strategy, found.code) == (None, ())
    assert f"auto equalled {worth:.2f} times" in found.reasons[0]
    assert any("Train for fewer epochs instead" in each for each in found.reasons)


def test_of_data_that_nothing_on_record_is_like_it_says_that_nobody_knows():
    found = asked({})
    assert (found.strategy, found.code) == (None, ())
    assert "nobody knows" in found.reasons[0]


def test_where_losses_lie_is_told_if_that_was_looked_at():
    said = "33% of the examples with the highest losses supply 80% of the gradient"
    assert any(said in each for each in asked({"auto": 1.5}, found=redundancy()).reasons)
    assert not any("gradient" in each for each in asked({"auto": 1.5}).reasons)


def test_of_a_model_that_diverged_it_says_that_and_argues_from_nothing_else():
    found = asked({"auto": 1.5}, diverged=True)
    assert (found.strategy, found.code) == (None, ())
    (reason,) = found.reasons
    assert reason.startswith("The model diverged")
    assert "Lower the learning rate" in reason


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (traits(copies=0.3), "repetitive"),
        (traits(near_copies=0.3), "repetitive"),
        (traits(effective_classes=6.0), "skewed"),
        (traits(effective_classes=6.0, copies=0.3), "repetitive and skewed"),
    ],
    ids=["copies", "near-copies", "skewed", "both"],
)
@pytest.mark.parametrize("worth", [0.9, 1.5])
def test_of_repetitive_or_skewed_data_it_says_what_can_pay(data, kinds, worth):
    found = asked({"auto": worth}, data=data)
    (said,) = (each for each in found.reasons if each.startswith("The data are"))
    assert said.startswith(f"The data are {kinds}:")
    assert "auto() and recorded_sb()" in said
    assert not any(each.startswith("The data are") for each in asked({"auto": worth}).reasons)


def test_what_needs_a_cross_entropy_is_left_out_where_the_loss_is_none():
    both = [
        list_mixes(1 / 3, {}, indexed=True, redundancy=redundancy(), other_loss=other)
        for other in (False, True)
    ]
    assert set(both[0]) - set(both[1]) == {"auto", "easy-skip"}
