"""Laws that every history keeps. A new one needs an entry in `HISTORIES`, and nothing else."""

import copy
import math

import fixture_steps as nets
import pytest
import torch
from discovery import final_classes, public_classes
from fixture_damage import refuse_all
from fixture_extend import HISTORIES, Ranked
from fixture_loaders import bits, streams
from fixture_training import Training, check_batches
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import selective_backprop as sb

CAPACITY = 12

PERCENTILE = sb.selectors.Percentile(2.0, history=CAPACITY)

SELECTORS = [PERCENTILE, sb.selectors.BelowMean(history=CAPACITY)]

every_history = pytest.mark.parametrize("kind", HISTORIES)

batches = st.lists(
    st.lists(st.integers(-3, 3).map(float) | st.just(math.inf), max_size=20).map(torch.tensor),
    min_size=1,
    max_size=6,
)


def filled(kind: type[sb.selectors.History], stream: list[Tensor]) -> sb.selectors.History:
    history = kind(CAPACITY)
    for batch in stream:
        history.file(batch)
    return history


def weighed(history: sb.selectors.History) -> list[tuple[float, float]]:
    """Each remembered score and how much it counts."""
    weights = history.weights
    counts = torch.ones(len(history)) if weights is None else weights
    return list(zip(history.recent.tolist(), counts.tolist(), strict=True))


def strategy(selector: sb.selectors.AbstractSelector, kind: type) -> sb.Strategy:
    return sb.Strategy("ranked", sb.scorers.Forward(), Ranked(selector, kind))


def test_every_history_is_public_and_listed():
    own = final_classes(sb.selectors.History)
    assert own <= set(HISTORIES)
    assert own == public_classes(sb.selectors.History)


@every_history
@given(stream=batches)
def test_a_history_remembers_scores_that_were_filed_and_no_more_than_it_has_room_for(kind, stream):
    before = streams()
    history = filled(kind, stream)
    filed = torch.cat(stream).tolist()
    assert history.filed == len(filed)
    assert len(history) == len(history.recent) == min(CAPACITY, len(filed))
    for score in history.recent.tolist():
        filed.remove(score)  # an error if it is there more often than it was filed
    assert set(history.kept) == set(kind.columns)
    assert all(column.shape == (CAPACITY,) for column in history.kept.values())
    assert not any(column.isnan().any() for column in history.kept.values())
    assert history.weights is None or bool((history.weights > 0).all())
    assert streams() == before


@every_history
@given(stream=batches, ties=st.booleans())
def test_a_percentile_is_the_share_of_the_weight_that_is_lower(kind, stream, ties):
    remembered = weighed(filled(kind, stream))
    total = sum(weight for _, weight in remembered)
    for score in (-4.0, -1.0, 0.0, 3.0, math.inf):
        lower = sum(w for other, w in remembered if other < score or (ties and other == score))
        expected = lower / total if remembered else 1.0
        for own in (Tensor, OnDevice):
            there = filled(kind, [batch.as_subclass(own) for batch in stream])
            found = there.percentiles(torch.tensor([score]).as_subclass(own), ties=ties).item()
            assert found == pytest.approx(expected)


class Place(str):
    """A device of torch's, of a type that no shortcut is taken for."""

    type = "gpu"


class OnDevice(Tensor):
    """Scores that are ranked as those on a GPU are."""

    device = Place("cpu")


@every_history
@given(stream=batches)
def test_a_mean_is_weighed_and_over_finite_scores(kind, stream):
    history = filled(kind, stream)
    finite = [(score, weight) for score, weight in weighed(history) if math.isfinite(score)]
    total = sum(weight for _, weight in finite)
    mean = sum(score * weight for score, weight in finite) / total if finite else math.nan
    assert history.mean().item() == pytest.approx(mean, nan_ok=True, abs=1e-12)


@every_history
@given(before=batches, after=batches)
def test_a_history_goes_on_from_its_state_and_from_a_mark_bit_for_bit(kind, before, after):
    history, other = filled(kind, before), kind(CAPACITY)
    state, mark = history.state_dict(), history.mark()
    intact = bits(state)
    other.load_state_dict(state)
    for batch in after:
        for each in (history, other):
            each.file(batch)
            each.percentiles(batch)
    assert bits(state) == intact
    assert bits(other.state_dict()) == bits(history.state_dict())
    history.go_back(mark)
    assert bits(history.state_dict()) == intact
    fresh = filled(kind, before)
    asked = torch.tensor([-1.0, 0.0, 2.0])
    assert history.percentiles(asked).tolist() == fresh.percentiles(asked).tolist()


@every_history
@pytest.mark.parametrize("count", [0, 5, 30])
def test_a_damaged_or_foreign_state_leaves_a_history_as_it_was(kind, count):
    history = filled(kind, [torch.rand(count)] if count else [])
    assert refuse_all(history, history.state_dict()) > 20
    before = bits(history.state_dict())
    foreign = next(each for each in HISTORIES if each.columns != kind.columns)
    longer = kind(CAPACITY + 1)
    longer.file(torch.rand(3))
    for other in (filled(foreign, [torch.rand(3)]), longer):
        with pytest.raises(sb.ConfigurationError):
            history.load_state_dict(other.state_dict())
    assert bits(history.state_dict()) == before


@pytest.mark.parametrize("selector", SELECTORS, ids=repr)
def test_a_loader_selects_by_its_history_and_goes_on_bit_for_bit(selector):
    found = []
    for kind in HISTORIES:
        built = strategy(selector, kind)
        training = Training(built)
        found.append([training.epoch() for _ in range(3)])
        assert type(training.loader._pipeline.history) is kind
        check_batches(lambda seed, built=built: Training(built, seed=seed, trains=3))
    assert found[0] not in found[1:]
    assert found[1] != found[2]


@every_history
def test_a_step_goes_on_bit_for_bit_and_refuses_damaged_states(kind):
    def make(seed):
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(seed)
        chosen = strategy(PERCENTILE, kind)
        return sb.SelectiveStep(
            nets.mlp().double(), torch.nn.CrossEntropyLoss(), chosen, generator=generator
        )

    whole, again = make(1), make(2)
    batches = [nets.candidates(nets.VECTORS, seed) for seed in range(6)]
    for batch in batches[:3]:
        whole(batch)
    assert refuse_all(whole, whole.state_dict()) > 20
    again.load_state_dict(copy.deepcopy(whole.state_dict()))
    for batch in batches[3:]:
        assert again(batch).rows.tolist() == whole(batch).rows.tolist()
    assert bits(again.state_dict()) == bits(whole.state_dict())
    assert type(again._history) is kind
