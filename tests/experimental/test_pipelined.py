"""Scoring beside the training with a copy of the model: the same scores whatever the timing."""

import copy
import threading

import fixture_pipelined
import pytest
import torch
from fixture_loaders import Net, fixture_data, fresh_net, same_tensors
from fixture_pipelined import BATCH, BATCHES, Ahead, Counting, begin, losses, of, run_ahead, step
from torch import nn

import selective_backprop as sb
from selective_backprop.experimental._pipelined import copy_model, tensors_of, update
from selective_backprop.scorers._agreement import measure

INPUTS = fixture_data().tensors[0][:16]


def outputs(model: nn.Module) -> list[list[float]]:
    """What a model makes of a batch, in the modes that it is in."""
    return copy.deepcopy(model)(INPUTS).tolist()


def test_it_takes_on_weights_buffers_and_modes_when_it_is_updated_and_only_then():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    twin = copy_model(model)
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    for module in (model[1], model):
        before = outputs(twin)
        step(model)
        module.eval()
        assert outputs(twin) == before
        update(twin, model)
        assert outputs(twin) == outputs(model)
        assert [each.training for each in twin.modules()] == [m.training for m in model.modules()]


def test_an_update_allocates_no_tensors_anew_and_what_is_shared_stays_shared():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3))
    model[1].weight = model[0].weight
    twin = copy_model(model)
    places = [tensor.data_ptr() for tensor in tensors_of(twin).values()]
    for _ in range(3):
        step(model)
        update(twin, model)
    assert twin[1].weight is twin[0].weight
    assert outputs(twin) == outputs(model)
    assert [tensor.data_ptr() for tensor in tensors_of(twin).values()] == places
    assert not set(places) & {tensor.data_ptr() for tensor in tensors_of(model).values()}


def test_a_model_whose_parts_changed_or_that_cannot_be_copied_is_refused():
    model = nn.Sequential(nn.Linear(2, 3))
    twin = copy_model(model)
    model[0] = nn.Linear(2, 5)
    with pytest.raises(sb.LoaderError, match=r"0\.bias, 0\.weight.*changed"):
        update(twin, model)
    model = fresh_net()
    model.lock = threading.Lock()
    with pytest.raises(sb.ConfigurationError, match=r"\(Net\).*pickle"):
        copy_model(model)


FORWARD = sb.scorers.Forward()


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("autocast", [False, True])
def test_scores_are_those_of_a_copy_in_line_at_the_moments_at_which_they_are_begun(every, autocast):
    model, other = fresh_net(), fresh_net()
    running = begin(Ahead(sb.scorers.Forward(), every, ahead=2), model)
    inline = fixture_pipelined.InLine(
        lambda: begin(sb.scorers.Forward(), copy.deepcopy(other)), every
    )
    expected = []
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        torch.manual_seed(0)
        for i, batch in enumerate(BATCHES):
            expected.append(inline.score(batch, None).tolist())
            if i >= 2:
                step(other)
        torch.manual_seed(0)
        assert run_ahead(running, model, len(BATCHES)) == expected
    assert same_tensors(model.state_dict(), other.state_dict())


def test_what_the_scorer_within_remembers_is_saved_without_what_follows(tmp_path):
    running = fixture_pipelined.counting()
    assert running.state_dict()["scorer"] == {"count": 0}
    running.begin(of(3), None)
    waits = running.begin(of(3), None)
    state = running.state_dict()
    torch.save(state, tmp_path / "state")
    assert waits().tolist() == [2] * 3
    assert running.score(of(1), None).tolist() == [3]
    running.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert repr(running.state_dict()) == repr(state)
    assert running.score(of(1), None).tolist() == [3]


@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_training_goes_on_from_a_state_bit_for_bit(stop, tmp_path):
    scorer = Ahead(
        sb.scorers.Forward(training=True), 3, ahead=2, check=sb.experimental.Check(2, least=0)
    )
    torch.manual_seed(0)
    model = fresh_net()
    running = begin(scorer, model)
    run_ahead(running, model, stop)
    for batch in BATCHES[:stop]:
        running.begin(batch, None)  # in flight, and never waited for
    kept = {"model": model.state_dict(), "scorer": running.state_dict()}
    torch.save(kept, tmp_path / "state")
    torch.manual_seed(1)
    expected = run_ahead(running, model, 7)
    resumed = Net()
    going_on = begin(scorer, resumed)
    state = torch.load(tmp_path / "state", weights_only=True)
    resumed.load_state_dict(state["model"])
    going_on.load_state_dict(state["scorer"])
    torch.manual_seed(1)
    assert run_ahead(going_on, resumed, 7) == expected
    assert going_on.agreement == running.agreement


def test_a_check_holds_scores_against_the_model_as_it_is_when_they_are_used():
    model = fresh_net()
    running = begin(Ahead(sb.scorers.Forward(), 4, check=sb.experimental.Check(2, least=0)), model)
    found = []
    for i in range(4):
        wait = running.begin(BATCH, None)
        step(model)
        exact = begin(sb.scorers.Forward(), model).score(BATCH, None)
        found.append(measure(wait(), exact, 1 / 2))
        assert running.checked == len(BATCH[0]) * (1 + i // 2)
    correlation, overlap = ((found[0] + found[2]) / 2).tolist()
    assert correlation < 1
    assert running.agreement == sb.scorers.Agreement(correlation, overlap, 1 / 2, 2, 32)


def test_what_remembers_scores_passes_on_what_is_begun():
    context = sb.scorers.Context(8, 16, nn.Linear(1, 1), losses, examples=9)
    for wrap in (sb.scorers.Stale, sb.scorers.Predicted):
        scorer = wrap(Ahead(Counting(), 3, ahead=5))
        assert scorer.needs.remembers
        running = scorer.start(context)
        waits = [running.begin(of(2), torch.arange(2)) for _ in range(running.ahead)]
        assert [wait().tolist() for wait in waits] == [[count] * 2 for count in range(1, 6)]
        plain = wrap(Counting()).start(context)
        assert plain.ahead == 0
        assert plain.begin(of(2), torch.arange(2))().tolist() == [1] * 2


def test_as_many_batches_are_begun_ahead_as_a_window_needs():
    for window, rate, options, ahead in (
        (24, 1 / 3, {}, 3),
        (20, 0.4, {}, 3),
        (8, 1.0, {}, 1),
        (None, 1 / 4, {}, 4),
        (None, None, {}, 1),
        (24, 1 / 3, {"ahead": 7}, 7),
    ):
        context = sb.scorers.Context(8, window, nn.Linear(2, 3), losses, rate=rate)
        assert Ahead(FORWARD, 2, **options).start(context).ahead == ahead


@pytest.mark.parametrize(
    ("scorer", "device", "message"),
    [
        (sb.experimental.Pipelined(FORWARD, 2), "cpu", "CUDA.*cpu.*without Pipelined"),
        (sb.experimental.Pipelined(FORWARD, 2), "meta", "CUDA.*meta.*without Pipelined"),
        (sb.experimental.Pipelined(FORWARD, 2), None, "there is none"),
    ],
)
def test_a_device_other_than_cuda_and_no_model_are_refused(scorer, device, message):
    model = None if device is None else fresh_net().to(device)
    with pytest.raises(sb.ConfigurationError, match=message):
        begin(scorer, model)
