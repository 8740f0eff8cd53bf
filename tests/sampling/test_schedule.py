"""When selection acts: by schedule, and by the gate, against a plain twin, and what it costs."""

import math

import fixture_loaders
import pytest
import torch
from fixture_loaders import Numbered, Stateless, fixture_data, numbers, same_tensors, select
from hypothesis import example, given
from hypothesis import strategies as st
from reference import PlainGate, variance_gain
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb
from selective_backprop._sampling import schedule as _schedule


def test_warm_up_and_start_must_both_be_over():
    schedule = sb.Schedule(warmup_epochs=1, start=0.5)
    assert not schedule.selects(0, 0.6)
    assert not schedule.selects(1, 0.4)
    assert schedule.selects(1, 0.6)
    assert not schedule.selects(3, progress=None)  # of unknown training


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"warmup_epochs": 0.5}, "start="),
        ({"start": 0.5, "end": 0.5}, "end=0.5"),
        ({"start": 0.6, "end": 0.5}, "end=0.5"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(values, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        sb.Schedule(**values)


@pytest.mark.parametrize(
    ("schedule", "epochs", "message"),
    [
        (sb.Schedule(warmup_epochs=3, end=0.5), 6, "nothing to select in 6 epochs"),
        (sb.Schedule(start=0.999), 3, "none of 30 batches"),
    ],
)
def test_a_training_without_selection_is_refused_with_the_reason(schedule, epochs, message):
    with pytest.raises(sb.ConfigurationError, match=message):
        schedule.check_length(epochs, batches=10)
    schedule.check_length(None, batches=10)


@given(
    st.integers(0, 6),
    st.floats(0.01, 1.0),
    st.integers(1, 12),
    st.floats(0, 0.99),
    st.integers(1, 12),
)
@example(0, 0.32, 1, 0.875, 25)  # 0.28 times 25 is above 7 in floating point
@example(0, 1.0, 1, 1e-12, 1)
def test_a_length_is_accepted_exactly_where_some_batch_is_selected_from(
    warmup, end, epochs, start, batches
):
    schedule = sb.Schedule(warmup, start * end, end)
    moments = [
        schedule.selects(epoch, (epoch + drawn / batches) / epochs)
        for epoch in range(epochs)
        for drawn in range(batches)
    ]
    try:
        schedule.check_length(epochs, batches)
    except sb.ConfigurationError:
        assert not any(moments)
    else:
        assert any(moments)


CONTEXT = sb.scorers.Context(batch_size=4, window=12)
SCORES = st.lists(st.floats(0.01, 100), min_size=1, max_size=20)


@given(SCORES)
def test_the_gain_is_the_papers_tau(scores):
    found = float(_schedule.variance_gain(torch.tensor(scores, dtype=torch.float64)))
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
        ([1e155, 0.0, 0.0, 3.0], 2.0),
    ],
)
def test_scores_that_are_no_odds_count_as_none(scores, gain):
    scores = torch.tensor(scores, dtype=torch.float64)
    assert float(_schedule.variance_gain(scores)) == pytest.approx(gain)


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


@pytest.mark.parametrize(
    ("threshold", "rows", "opens"),
    [(None, 4, False), (None, 5, True), (3.0, 9, False), (3.0, 10, True)],
)
def test_scoring_twelve_for_a_batch_of_four_must_gain_twofold_or_what_is_asked(
    threshold, rows, opens
):
    gate = sb.VarianceGate(0.0, threshold=threshold).start(CONTEXT)
    gate.observe(torch.tensor([9.0] + [0.0] * (rows - 1)))  # the square root of the rows
    assert gate.is_open == opens


@pytest.mark.parametrize("every", [1, 3, 10])
def test_one_batch_in_so_many_is_a_probe_counted_from_the_one_after_next_once_one_is_given(every):
    gate = sb.VarianceGate(probe_every=every).start(CONTEXT)
    probes = [gate.probes() for _ in range(30)]
    assert probes == [number % every == 0 for number in range(1, 31)]
    gate.probes()
    if every > 1:
        gate.observe(torch.ones(4))
        assert [gate.probes() for _ in range(every + 1)] == [False] * every + [True]


def test_a_gate_goes_on_from_its_state():
    gate, other = (sb.VarianceGate(0.5, 3).start(CONTEXT) for _ in range(2))
    for _ in range(4):
        gate.probes()
        gate.observe(torch.tensor([0.0, 0.0, 0.0, 9.0]))
    other.load_state_dict(gate.state_dict())
    assert other.is_open == gate.is_open
    assert [other.probes() for _ in range(6)] == [gate.probes() for _ in range(6)]
    assert other.state_dict() == gate.state_dict()


