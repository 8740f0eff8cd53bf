"""The step selects as its parts say, with reuse or without, and refuses what cannot work."""

import copy
import weakref
from collections.abc import Callable
from typing import Any

import fixture_reuse as nets
import pytest
import torch
from fixture_cheap import Coarse
from fixture_damage import refuse_all
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb

LOSS = nn.CrossEntropyLoss()
REUSE = sb.experimental.ReuseActivations()
QUARTER = sb.selective_backprop(rate=1 / 4, warmup_epochs=0)
TOP = sb.Strategy("top", sb.scorers.Forward(), sb.selectors.Top(rate=1 / 4))


@pytest.mark.parametrize("reuse", [None, REUSE])
def test_the_highest_losses_are_selected_and_come_back_with_gradients(reuse: Any) -> None:
    net = nets.mlp().double()
    inputs, targets = nets.candidates(nets.VECTORS, 0)
    selected = sb.SelectiveStep(net, LOSS, TOP, reuse=reuse)((inputs, targets))
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
    step = sb.SelectiveStep(net, None, TOP, losses=losses, whole=["scale"], reuse=REUSE)
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
    assert second.stats == whole.stats
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
    for reuse in (None, REUSE):
        step = sb.SelectiveStep(net, LOSS, TOP, nonfinite="skip", reuse=reuse)
        selected = step((inputs, targets))
        losses = functional.cross_entropy(net(inputs), targets, reduction="none")
        torch.testing.assert_close(selected.losses, losses[selected.rows])
        assert step.stats.nonfinite == 1
    with pytest.raises(sb.LossError, match="none of 12"):
        step((inputs * torch.nan, targets))


def test_memory_held_and_shares_are_told() -> None:
    step = sb.SelectiveStep(nets.mlp(), LOSS, QUARTER, reuse=REUSE)
    assert step.stats == sb.StepStats()
    assert step.stats.reused_share == 0.0
    batch = tuple(
        part.float() if part.is_floating_point() else part for part in nets.candidates((5,), 0)
    )
    step(batch)
    step(batch)
    found = step.stats
    assert (found.steps, found.candidates, found.kept) == (2, 24, 6)
    assert (found.operations, found.reused, found.reused_share) == (6, 3, 0.5)
    results, projections = 12 * (8 + 8 + 3) * 4, 3 * 12 * 4 * 4
    assert found.held_bytes == results + projections


class Keeping(nn.Module):
    """Keeps what it computes, in several ways."""

    def __init__(self, keep: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.first, self.last, self.keep = nn.Linear(5, 8), nn.Linear(8, 3), keep

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        self.keep(hidden)
        return self.last(hidden.relu())


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[2:, 1], lambda x: x.detach()])
def test_what_a_model_keeps_of_a_selection_pass_is_never_written_to(
    view: Callable[[Tensor], Tensor],
) -> None:
    kept: list[tuple[Tensor, Tensor]] = []
    net = Keeping(lambda hidden: kept.append((view(hidden), view(hidden).clone())))
    step = sb.SelectiveStep(net.double(), LOSS, TOP, reuse=REUSE)
    for seed in range(4):
        step(nets.candidates(nets.VECTORS, seed))
    assert len(kept) == 8
    assert all(torch.equal(one, other) for one, other in kept)


