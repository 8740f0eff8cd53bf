"""What is recommended follows from worths on record, and selecting is no matter of course."""

from statistics import geometric_mean

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from selective_backprop.guide import _worth
from selective_backprop.guide._data_traits import DataTraits
from selective_backprop.guide._forecast import Forecast
from selective_backprop.guide._mixes import list_mixes
from selective_backprop.guide._recommend import Recommendation, choose, recommend
from selective_backprop.guide._redundancy import Redundancy
from selective_backprop.guide._rounds import summarise
from selective_backprop.guide._worth import MOST, WorthForecast, held_out


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


LOOKED = redundancy()


def asked(
    worths: dict[str, float | WorthForecast],
    *,
    relative: float = 0.5,
    share: float = 0.5,
    found: Redundancy | None = LOOKED,
    data: DataTraits | None = None,
    **told: int | bool | None,
) -> Recommendation:
    mixes = list_mixes(1 / 3, {}, indexed=True, redundancy=LOOKED)
    worth = {
        name: each if isinstance(each, WorthForecast) else _forecast(each)
        for name, each in worths.items()
    }
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
            worth=worth.get(name),
            code=mix.code,
        )
        for name, mix in mixes.items()
    }
    return recommend(forecasts, mixes, found, traits() if data is None else data, **told)


def _forecast(times: float) -> WorthForecast:
    return WorthForecast(times, 0.9, 3.0, ("skewed", "films"))


def test_what_is_worth_most_on_data_like_these_is_recommended_with_its_code():
    found = asked({"auto": 1.5, "recorded-sb": 1.4, "infobatch": 0.9}, relative=0.52)
    assert found.strategy == "auto"
    assert found.verdict.startswith("Use auto")
    worth, cost, _, like = found.reasons
    assert "1.44 times" in worth
    assert "(0.87 to 2.88)" in worth
    assert "trains on 50% of the examples and takes 52% of the time" in cost
    assert "skewed" in like
    assert found.code[1:] == (
        "loader = sb.SelectiveLoader(train_loader, model, loss_fn, sb.auto())",
        "loss_fn = loader.loss_fn",
        "for inputs, targets in loader:",
    )
    assert asked({"auto": 1.3, "recorded-sb": 1.4}).strategy == "auto"
    assert asked({"auto": 1.3, "recorded-sb": 1.7}).strategy == "recorded-sb"
    assert asked({"auto": 1.05, "recorded-sb": 1.2}).strategy == "recorded-sb"


@pytest.mark.parametrize("strategy", ["auto", "recorded-sb", "infobatch"])
@pytest.mark.parametrize("epochs", [None, 4])
def test_code_of_what_is_recommended_runs(strategy, epochs):
    found = asked({strategy: 2.0}, epochs=epochs)
    assert found.strategy == strategy
    dataset = TensorDataset(torch.randn(24, 3), torch.arange(24) % 2)
    known = {
        "train_loader": DataLoader(dataset, 4),
        "model": torch.nn.Linear(3, 2),
        "loss_fn": torch.nn.CrossEntropyLoss(),
        "epochs": 4,
    }
    body = "    loss_fn(model(inputs), targets).backward()"
    exec("\n".join((*found.code, body)), known)
    assert known["loader"].stats.candidates == 24
    assert known["model"].weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("worth", "relative"), [(1.05, 0.5), (1.5, 0.75)], ids=["little gained", "slow here"]
)
def test_what_is_worth_no_more_than_a_tenth_is_not_recommended(worth, relative):
    found = asked({"auto": worth, "infobatch": worth - 0.1}, relative=relative, epochs=30)
    assert found.strategy is None
    assert "not even auto" in found.verdict
    assert f"{worth * 0.5 / relative:.2f} times" in found.reasons[0]
    known = {"torch": torch, "optimizer": torch.optim.SGD([torch.zeros(1)], lr=0.1)}
    exec("\n".join(found.code), known)
    assert (known["epochs"], known["scheduler"].T_max) == (15, 15)