def test_a_gate_that_is_none_and_one_without_scores_are_refused():
    with unhooked(), pytest.raises(sb.ConfigurationError, match="no gate"):
        sb.Schedule(gate=sb.VarianceGate)
    gated = sb.Schedule(gate=sb.VarianceGate())
    for scorer in (None, sb.scorers.Recorded()):
        with pytest.raises(sb.ConfigurationError, match="fresh scores"):
            sb.Strategy("x", scorer, sb.selectors.Uniform(0.5), gated)


class Peaked:
    """Losses of which a few count for much, from one candidate batch to another."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last

    def __call__(self, model, batch):
        peaked = (batch[1] >= self.first) & (batch[1] < self.last) & (batch[1] % 8 == 0)
        return torch.where(peaked, 1000.0, 1.0)


def gated(loader: DataLoader, losses, **values) -> sb.SelectiveLoader:
    gate = sb.VarianceGate(**({"smoothing": 0.0, "probe_every": 3} | values))
    parts = sb.scorers.Forward(), sb.selectors.Proportional(2.0, 0.0), sb.Schedule(gate=gate)
    return select(loader, sb.Strategy("gated", *parts), losses=losses)


@pytest.mark.parametrize(
    "data", [Numbered(96), fixture_loaders.NumberedStream(96)], ids=["indexed", "stream"]
)
def test_selection_begins_when_a_probe_says_so_and_ends_when_it_no_longer_pays(data):
    # 12 batches of 8; every third is a probe, until that of the sixth opens the gate
    loader = gated(DataLoader(data, 8), Peaked(40, 64))
    if isinstance(data, Numbered):
        with pytest.raises(TypeError, match="a gate decides"):
            len(loader)
    batches = numbers(loader)
    plain = [list(range(8 * n, 8 * n + 8)) for n in range(12)]
    assert batches[:6] == plain[:6]
    assert set(batches[6]) <= {*range(48, 64)}
    # the ninth batch is peaked no more and shuts the gate; the twelfth is the next probe
    assert batches[-1] == plain[11]
    assert loader.stats.scored == 8 * (1 + 2 + 3 + 1)


class Loop:
    """A linear model that is trained on 60 examples, 6 at a time, with or without a strategy."""

    def __init__(self, strategy: sb.Strategy | None, **options) -> None:
        torch.manual_seed(3)
        self.model, self.loss_fn = nn.Linear(2, 3), nn.CrossEntropyLoss()
        loader = DataLoader(fixture_data(60), 6)
        if strategy is not None:
            generator = torch.Generator().manual_seed(1)
            options = {"generator": generator, "quiet": True} | options
            loader = sb.SelectiveLoader(loader, self.model, self.loss_fn, strategy, **options)
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def plainly(self, loss_fn=None, epochs: int = 2) -> "Loop":
        loss_fn = self.loss_fn if loss_fn is None else loss_fn
        for _ in range(epochs):
            for inputs, targets in self.loader:
                self.step(loss_fn(self.model(inputs), targets))
        return self

    def by_hand(self, *, outputs: bool = True, every: int = 1) -> "Loop":
        for number, ((inputs, targets), selection) in enumerate(self.loader):
            found = self.model(inputs)
            losses = functional.cross_entropy(found, targets, reduction="none")
            if number % every == 0:
                self.loader.record(selection, losses, (found, targets) if outputs else None)
            self.step((selection.weights * losses).mean())
        return self


class NotingGate(sb.selectors.AbstractGate):
    """Stays shut, and notes what it observes."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def start(self, context: sb.scorers.Context) -> sb.selectors.RunningGate:
        return _RunningNotingGate(self.seen)


class _RunningNotingGate(Stateless, sb.selectors.RunningGate):
    is_open = False

    def __init__(self, seen: list[Tensor]) -> None:
        self.seen = seen

    def probes(self) -> bool:
        return False

    def observe(self, scores: Tensor) -> None:
        self.seen.append(scores)


def kath18(measure: str = "error-norm", bias: float = 1.0, **values) -> sb.Strategy:
    gate = sb.VarianceGate(**({"probe_every": 4} | values))
    return sb.kath18(2.0, measure=measure, bias=bias, schedule=sb.Schedule(gate=gate))


SHUT = {"threshold": 1e9}