def test_memory_is_held_for_one_step_at_most() -> None:
    seen: list[weakref.ref[Any]] = []
    net = Keeping(lambda hidden: seen.append(weakref.ref(hidden)))
    step = sb.SelectiveStep(net.double(), LOSS, TOP, reuse=REUSE)
    for count in (12, 12, 16, 20, 16, 12):
        step(nets.candidates(nets.VECTORS, count, count))
        free = step._reuse._pool._free if step._reuse is not None else {}
        waiting = sum(len(tensors) for tensors in free.values())
        assert (waiting, {shape[0] for shape, _ in free}) == (2, {count})
    assert all(reference() is None for reference in seen)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (sb.selective_backprop(rate=1 / 3), "warmup_epochs=0"),
        (sb.selective_backprop(rate=1 / 3, warmup_epochs=0, draw="bernoulli"), 'draw="exact"'),
        (sb.infobatch(), "SelectiveLoader"),
        (
            sb.Strategy("stale", sb.scorers.Stale(sb.scorers.Forward()), sb.selectors.Top(1 / 3)),
            "SelectiveLoader",
        ),
    ],
)
def test_strategies_that_need_more_than_a_batch_are_refused(strategy: Any, message: str) -> None:
    with pytest.raises(sb.ConfigurationError, match=message):
        sb.SelectiveStep(nets.mlp(), LOSS, strategy)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.1)), "1 .Dropout."),
        (nn.TransformerEncoderLayer(8, 2, 8), "self_attn .MultiheadAttention."),
        (nn.LSTM(5, 3, num_layers=2, dropout=0.1), ".LSTM. has dropout"),
        (nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)), "candidate_statistics=True"),
        (torch.compile(nn.Linear(5, 3), backend="eager"), "compiled"),
    ],
)
def test_models_whose_activations_are_not_the_same_twice_are_refused(
    net: Any, message: str
) -> None:
    sb.SelectiveStep(net, LOSS, TOP)
    with pytest.raises(sb.ConfigurationError, match=message):
        sb.SelectiveStep(net, LOSS, TOP, reuse=REUSE)


def test_dropout_in_eval_mode_is_reused_and_refused_once_it_trains() -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double().eval()
    both = nets.pair(net)
    for seed in range(2):
        assert both.take(nets.candidates(nets.VECTORS, seed)) < 1e-12
    assert both.stats.reused == 2
    both.nets[1].train()
    with pytest.raises(sb.ConfigurationError, match=r"bernoulli.*draws random numbers"):
        both.steps[1](nets.candidates(nets.VECTORS, 2))


@pytest.mark.parametrize("noise", ["attention", "numbers"])
def test_random_numbers_that_no_module_announces_are_refused_at_the_first_step(noise: str) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(8, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            if noise == "numbers":
                return self.last((inputs + torch.rand_like(inputs)).mean(1))
            seen = functional.scaled_dot_product_attention(inputs, inputs, inputs, dropout_p=0.1)
            return self.last(seen.mean(1))

    step = sb.SelectiveStep(Noisy().double(), LOSS, TOP, reuse=REUSE)
    with pytest.raises(sb.ConfigurationError, match="draws random numbers"):
        step(nets.candidates(nets.SEQUENCES, 0))
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("scorer", [Coarse(8, None), None])
def test_scorers_that_compute_something_else_are_refused(scorer: Any) -> None:
    strategy = sb.Strategy("other", scorer, sb.selectors.Uniform(rate=1 / 3))
    with pytest.raises(sb.ConfigurationError, match=r"Forward\(\)"):
        sb.SelectiveStep(nets.mlp(), LOSS, strategy, reuse=REUSE)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_by_candidates_is_that_by_constants_and_moves_them_once(
    momentum: float | None,
) -> None:
    net = nets.convolutional(lambda width: nn.BatchNorm2d(width, momentum=momentum)).double()
    step = sb.SelectiveStep(
        net, LOSS, TOP, reuse=sb.experimental.ReuseActivations(candidate_statistics=True)
    )
    for seed in range(3):
        inputs, targets = nets.candidates(nets.IMAGES, seed)
        whole, constant = copy.deepcopy(net), copy.deepcopy(net)
        statistics = _statistics(whole, inputs)
        for name, module in constant.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean, module.running_var = statistics[name]
                module.eval()
        selected = step((inputs, targets))
        functional.cross_entropy(constant(inputs[selected.rows]), targets[selected.rows]).backward()
        selected.loss.backward()
        for one, other in zip(constant.parameters(), net.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-11, atol=1e-13)
            other.grad = None
        for name, buffer in whole.named_buffers():  # moved by one ordinary forward over all
            torch.testing.assert_close(net.get_buffer(name), buffer, rtol=1e-12, atol=1e-14)
    assert step.stats.reused_share == pytest.approx(2 / 3)


def _statistics(net: nn.Module, inputs: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Run an ordinary training forward, and return what each BatchNorm normalised by."""
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(
                lambda _, given, __, name=name: found.update(
                    {name: torch.var_mean(given[0].detach(), (0, 2, 3), correction=0)[::-1]}
                )
            )
    net(inputs)
    return found
