"""Scoring in 16 bits: close to exact, and said to be slow where it is."""

import warnings

import pytest
import torch
from fixture_doors import cross_entropies as losses
from fixture_parts import Stateless
from torch import nn

import selective_backprop as sb
from selective_backprop.experimental import _wrappers
from selective_backprop.experimental._wrappers import _UnderAutocast, is_slow

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(_wrappers, "is_slow", lambda device: False)


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(rows: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(rows, 6, generator=generator)
    return inputs, torch.randint(4, (rows,), generator=generator)


def begin(
    scorer: sb.scorers.AbstractScorer, model: nn.Module, of=losses
) -> sb.scorers.RunningScorer:
    return scorer.start(
        sb.scorers.Context(64, 128, model, of, device=CPU, examples=256, rate=1 / 3)
    )


@pytest.mark.usefixtures("fast")
def test_scores_are_close_to_the_exact_ones_and_not_the_same():
    model = net()
    running = begin(
        sb.experimental.LowPrecision(sb.scorers.Forward(), sb.experimental.Check(1)), model
    )
    scores = running.score(batch(), None)
    exact = begin(sb.scorers.Forward(), model).score(batch(), None)
    assert torch.allclose(scores, exact, atol=0.05)
    assert not torch.equal(scores, exact)
    assert running.agreement.correlation > 0.99
    assert running.agreement.overlap > 0.95


@pytest.mark.usefixtures("fast")
def test_the_pass_is_run_in_the_type_and_the_check_is_not():
    model, seen = net(), []
    model.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs.dtype))
    running = begin(
        sb.experimental.LowPrecision(sb.scorers.Forward(), check=sb.experimental.Check(1)), model
    )
    running.score(batch(), None)
    running.score(batch(), None)
    assert seen == [torch.bfloat16, torch.float32, torch.bfloat16]
    with torch.autocast("cpu", dtype=torch.float16):
        running.score(batch(), None)
    assert seen[3:] == [torch.bfloat16]


def test_weights_cast_for_the_pass_are_remembered_by_nobody():
    seen = []

    class Plain(Stateless, sb.scorers.RunningScorer):
        """Takes no care of the caller's autocast, unlike `Forward`."""

        def score(self, batch, indices):
            seen.append(torch.is_autocast_cache_enabled())
            return torch.ones(256)

    _UnderAutocast(Plain(), "cpu").score(batch(), None)
    assert seen == [False]
    assert torch.is_autocast_cache_enabled()


@pytest.mark.usefixtures("fast")
def test_losses_of_16_bits_come_as_scores_of_32():
    running = begin(
        sb.experimental.LowPrecision(sb.scorers.Forward(), check=None),
        net(),
        lambda model, batch: model(batch[0])[:, 0],
    )
    assert running.score(batch(), None).dtype == torch.float32


@pytest.mark.usefixtures("fast")
def test_a_proxy_scores_in_the_type_and_learns_in_full_precision():
    proxy = sb.scorers.Proxy(net, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    running, byhand = (
        begin(sb.experimental.LowPrecision(proxy), nn.Identity()),
        begin(proxy, nn.Identity()),
    )
    for part in (running, byhand):
        part.learn(batch())
    assert running.score_exactly(batch(), None).tolist() == byhand.score(batch(), None).tolist()
    assert running.state_dict()["cheap"].keys() == byhand.state_dict().keys()


def test_where_the_hardware_is_slow_it_is_said_at_the_start(monkeypatch):
    asked = []
    monkeypatch.setattr(_wrappers, "is_slow", lambda device: asked.append(device) or True)
    with pytest.warns(sb.SelectionWarning, match=r"bfloat16.*time"):
        begin(sb.experimental.LowPrecision(sb.scorers.Forward()), net())
    assert asked == [CPU]


@pytest.mark.usefixtures("fast")
def test_where_it_is_not_nothing_is_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        begin(sb.experimental.LowPrecision(sb.scorers.Forward()), net())


@pytest.mark.parametrize(("avx", "amx", "slow"), [(0, 0, 1), (1, 0, 0), (0, 1, 0), (1, 1, 0)])
def test_a_processor_is_slow_without_either_extension(avx, amx, slow, monkeypatch):
    monkeypatch.setattr(_wrappers.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bool(avx), raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: bool(amx), raising=False)
    assert is_slow(CPU) == bool(slow)


def test_a_processor_of_which_nothing_is_known_is_not_called_slow(monkeypatch):
    monkeypatch.setattr(_wrappers.platform, "machine", lambda: "arm64")
    assert not is_slow(CPU)
    monkeypatch.setattr(_wrappers.platform, "machine", lambda: "x86_64")
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not is_slow(CPU)


@pytest.mark.parametrize(("capability", "slow"), [((7, 5), True), ((8, 0), False)])
def test_a_gpu_is_slow_before_its_generation_had_the_type(capability, slow, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert is_slow(CUDA) == slow


def test_a_device_without_autocast_is_refused():
    context = sb.scorers.Context(4, 8, net(), losses, device=torch.device("meta"))
    with pytest.raises(sb.ConfigurationError, match=r"autocast .*meta"):
        sb.experimental.LowPrecision(sb.scorers.Forward()).start(context)