@pytest.mark.parametrize(("measure", "bias"), [("error-norm", 0.0), ("loss", 1.0)])
def test_while_a_gate_is_shut_a_loop_with_the_loaders_loss_pays_for_its_first_batch(measure, bias):
    loop, bare = Loop(kath18(measure, bias, **SHUT)), Loop(None)
    loop.plainly(loop.loader.loss_fn)
    bare.plainly()
    assert loop.loader.stats.scored == 6
    assert loop.loader.stats.observed == 120
    assert loop.loader.stats.cost == loop.loader.stats.plain_cost + 6
    assert same_tensors(loop.model.state_dict(), bare.model.state_dict())


def test_batches_that_cannot_be_scored_are_refused_before_the_gate_opens():
    loader = DataLoader([(torch.ones(2), 0, 0)] * 8, 4)
    loader = sb.SelectiveLoader(loader, nn.Linear(2, 3), nn.CrossEntropyLoss(), sb.kath18())
    assert loader.loss_fn
    with pytest.raises(sb.LossError, match="a list of 3, not a pair"):
        next(iter(loader))


@pytest.mark.parametrize("measure", ["loss", "error-norm"])
@pytest.mark.parametrize("takes", [True, False], ids=["the loader's loss", "by hand"])
def test_what_the_gate_observes_is_what_training_computed_of_the_batch(measure, takes):
    gate = NotingGate()
    strategy = sb.kath18(2.0, measure=measure, schedule=sb.Schedule(gate=gate))
    loop = Loop(strategy, with_selection=True)
    loss_fn = loop.loader.loss_fn if takes else None
    expected = []
    for (inputs, targets), selection in loop.loader:
        outputs = loop.model(inputs)
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        norms = (outputs.softmax(1) - functional.one_hot(targets, 3)).norm(dim=1)
        expected.append(losses if measure == "loss" else norms)
        if loss_fn is not None:
            loop.step(loss_fn(outputs, targets))
        else:
            loop.loader.record(selection, losses, (outputs, targets))
            loop.step((selection.weights * losses).mean())
    assert len(gate.seen) == len(expected) == 10
    for seen, wanted in zip(gate.seen, expected, strict=True):
        torch.testing.assert_close(seen, wanted.detach())
        assert not seen.requires_grad


def test_a_batch_in_parts_is_observed_whole_and_once():
    gate = NotingGate()
    strategy = sb.kath18(2.0, measure="loss", schedule=sb.Schedule(gate=gate))
    loop = Loop(strategy)
    loss_fn = loop.loader.loss_fn
    for inputs, targets in loop.loader:
        for part, wanted in zip(inputs.split(4), targets.split(4), strict=True):
            loss_fn(loop.model(part), wanted)
        loss_fn(loop.model(inputs), targets)  # again, as some optimisers ask for it
    assert [len(seen) for seen in gate.seen] == [6] * 10


def test_outputs_that_have_no_error_norm_leave_the_loop_alone():
    loop = Loop(kath18(bias=0.0, **SHUT), outputs=lambda model, batch: (model(batch[0]), batch[1]))
    loss_fn = loop.loader.loss_fn
    for inputs, targets in loop.loader:
        loop.step(loss_fn(loop.model(inputs).unsqueeze(2), targets.unsqueeze(1)))  # one pixel each
    assert loop.loader.stats.observed == 0
    assert loop.loader.stats.scored == 6 * 3


def with_excess() -> sb.Strategy:
    excess = sb.scorers.Excess(sb.scorers.ReferenceLosses(torch.zeros(60)), sb.scorers.Forward())
    strategy = kath18("loss", **SHUT)
    return sb.Strategy("gated", excess, strategy.selector, strategy.schedule)


@pytest.mark.parametrize(
    ("strategy", "every", "observed", "scored"),
    [
        (kath18("loss", **SHUT), 1, 60, 6),  # the first batch, to see that it can be scored
        (kath18("error-norm", **SHUT), 1, 60, 6),
        (kath18("loss", **SHUT), 6, 12, 12),  # of the four before the sixth, nothing is known
        (kath18("loss", smoothing=0.0, threshold=0.5), 1, 6, 60),  # opens at once, never shuts
        (with_excess(), 1, 0, 18),  # the loop's losses are not what is scored
    ],
)
def test_recorded_losses_spare_scoring_where_they_are_what_is_scored(
    strategy, every, observed, scored
):
    loop = Loop(strategy, with_selection=True).by_hand(every=every)
    assert (loop.loader.stats.observed, loop.loader.stats.scored) == (observed, scored)
