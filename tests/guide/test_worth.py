"""What a strategy is likely worth follows from what it was worth on data like the user's."""

import math

import numpy as np
import pytest

from selective_backprop.guide import _worth
from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._worth import fit, forecast_worth, held_out, place_of


def traits(**found: float | None) -> DataTraits:
    usual = dict.fromkeys(DataTraits.__dataclass_fields__) | {
        "sample": 1000,
        "classes": 10,
        "effective_classes": 10.0,
        "remarks": (),
        "seconds": 1.0,
    }
    return DataTraits(**(usual | found))


def cell(workload: str, passes: float = 4, worth: float = 1.0, **found: float) -> dict:
    place = place_of(vars(traits(**found)), passes).tolist()
    return {"workload": workload, "place": place, "worth": {"auto": worth}}


CLEAN = [cell(f"clean {n}", worth=1.0) for n in range(4)]
COPIED = [cell(f"copied {n}", worth=2.0, copies=0.5, near_copies=0.5) for n in range(4)]


@pytest.fixture
def record(monkeypatch):
    found = fit([*CLEAN, *COPIED])
    monkeypatch.setattr(_worth, "_record", lambda: found)
    return found


@pytest.mark.usefixtures("record")
def test_a_forecast_is_the_worth_on_the_data_that_are_most_alike():
    plain, copied = forecast_worth("auto", traits()), forecast_worth("auto", traits(copies=0.5))
    assert plain is not None
    assert copied is not None
    assert plain.times == pytest.approx(1.0, abs=0.05)
    assert copied.times == pytest.approx(2.0, abs=0.1)
    assert copied.low <= copied.times <= copied.high
    assert all(name.startswith("copied") for name in copied.like)
    between = forecast_worth("auto", traits(copies=0.25))
    assert between is not None
    assert between.times == pytest.approx(math.sqrt(2), rel=0.01)


@pytest.mark.usefixtures("record")
def test_of_data_that_are_like_none_or_a_strategy_without_records_nothing_is_forecast():
    assert forecast_worth("auto", traits(wrong_labels=0.3)) is None
    assert forecast_worth("stale-sb", traits()) is None
    assert forecast_worth("auto", traits(classes=None)) is None


@pytest.mark.usefixtures("record")
def test_the_length_counts_only_where_it_is_known():
    same = forecast_worth("auto", traits(), passes=4)
    assert same is not None
    assert same.times == pytest.approx(1.0, abs=0.05)
    assert forecast_worth("auto", traits(), passes=4 * 2**8) is None


def test_copies_and_near_copies_are_told_apart():
    exact = place_of(vars(traits(copies=0.4, near_copies=0.5)), 4)
    near = place_of(vars(traits(copies=0.0, near_copies=0.5)), 4)
    assert exact[:2] == pytest.approx([0.8, 0.2])
    assert near[:2] == pytest.approx([0.0, 1.0])
    skewed = traits(classes=10, effective_classes=5.0, wrong_labels=0.1)
    assert place_of(vars(skewed), 16) == pytest.approx([0, 0, 1, 1, 1])
    assert np.isnan(place_of(vars(skewed), None)[-1])


def test_errors_are_of_workloads_that_were_left_out_whole():
    """Two lengths of one workload are alike: neither helps to forecast the other."""
    odd = [cell("odd", passes, worth=3.0) for passes in (4, 5)]
    found = held_out([*CLEAN, *odd], 0.5)
    assert found[-2:] == [{"auto": 1.0}] * 2
    assert math.log(found[0]["auto"]) == pytest.approx(2 / 5 * math.log(3), rel=0.1)
    whole = held_out([*CLEAN, *COPIED], math.inf)
    assert whole[0]["auto"] == pytest.approx(2 ** (4 / 7))


def test_the_width_is_the_one_that_forecasts_best_and_the_interval_holds_four_of_five():
    found = fit([*CLEAN, *COPIED])
    assert found["typical"]["auto"] == pytest.approx(1.0, abs=0.05)
    assert found["typical_of_means"]["auto"] > 1.4
    cells = [cell("same", worth=1.0), cell("other", worth=math.exp(0.4))]
    assert fit(cells)["factors"]["auto"] == pytest.approx(math.exp(np.quantile([0.4, 0.4], 0.8)))


def test_a_bound_without_end_counts_as_a_factor_of_eight():
    found = held_out([cell("one", worth=1.0), cell("two", worth=1e6)], math.inf)
    assert found == [{"auto": pytest.approx(8)}, {"auto": 1.0}]
