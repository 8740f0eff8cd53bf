"""What is recommended follows from costs and redundancy, and selecting is no matter of course."""

import pytest

from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._forecast import Forecast
from selective_backprop.guide._mixes import list_mixes
from selective_backprop.guide._recommend import Recommendation, recommend
from selective_backprop.guide._redundancy import Redundancy
from selective_backprop.guide._rounds import summarise
from selective_backprop.guide._scorers import CheapScorer
from selective_backprop.scorers import Forward, Int8

INT8 = {"int8": CheapScorer(Int8(Forward(), check=None), "sb.scorers.Int8(sb.scorers.Forward())")}


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
    costs: dict[str, float],
    found: Redundancy | None,
    *,
    indexed: bool = True,
    overlap: float = 1.0,
    diverged: bool = False,
    data: DataTraits | None = None,
) -> Recommendation:
    mixes = list_mixes(1 / 3, INT8, indexed=indexed, redundancy=found)
    forecasts = {
        name: Forecast(
            seconds=summarise([1.0]),
            relative=summarise([costs.get(name, 0.95)]),
            phases={},
            scored=0,
            loaded=0,
            trained=0,
            varies=mix.varies,
            training=None,
            known="",
            code=mix.code,
        )
        for name, mix in mixes.items()
    }
    data = traits() if data is None else data
    return recommend(forecasts, mixes, {"int8": overlap}, found, data, diverged=diverged)


def test_where_losses_single_out_what_teaches_the_cheapest_is_recommended_with_its_code():
    found = asked({"recorded-sb": 0.4, "stale-sb": 0.5}, redundancy())
    assert found.strategy == "recorded-sb"
    assert "takes 40% of a traditional one" in found.reasons[0]
    assert "supply 80% of the gradient" in found.reasons[1]
    assert found.code[1:] == (
        "loader = sb.SelectiveLoader(train_loader, model, loss_fn, sb.recorded_sb(rate=1 / 3))",
        "loss_fn = loader.loss_fn",
        "for inputs, targets in loader:",
    )


def test_of_a_stream_cheap_scores_are_recommended_if_they_find_what_exact_ones_do():
    costs = {"int8-sb": 0.5, "selective-backprop": 0.7}
    found = asked(costs, redundancy(), indexed=False)
    assert found.strategy == "int8-sb"
    assert found.code[2] == "for inputs, targets in loader:"
    assert asked(costs, redundancy(), indexed=False, overlap=0.5).strategy == "selective-backprop"


def test_random_skipping_is_never_what_losses_recommend():
    assert asked({"random-backprop": 0.1, "stale-sb": 0.5}, redundancy()).strategy == "stale-sb"
    assert asked({"random-scored": 0.1, "easy-skip": 0.1}, redundancy()).strategy is None


def test_where_nothing_is_saved_it_says_not_to_select():
    found = asked({}, redundancy())
    assert (found.strategy, found.code) == (None, ())
    assert "would still take 95% of a traditional epoch" in found.reasons[0]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"gradient_share": 0.45}, "supply only 45% of the gradient of all: the others still"),
        ({"loss_share": 0.4}, "hold only 40% of the loss, 33% being what any would hold"),
        ({"cosine": 0.5}, "points elsewhere: its cosine with that of all is 0.50, a random"),
    ],
    ids=["gradient", "loss", "cosine"],
)
def test_where_losses_do_not_single_it_out_it_says_not_to_select(changed, why):
    found = asked({"recorded-sb": 0.4, "random-backprop": 0.34}, redundancy(**changed))
    assert found.strategy is None
    assert why in found.reasons[0]
    assert any("Train for fewer epochs instead" in each for each in found.reasons)
    assert any("at 34% of an epoch" in each for each in found.reasons)


def test_cosines_that_differ_by_the_scatter_of_a_few_batches_speak_against_nothing():
    found = asked({"recorded-sb": 0.4}, redundancy(cosine=0.56))
    assert found.strategy == "recorded-sb"


def test_without_a_look_at_losses_nothing_is_recommended():
    found = asked({"recorded-sb": 0.4}, None)
    assert found.strategy is None
    assert "was not looked at" in found.reasons[0]


def test_of_a_model_that_diverged_it_says_that_and_argues_from_nothing_else():
    found = asked({"recorded-sb": 0.4}, None, diverged=True)
    assert (found.strategy, found.code) == (None, ())
    (reason,) = found.reasons
    assert reason.startswith("The model diverged")
    assert "Lower the learning rate" in reason


def test_where_labels_look_wrong_it_takes_the_one_that_gives_them_up():
    wrong = traits(wrong_labels=0.2, wrong_labels_error=0.01)
    found = asked({"recorded-sb": 0.4}, redundancy(), data=wrong)
    assert found.strategy == "auto"
    assert "sb.auto()" in found.code[1]
    assert "favours high losses" in found.reasons[0]
    assert asked({}, redundancy(), data=wrong, indexed=False).strategy is None
    # Within two standard errors of what is found where no label is wrong.
    unsure = traits(wrong_labels=0.05, wrong_labels_error=0.02)
    assert asked({"recorded-sb": 0.4}, redundancy(), data=unsure).strategy == "recorded-sb"


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
@pytest.mark.parametrize("cost", [0.4, 0.95])
def test_of_repetitive_or_skewed_data_it_says_what_can_pay(data, kinds, cost):
    found = asked({"recorded-sb": cost}, redundancy(), data=data)
    (said,) = (each for each in found.reasons if each.startswith("The data are"))
    assert said.startswith(f"The data are {kinds}:")
    assert "auto() and recorded_sb()" in said
    plain = asked({"recorded-sb": cost}, redundancy())
    assert not any(each.startswith("The data are") for each in plain.reasons)