def test_of_data_that_nothing_on_record_is_like_it_says_that_nobody_knows():
    found = asked({})
    assert found.strategy is None
    assert "nobody knows" in found.verdict


def test_of_a_model_that_diverged_it_says_that_and_argues_from_nothing_else():
    found = asked({"auto": 1.5}, diverged=True)
    assert (found.strategy, found.code) == (None, ())
    assert "diverged" in found.verdict
    (reason,) = found.reasons
    assert "Lower the learning rate" in reason


def test_where_there_was_no_time_to_look_at_losses_it_asks_for_more_and_advises_nothing():
    """Without them nothing is known of the default, and others would take its place."""
    found = asked({"recorded-sb": 1.5}, found=None)
    assert (found.strategy, found.code) == (None, ())
    assert "budget" in found.verdict


@pytest.mark.parametrize(
    ("data", "verdict", "look"),
    [
        (traits(copies=0.3), "repetitive data", "30% repeated; 10 classes."),
        (traits(near_copies=0.3), "repetitive data", "30% repeated; 10 classes."),
        (
            traits(effective_classes=6.0),
            "skewed data",
            "0% repeated; 10 classes, 6.0 in effect.",
        ),
        (
            traits(wrong_labels=0.12, wrong_labels_error=0.01),
            "mislabelled data",
            "0% repeated; 10 classes; 12% of the labels look wrong.",
        ),
        (
            traits(copies=0.3, effective_classes=6.0, wrong_labels_at_most=0.31),
            "repetitive, skewed data",
            "30% repeated; 10 classes, 6.0 in effect; at most 31% of the labels are wrong.",
        ),
        (traits(), "data like these", "0% repeated; 10 classes."),
    ],
    ids=["copies", "near-copies", "skewed", "wrong labels", "both", "none"],
)
def test_copies_rare_classes_and_wrong_labels_stand_in_the_verdict(data, verdict, look):
    found = asked({"auto": 1.5}, data=data)
    assert f"it is likely to pay on {verdict}" in found.verdict
    assert f"Data: {look}" in found.reasons
    assert f"Data: {look}" in asked({"auto": 0.9}, data=data).reasons


def test_a_verdict_and_its_reasons_are_five_lines_of_80_columns():
    worth = WorthForecast(9.99, 0.11, 19.99, ("MNIST, 10 % taken for neighbours",) * 3)
    data = traits(copies=0.31, effective_classes=6.0, wrong_labels=0.31, wrong_labels_error=0.01)
    found = asked({"recorded-sb": worth}, data=data)
    assert found.strategy == "recorded-sb"
    lines = (found.verdict, *found.reasons)
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80


def test_what_would_have_been_advised_on_the_records_was_worth_about_as_much_as_always_auto():
    """Each workload is left out in turn; never to select is worth 1."""
    record = _worth._record()
    cells = record["cells"]
    chosen = [choose(each) for each in held_out(cells, record["width"])]
    worths = [{n: min(MOST, max(1 / MOST, w)) for n, w in c["worth"].items()} for c in cells]
    pairs = list(zip(chosen, worths, strict=True))
    advised = [worth[name] for name, worth in pairs if name]
    assert geometric_mean(advised) > 1.25
    always = geometric_mean(worth["auto"] for worth in worths)
    taken = geometric_mean(worth[name] if name else 1.0 for name, worth in pairs)
    assert taken > max(1.2, 0.95 * always)
    for name, worth in pairs:
        rivals = [1.0, *(times for other, times in worth.items() if other != name)]
        assert name is None or worth[name] > min(rivals) / 2


def test_what_needs_a_cross_entropy_is_left_out_where_the_loss_is_none():
    both = [
        list_mixes(1 / 3, {}, indexed=True, redundancy=redundancy(), other_loss=other)
        for other in (False, True)
    ]
    assert set(both[0]) - set(both[1]) == {"auto", "easy-skip"}
