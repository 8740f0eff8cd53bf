"""The step selects as its parts say, and refuses what cannot work."""

import copy
from typing import Any

import fixture_steps as nets
import pytest
import torch
from fixture_damage import refuse_all
from fixture_pipelined import Coarse
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb

LOSS = nn.CrossEntropyLoss()
QUARTER = sb.selective_backprop(rate=1 / 4, warmup_epochs=0)
TOP = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(rate=1 / 4))


def test_the_highest_losses_are_selected_and_come_back_with_gradients() -> None:
    net = nets.mlp().double()
    inputs, targets = nets.candidates(nets.VECTORS, 0)
    selected = sb.SelectiveStep(net, LOSS, TOP)((inputs, targets))
    with torch.no_grad():
        losses = functional.cross_entropy(net(inputs), targets, reduction="none")
    assert selected.rows.tolist() == losses.topk(3).indices.sort().values.tolist()
    torch.testing.assert_close(selected.losses.detach(), losses[selected.rows])
    assert selected.loss.item() == pytest.approx(losses[selected.rows].mean().item())
    assert selected.weights.tolist() == [1.0] * 3
    selected.loss.backward()
    assert all(weights.grad is not None for weights in net.parameters())


def test_weights_of_a_reweighting_strategy_are_in_the_loss() -> None:
    strategy = sb.Strategy("kath", sb.scorers.Forward(), sb.selectors.Proportional(presample=3))
    step = sb.SelectiveStep(nets.mlp().double(), LOSS, strategy)
    selected = step(nets.candidates(nets.VECTORS, 0))
    assert selected.weights.unique().numel() > 1
    torch.testing.assert_close(selected.loss, (selected.weights * selected.losses).mean())


def test_a_strategy_without_scores_selects_without_a_selection_pass() -> None:
    net, calls = nets.mlp().double(), []
    net.register_forward_hook(lambda *_: calls.append(1))
    step = sb.SelectiveStep(net, LOSS, sb.random_backprop(rate=1 / 3))
    assert len(step(nets.candidates(nets.VECTORS, 0)).rows) == 4
    assert len(calls) == 1
    whole = sb.SelectiveStep(net, LOSS, sb.traditional())
    assert whole(nets.candidates(nets.VECTORS, 0)).rows.tolist() == list(range(nets.CANDIDATES))


def test_cheap_scorers_say_how_far_they_agree() -> None:
    scorer = Coarse(8, sb.experimental.Check(8, least=0))
    net = nets.convolutional()
    step = sb.SelectiveStep(net, LOSS, sb.Strategy("cheap", scorer, sb.selectors.Top(rate=1 / 2)))
    assert step.agreement is None
    for seed in range(8):
        inputs, targets = nets.candidates(nets.IMAGES, seed)
        step((inputs.float(), targets))
    assert step.agreement is not None
    assert sb.SelectiveStep(net, LOSS, TOP).agreement is None


def test_losses_of_any_batch_can_be_given() -> None:
    def losses(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return (model(batch["x"])[:, 0] - batch["scale"]).square()

    net = nets.mlp().double()
    step = sb.SelectiveStep(net, None, TOP, losses=losses, whole=["scale"])
    inputs, _ = nets.candidates(nets.VECTORS, 0)
    scale = torch.tensor([2.0], dtype=torch.float64)
    selected = step({"x": inputs, "scale": scale})
    torch.testing.assert_close(
        selected.losses, losses(net, {"x": inputs[selected.rows], "scale": scale})
    )


def test_steps_draw_by_the_seed_alone_and_go_on_from_a_state() -> None:
    def make() -> sb.SelectiveStep:
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(7)
        return sb.SelectiveStep(nets.mlp().double(), LOSS, QUARTER, generator=generator)

    batches = [nets.candidates(nets.VECTORS, seed) for seed in range(6)]
    whole, first, second = make(), make(), make()
    rows = [whole(batch).rows.tolist() for batch in batches]
    state = torch.get_rng_state()
    halves = [first(batch).rows.tolist() for batch in batches[:3]]
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    halves += [second(batch).rows.tolist() for batch in batches[3:]]
    assert halves == rows
    assert second.stats == whole.stats == sb.StepStats(steps=6, candidates=72, kept=18)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_state_of_something_else_is_refused() -> None:
    step = sb.SelectiveStep(nets.mlp(), LOSS, QUARTER)
    with pytest.raises(sb.ConfigurationError, match=r"SelectiveStep\.state_dict"):
        step.load_state_dict({})
    with pytest.raises(sb.ConfigurationError, match="version 1"):
        step.load_state_dict(step.state_dict() | {"version": 1})
    other = sb.SelectiveStep(nets.mlp(), LOSS, sb.random_backprop(rate=1 / 3))
    state = other.state_dict()
    with pytest.raises(sb.ConfigurationError, match=r"strategy=.*random-backprop.*this one has"):
        step.load_state_dict(state)
    del state["built"]["strategy"]  # as older versions wrote it
    with pytest.raises(sb.ConfigurationError, match=r'"built".* lacks "strategy"'):
        step.load_state_dict(state)


def test_a_step_that_refused_damaged_states_goes_on_as_if_never_asked() -> None:
    net, generator = nets.mlp().double(), torch.Generator().manual_seed(7)
    asked, other = (sb.SelectiveStep(net, LOSS, QUARTER, generator=generator) for _ in range(2))
    rows = {asked: [], other: []}
    for seed in range(6):
        for step, seen in rows.items():
            seen.append(step(nets.candidates(nets.VECTORS, seed)).rows.tolist())
        if seed == 2:
            assert refuse_all(asked, asked.state_dict()) > 20
    assert rows[asked] == rows[other]
    assert asked.stats == other.stats


def test_losses_that_are_no_number_stop_the_step_or_are_skipped() -> None:
    net = nets.mlp().double()
    inputs, targets = nets.candidates(nets.VECTORS, 0)
    inputs[4] = torch.nan
    with pytest.raises(sb.LossError, match="not finite"):
        sb.SelectiveStep(net, LOSS, TOP)((inputs, targets))
    step = sb.SelectiveStep(net, LOSS, TOP, nonfinite="skip")
    selected = step((inputs, targets))
    losses = functional.cross_entropy(net(inputs), targets, reduction="none")
    torch.testing.assert_close(selected.losses, losses[selected.rows])
    assert step.stats.nonfinite == 1
    with pytest.raises(sb.LossError, match="none of 12"):
        step((inputs * torch.nan, targets))


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (sb.selective_backprop(rate=1 / 3), "warmup_epochs=0"),
        (sb.selective_backprop(rate=1 / 3, warmup_epochs=0, draw="bernoulli"), 'draw="exact"'),
        (sb.kath18(), r"pass it schedule=sb\.Schedule\(\), or"),  # it has no warmup_epochs=
        *((each, r"use SelectiveLoader, or top_k\(") for each in (sb.auto(), sb.stale_sb(1))),
        (sb.auto(stream=True), r"varies: use top_k\("),  # it has no draw=
    ],
)
def test_strategies_that_need_more_than_a_batch_are_refused(strategy: Any, message: str) -> None:
    with pytest.raises(sb.ConfigurationError, match=message):
        sb.SelectiveStep(nets.mlp(), LOSS, strategy)
