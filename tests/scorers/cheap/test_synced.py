"""Scoring with a copy: how far it lags, what it costs, and that training never notices."""

import copy
import threading

import pytest
import torch
from fixture_doors import Net, NotedSampler, fixture_data, fresh_net, same_tensors
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from unhooked import unhooked

import selective_backprop as sb


def losses(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


BATCH = tuple(column[:16] for column in fixture_data().tensors)


def begin(scorer: sb.scorers.AbstractScorer, model: nn.Module | None) -> sb.scorers.RunningScorer:
    return scorer.start(sb.scorers.Context(8, 16, model, losses, rate=1 / 2))


def step(model: nn.Module) -> None:
    """One update, of batch statistics too."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.zero_grad()
    losses(model, BATCH).mean().backward()
    optimizer.step()


def exact_scores(model: nn.Module) -> list[float]:
    return begin(sb.scorers.Forward(), model).score(BATCH, None).tolist()


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_scores_are_those_of_the_model_at_the_last_update_of_the_copy(every):
    model, past = fresh_net(), []
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), every, check=None), model)
    for batch in range(11):
        step(model)
        past.append(exact_scores(model))
        assert running.score(BATCH, None).tolist() == past[batch - batch % every]
    assert len({tuple(scores) for scores in past}) == 11


def test_the_copy_takes_on_the_modes_that_the_model_is_in():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    running = begin(sb.scorers.Synced(sb.scorers.Forward(training=True), 1, check=None), model)
    for module in (model[1], model):
        scores = running.score(BATCH, None)
        assert scores.tolist() == losses(copy.deepcopy(model), BATCH).tolist()
        module.eval()


def test_parameters_that_are_shared_are_shared_in_the_copy():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3))
    model[1].weight = model[0].weight
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 1, check=None), model)
    step(model)
    assert running.score(BATCH, None).tolist() == exact_scores(model)


def test_a_model_of_no_parameters_is_scored():
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 2, check=None), nn.Identity())
    assert running.score((torch.randn(3, 4), torch.arange(3)), None).shape == (3,)


def test_neither_the_model_nor_its_gradients_are_touched_and_the_copy_asks_for_none():
    model = fresh_net()
    step(model)
    state = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    seen = []
    model.register_forward_hook(
        lambda module, *_: seen.append(any(p.requires_grad for p in module.parameters()))
    )
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 2, check=None), model)
    for _ in range(3):
        running.score(BATCH, None)
    assert seen == [False] * 3
    assert same_tensors(model.state_dict(), state)
    assert all(map(torch.equal, (p.grad for p in model.parameters()), gradients))


def test_an_update_allocates_no_tensors_anew():
    model, places = fresh_net(), []

    def note(module, *_):  # of the model at each step, of the copy at each pass
        places.append([tensor.data_ptr() for tensor in module.state_dict().values()])

    model.register_forward_hook(note)
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 1, check=None), model)
    for _ in range(3):
        step(model)
        running.score(BATCH, None)
    assert places[1] == places[3] == places[5]
    assert places[0] != places[1]


def test_the_check_covers_the_whole_interval():
    model = fresh_net()
    running = begin(
        sb.scorers.Synced(sb.scorers.Forward(), 12, sb.scorers.Check(4, least=0)), model
    )
    for batch in range(12):
        step(model)
        running.score(BATCH, None)
        assert running.checked == len(BATCH[0]) * (1 + batch // 3 if batch < 10 else 4)
    assert running.agreement.batches == 4
    assert running.agreement.correlation < 1


def test_without_a_lag_agreement_is_whole():
    model = fresh_net()
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 1, sb.scorers.Check(3)), model)
    for _ in range(3):
        step(model)
        running.score(BATCH, None)
    assert running.agreement.overlap == pytest.approx(1)
    assert running.agreement.correlation == pytest.approx(1)


@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_training_goes_on_from_a_state_bit_for_bit(stop, tmp_path):
    def run(model: nn.Module, running: sb.scorers.RunningScorer, steps: int) -> list[list[float]]:
        found = []
        for _ in range(steps):
            found.append(running.score(BATCH, None).tolist())
            step(model)
        return found

    scorer = sb.scorers.Synced(sb.scorers.Forward(), 3, check=sb.scorers.Check(2, least=0))
    torch.manual_seed(0)
    model = fresh_net()
    running = begin(scorer, model)
    run(model, running, stop)
    kept = {"model": model.state_dict(), "scorer": running.state_dict()}
    torch.save(kept, tmp_path / "state")
    torch.manual_seed(1)
    expected = run(model, running, 7)
    resumed = Net()
    going_on = begin(scorer, resumed)
    state = torch.load(tmp_path / "state", weights_only=True)
    resumed.load_state_dict(state["model"])
    going_on.load_state_dict(state["scorer"])
    torch.manual_seed(1)
    assert run(resumed, going_on, 7) == expected
    assert going_on.agreement == running.agreement


def test_a_state_does_not_move_with_the_copy_and_holds_none_that_is_about_to_be_replaced():
    model = fresh_net()
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 2, check=None), model)
    assert running.state_dict()["cheap"]["copy"] is None
    running.score(BATCH, None)
    state = running.state_dict()["cheap"]
    kept = {name: value.clone() for name, value in state["copy"].items()}
    for _ in range(3):
        step(model)
        running.score(BATCH, None)
    assert same_tensors(state["copy"], kept)


def make_door(model: nn.Module, scorer: sb.scorers.AbstractScorer) -> sb.SelectiveLoader:
    loader = DataLoader(fixture_data(), 5, sampler=NotedSampler(40))
    strategy = sb.selective_backprop(1 / 2, warmup_epochs=0, scorer=scorer)
    generator = torch.Generator().manual_seed(0)
    return sb.SelectiveLoader(loader, model, nn.CrossEntropyLoss(), strategy, generator=generator)


def train(door: sb.SelectiveLoader, model: nn.Module, epochs: int) -> dict[str, torch.Tensor]:
    for _ in range(epochs):
        torch.manual_seed(0)
        for inputs, targets in door:
            model.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.5 * parameter.grad
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("every", [1, 3])
def test_in_a_loader_it_is_the_lag_alone_that_tells_it_from_exact_scoring(every):
    def trained(scorer: sb.scorers.AbstractScorer) -> dict[str, torch.Tensor]:
        model = fresh_net()
        return train(make_door(model, scorer), model, 2)

    synced, exact = (
        trained(sb.scorers.Synced(sb.scorers.Forward(), every, check=None)),
        trained(sb.scorers.Forward()),
    )
    assert same_tensors(synced, exact) == (every == 1)


def test_a_loader_goes_on_from_its_state_bit_for_bit(tmp_path):
    scorer = sb.scorers.Synced(
        sb.scorers.Forward(), 3, sb.scorers.Check(9, least=0)
    )  # 8 batches are scored in an epoch
    model, other = fresh_net(), Net()
    door, resumed = make_door(model, scorer), make_door(other, scorer)
    weights = train(door, model, 1)
    torch.save({"model": weights, "door": door.state_dict()}, tmp_path / "state")
    expected = train(door, model, 1)
    list(resumed.sampler)  # the pass that the other one has made
    state = torch.load(tmp_path / "state", weights_only=True)
    other.load_state_dict(state["model"])
    resumed.load_state_dict(state["door"])
    assert same_tensors(train(resumed, other, 1), expected)
    assert resumed.agreement == door.agreement
    assert resumed.stats == door.stats
    assert door.agreement.batches == 9


def test_a_compiled_model_is_copied_compiled():
    model = fresh_net()
    compiled = torch.compile(model, backend="eager")
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 2, check=None), compiled)
    before = exact_scores(model)
    assert running.score(BATCH, None).tolist() == before
    step(model)
    assert running.score(BATCH, None).tolist() == before
    assert running.score(BATCH, None).tolist() == exact_scores(model)


def test_a_model_whose_parts_change_is_refused():
    model = nn.Sequential(nn.Linear(2, 3))
    running = begin(sb.scorers.Synced(sb.scorers.Forward(), 1, check=None), model)
    model[0] = nn.Linear(2, 5)
    with pytest.raises(sb.LoaderError, match=r"0\.bias, 0\.weight of the model changed"):
        running.score(BATCH, None)


def test_a_model_that_cannot_be_copied_is_refused():
    model = fresh_net()
    model.lock = threading.Lock()
    with pytest.raises(sb.ConfigurationError, match=r"\(Net\) cannot be copied.*pickle"):
        begin(sb.scorers.Synced(sb.scorers.Forward(), 2), model)


def test_without_a_model_there_is_nothing_to_copy():
    with pytest.raises(sb.ConfigurationError, match="there is none"):
        begin(sb.scorers.Synced(sb.scorers.Forward(), 2), None)


@pytest.mark.parametrize("every", [0, 1.5, -2])
def test_an_interval_that_is_none_is_refused(every):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"every={every}"):
        sb.scorers.Synced(sb.scorers.Forward(), every)
