"""When importance sampling pays: the gate's rule, against a plain twin, and what it costs."""

import math

import pytest
import torch
from fixture_doors import Numbered, NumberedStream, flat, numbers, select
from hypothesis import given
from hypothesis import strategies as st
from reference import PlainGate, variance_gain
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop import _gate

CONTEXT = sb.Context(batch_size=4, window=12)
SCORES = st.lists(st.floats(0.01, 100), min_size=1, max_size=20)


@given(SCORES)
def test_the_gain_is_the_papers_tau(scores):
    found = float(_gate.variance_gain(torch.tensor(scores, dtype=torch.float64)))
    assert found == pytest.approx(variance_gain(scores), rel=1e-6)
    assert found >= 1.0 - 1e-12


@pytest.mark.parametrize(
    ("scores", "gain"),
    [
        ([1.0, 1.0, 1.0], 1.0),
        ([0.0, 0.0], 1.0),
        ([0.0, 0.0, 0.0, 3.0], 2.0),
        ([-5.0, -1.0, 0.0, 3.0], 2.0),
        ([math.inf, 0.0, 0.0, 3.0], 2.0),
    ],
)
def test_scores_that_are_no_odds_count_as_none(scores, gain):
    assert float(_gate.variance_gain(torch.tensor(scores))) == pytest.approx(gain)


@given(st.lists(SCORES, max_size=30), st.sampled_from([0.0, 0.5, 0.9]))
def test_the_gate_is_open_exactly_while_the_average_exceeds_what_scoring_costs(batches, smoothing):
    gate = sb.VarianceGate(smoothing).start(CONTEXT)
    twin = PlainGate(smoothing, candidates=12, batch=4)
    assert not gate.is_open
    for scores in batches:
        expected = twin.observe(scores)
        gate.observe(torch.tensor(scores, dtype=torch.float64))
        if abs(twin.tau - twin.threshold) > 1e-9:
            assert gate.is_open == expected


@pytest.mark.parametrize(("rows", "opens"), [(4, False), (5, True)])
def test_scoring_twelve_for_a_batch_of_four_must_gain_more_than_twofold(rows, opens):
    gate = sb.VarianceGate(0.0).start(CONTEXT)
    gate.observe(torch.tensor([9.0] + [0.0] * (rows - 1)))  # the square root of the rows
    assert gate.is_open == opens


def test_a_threshold_of_ones_own_takes_the_formulas_place():
    gate = sb.VarianceGate(0.0, threshold=1.2).start(CONTEXT)
    gate.observe(torch.tensor([1.0, 2.0]))  # 1.054
    assert not gate.is_open
    gate.observe(torch.tensor([1.0, 4.0]))  # 1.166
    assert not gate.is_open
    gate.observe(torch.tensor([1.0, 9.0]))  # 1.28
    assert gate.is_open


@pytest.mark.parametrize("every", [1, 3, 10])
def test_one_batch_in_so_many_is_a_probe(every):
    gate = sb.VarianceGate(probe_every=every).start(CONTEXT)
    probes = [gate.probes() for _ in range(30)]
    assert probes == [number % every == 0 for number in range(1, 31)]


def test_a_gate_goes_on_from_its_state():
    gate, other = (sb.VarianceGate(0.5, 3).start(CONTEXT) for _ in range(2))
    for _ in range(4):
        gate.probes()
        gate.observe(torch.tensor([0.0, 0.0, 0.0, 9.0]))
    other.load_state_dict(gate.state_dict())
    assert other.is_open == gate.is_open
    assert [other.probes() for _ in range(6)] == [gate.probes() for _ in range(6)]
    assert other.state_dict() == gate.state_dict()


@pytest.mark.parametrize(
    "values",
    [
        {"smoothing": 1.0},
        {"smoothing": -0.1},
        {"smoothing": math.nan},
        {"probe_every": 0},
        {"probe_every": 2.5},
        {"threshold": 0.0},
        {"threshold": math.inf},
        {"threshold": math.nan},
    ],
)
def test_values_out_of_range_are_refused_by_name(values):
    [name] = values
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{name}="):
        sb.VarianceGate(**values)


def test_a_gate_that_is_none_and_one_without_scores_are_refused():
    with unhooked(), pytest.raises(sb.ConfigurationError, match="is no gate, such as"):
        sb.Schedule(gate=sb.VarianceGate)
    gated = sb.Schedule(gate=sb.VarianceGate())
    for scorer in (None, sb.Recorded()):
        with pytest.raises(sb.ConfigurationError, match="judges from fresh scores"):
            sb.Strategy("x", scorer, sb.Uniform(0.5), gated)


class Peaked:
    """Losses of which a few count for much, from one candidate batch to another."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def __call__(self, model, batch):
        peaked = (batch[1] >= self.first) & (batch[1] < self.last) & (batch[1] % 8 == 0)
        return torch.where(peaked, 1000.0, 1.0)


def gated(loader: DataLoader, losses, **values) -> sb.SelectiveLoader:
    gate = sb.VarianceGate(**({"smoothing": 0.0, "probe_every": 3} | values))
    parts = sb.Forward(), sb.Proportional(2.0, 0.0), sb.Schedule(gate=gate)
    return select(loader, sb.Strategy("gated", *parts), losses=losses)


@pytest.mark.parametrize("data", [Numbered(96), NumberedStream(96)], ids=["indexed", "stream"])
def test_selection_begins_when_a_probe_says_so_and_ends_when_it_no_longer_pays(data):
    # 12 batches of 8; every third is a probe, until that of the sixth opens the gate
    door = gated(DataLoader(data, 8), Peaked(40, 64))
    batches = numbers(door)
    plain = [list(range(8 * n, 8 * n + 8)) for n in range(12)]
    assert batches[:6] == plain[:6]
    assert set(batches[6]) <= {*range(48, 64)}
    # the ninth batch is peaked no more and shuts the gate; the twelfth is the next probe
    assert batches[-1] == plain[11]
    assert door.stats.scored == 8 * (1 + 2 + 3 + 1)


def test_while_nothing_is_gained_everything_is_trained_on_and_one_batch_in_so_many_scored():
    door = gated(DataLoader(Numbered(96), 8), Peaked(0, 0), probe_every=4)
    assert flat(numbers(door)) == list(range(96))
    assert door.stats.scored == 8 * (1 + 3)  # the first is scored to see that it can be


def test_the_length_is_not_known_where_a_gate_decides():
    with pytest.raises(TypeError, match="a gate decides"):
        len(gated(DataLoader(Numbered(96), 8), Peaked(0, 0)))


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_gate_does_is_the_same_however_far_workers_run_ahead(workers):
    found = [
        [numbers(door) for _ in range(2)]
        for door in (
            gated(DataLoader(Numbered(96), 8, num_workers=n), Peaked(40, 64)) for n in (0, workers)
        )
    ]
    assert found[0] == found[1]
