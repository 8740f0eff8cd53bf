"""What is remembered of each example, against a plain twin; of each hand-out, one loss."""

import io
import math

import pytest
import torch
from fixture_loaders import NotedSampler, bits, fixture_data, fresh_net
from hypothesis import given
from hypothesis import strategies as st
from reference import PlainLedger
from torch import nn
from torch.utils.data import DataLoader

import selective_backprop as sb

EXAMPLES = 6
FILINGS = st.lists(
    st.lists(st.tuples(st.integers(0, EXAMPLES - 1), st.integers(-99, 99)), max_size=8), max_size=6
)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def indices(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@given(FILINGS, st.integers(1, 4))
def test_the_last_scores_of_each_example_and_their_epochs_are_remembered(filings, depth):
    ledger, twin = sb.scorers.Ledger(EXAMPLES, depth), PlainLedger(EXAMPLES, depth)
    for epoch, filing in enumerate(filings):
        keys, scores = [key for key, _ in filing], [float(score) for _, score in filing]
        ledger.scored.file(indices(*keys), tensor(*scores), epoch)
        twin.file(keys, scores, epoch)
    observed = ledger.scored.observe()
    assert observed.scores.shape == observed.epochs.shape == (depth, EXAMPLES)
    for example in range(EXAMPLES):
        known = list(twin.last[example])
        missing = depth - len(known)
        assert observed.epochs[:, example].tolist() == [at for _, at in known] + [-1] * missing
        found = observed.scores[:, example].tolist()
        assert found[: len(known)] == [score for score, _ in known]
        assert all(map(math.isnan, found[len(known) :]))


def test_scores_of_two_sources_never_mix_and_stay_on_their_own_devices():
    ledger = sb.scorers.Ledger(3)
    ledger.scored.file(indices(0, 2), torch.zeros(2, device="meta"), 4)
    assert ledger.recorded.empty
    ledger.recorded.file(indices(1), tensor(1.5), 5)
    assert ledger.scored.state_dict()["scores"].is_meta
    assert ledger.scored.state_dict()["epochs"].is_meta
    observed = ledger.recorded.observe()
    assert observed.epochs.tolist() == [[-1, 5, -1]]
    assert observed.scores[0, 1] == 1.5


def test_what_is_filed_is_taken_as_single_precision_without_history():
    ledger = sb.scorers.Ledger(2)
    ledger.scored.file(indices(0), torch.tensor([0.5], dtype=torch.float64, requires_grad=True), 0)
    ledger.scored.file(indices(1), torch.tensor([0.25], dtype=torch.bfloat16), 0)
    assert ledger.scored.observe().scores.tolist() == [[0.5, 0.25]]
    assert not ledger.scored.state_dict()["scores"].requires_grad


def test_what_was_observed_does_not_change_when_more_is_filed():
    ledger = sb.scorers.Ledger(2)
    ledger.scored.file(indices(0), tensor(1.0), 0)
    observed = ledger.scored.observe()
    ledger.scored.file(indices(0), tensor(2.0), 1)
    assert (observed.scores[0, 0], observed.epochs[0, 0]) == (1.0, 0)


def test_examples_are_counted_once_for_each_time_they_are_named():
    ledger = sb.scorers.Ledger(4)
    ledger.count(indices(0, 2, 2))
    ledger.count(indices(2))
    ledger.count(indices())
    found = ledger.selected
    assert found.tolist() == [1, 0, 3, 0]
    found += 1
    assert ledger.selected.tolist() == [1, 0, 3, 0]


def test_counts_stop_before_they_would_overflow():
    ledger = sb.scorers.Ledger(2)
    for _ in range(200):
        ledger.count(torch.zeros(250, dtype=torch.int64))
    assert ledger.selected.tolist() == [16_000, 0]


def test_epochs_beyond_what_two_bytes_hold_are_remembered():
    ledger = sb.scorers.Ledger(3)
    for epoch in (5, 32_767, 32_768):
        ledger.scored.file(indices(epoch % 3), tensor(1.0), epoch)
    assert ledger.scored.observe().epochs.tolist() == [[-1, 32_767, 32_768]]
    other = sb.scorers.Ledger(3)
    other.load_state_dict(ledger.state_dict())
    other.scored.file(indices(0), tensor(1.0), 70_000)
    assert other.scored.observe().epochs.tolist() == [[70_000, 32_767, 32_768]]


@given(FILINGS, st.integers(1, 3))
def test_the_first_score_of_each_example_is_remembered_whatever_follows(filings, depth):
    ledger, firsts = sb.scorers.Ledger(EXAMPLES, depth, first=True), {}
    for epoch, filing in enumerate(filings):
        latest = dict(filing)  # of an example that is named twice, the later score counts
        ledger.record(indices(*latest), tensor(*latest.values()), epoch)
        firsts = latest | firsts
    found = ledger.recorded.first().tolist()
    assert {at: each for at, each in enumerate(found) if not math.isnan(each)} == firsts
    other = sb.scorers.Ledger(EXAMPLES, depth, first=True)
    other.load_state_dict(ledger.state_dict())
    assert repr(other.recorded.first()) == repr(ledger.recorded.first())


def test_visits_are_counted_by_class():
    ledger = sb.scorers.Ledger(5, depth=2)
    assert ledger.class_visits is None
    ledger.classify(indices(), indices())  # as a rank's shard is told of others' classes
    assert ledger.class_visits is None
    ledger.classify(indices(0, 1, 2, 3), torch.tensor([2**62, -90, 2**62, 2]))
    ledger.count(indices(0, 2, 2, 3, 4))
    found = ledger.class_visits
    assert found == ((-90, 2, 2**62), (1, 1, 2), (0, 1, 3))
    assert found.least == 0.0
    ledger.count(indices(1))
    assert ledger.class_visits.least == pytest.approx(1 / (5 / 4))


def test_every_filing_is_noticed_and_counting_is_none():
    ledger = sb.scorers.Ledger(4)
    seen = [ledger.changes]
    ledger.scored.file(indices(0), tensor(1.0), 0)
    seen.append(ledger.changes)
    ledger.recorded.file(indices(0), tensor(1.0), 0)
    seen.append(ledger.changes)
    assert len(set(seen)) == 3
    ledger.count(indices(1))
    assert ledger.changes == seen[-1]


def filled(examples: int = 4, depth: int = 2) -> sb.scorers.Ledger:
    ledger = sb.scorers.Ledger(examples, depth)
    ledger.scored.file(indices(0, 3), tensor(1.0, 2.0), 0)
    ledger.scored.file(indices(0), tensor(3.0), 2)
    ledger.classify(indices(0, 2), indices(5, 1))
    ledger.count(indices(0, 0))
    return ledger


def test_a_ledger_goes_on_from_its_state_in_any_file():
    file = io.BytesIO()
    torch.save(filled().state_dict(), file)
    file.seek(0)
    other = sb.scorers.Ledger(4, 2)
    other.recorded.file(indices(1), tensor(9.0), 0)  # is forgotten
    changes = other.changes
    state = torch.load(file, weights_only=True)
    other.load_state_dict(state)
    assert repr(other.state_dict()) == repr(filled().state_dict())
    assert other.recorded.empty
    assert other.changes != changes
    other.scored.file(indices(0), tensor(7.0), 3)
    other.count(indices(1))
    assert repr(state) == repr(filled().state_dict())


@pytest.mark.parametrize(("examples", "depth"), [(5, 2), (4, 1)])
def test_a_state_of_another_size_is_refused_and_changes_nothing(examples, depth):
    ledger, state = sb.scorers.Ledger(examples, depth), filled().state_dict()
    before = repr(ledger.state_dict())
    with pytest.raises(sb.ConfigurationError, match=r"state.*needed.*shape"):
        ledger.load_state_dict(state)
    assert repr(ledger.state_dict()) == before


REMEMBERING = [
    sb.auto(),
    sb.recorded_sb(1 / 2),
    sb.tail_sft(),
    sb.stale_sb(1 / 2, epochs=2, spread=True),
]


def once(loss_fn, outputs, targets):
    loss_fn(outputs, targets).backward()


def three_times(loss_fn, outputs, targets):
    for _ in range(2):
        loss_fn(outputs, targets)
    loss_fn(outputs, targets).backward()


def in_parts(loss_fn, outputs, targets):
    """Gradient accumulation: the loss of a batch, a part at a time."""
    for part in (slice(0, 2), slice(2, None)):
        share = len(targets[part]) / len(targets)
        (loss_fn(outputs[part], targets[part]) * share).backward(retain_graph=True)


def run(strategy, train, rate):
    """Train a small net; return the batches, and what is remembered in the end."""
    model, batches = fresh_net(), []
    plain = DataLoader(fixture_data(), 6, sampler=NotedSampler(40))
    options = {"epochs": 6, "generator": torch.Generator().manual_seed(1), "quiet": True}
    loader = sb.SelectiveLoader(plain, model, nn.CrossEntropyLoss(), strategy, **options)
    loss_fn, optimizer = loader.loss_fn, torch.optim.SGD(model.parameters(), lr=rate)
    torch.manual_seed(5)
    for _ in range(6):
        for inputs, targets in loader:
            batches.append(inputs.clone())
            optimizer.zero_grad()
            train(loss_fn, model(inputs), targets)
            optimizer.step()
    return bits(batches), bits(loader.ledger.recorded.observe())


@pytest.mark.parametrize("strategy", REMEMBERING, ids=lambda each: each.name)
@pytest.mark.parametrize(("train", "rate"), [(three_times, 0.1), (in_parts, 0.0)])
def test_a_batch_that_passes_through_the_loss_several_times_counts_once(strategy, train, rate):
    assert run(strategy, train, rate) == run(strategy, once, rate)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_second_loss_of_a_hand_out_replaces_the_first_and_moves_none(depth):
    ledger = sb.scorers.Ledger(3, depth)
    rows = torch.tensor([0, 2])
    for epoch in range(3):
        ledger.hand_out(rows)
        for loss in (5.0, 4.0, 3.0):
            ledger.record(rows, torch.tensor([loss, -loss]) + 10 * epoch, epoch)
    observed = ledger.recorded.observe()
    assert observed.scores[:, 0].tolist() == [23.0, 13.0, 3.0][:depth]
    assert observed.scores[:, 2].tolist() == [17.0, 7.0, -3.0][:depth]
    assert observed.epochs[:, 0].tolist() == [2, 1, 0][:depth]


def test_which_examples_await_a_loss_is_part_of_the_state():
    ledger, other = sb.scorers.Ledger(3, depth=2), sb.scorers.Ledger(3, depth=2)
    rows = torch.tensor([0, 1])
    ledger.hand_out(rows)
    ledger.record(rows[:1], torch.tensor([1.0]), 0)
    other.load_state_dict(ledger.state_dict())
    for each in (ledger, other):
        each.record(rows, torch.tensor([2.0, 3.0]), 0)
        each.hand_out(rows)
        each.record(rows, torch.tensor([4.0, 5.0]), 1)
        assert each.recorded.observe().scores[:, :2].tolist() == [[4.0, 5.0], [2.0, 3.0]]
