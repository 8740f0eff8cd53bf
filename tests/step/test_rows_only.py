"""Modules of the last block run on chosen positions, and train as on all."""

import fixture_transformer as small
import pytest
import torch
from fixture_transformer import assert_equal, gradients
from torch import Tensor, nn

import selective_backprop as sb

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def last(model: small.Transformer) -> tuple[nn.Module, ...]:
    block = model.blocks[-1]
    return block.project, block.between, block.mlp, model.norm


def chosen(rate: float = 1 / 4) -> tuple[Tensor, Tensor, Tensor]:
    words, labels = small.batch()
    scores = torch.rand(labels.shape, generator=torch.Generator().manual_seed(2))
    token_loss = sb.TokenLoss(nn.Linear(2, small.WORDS), sb.TokenSelection(rate), shift=True)
    return words, labels, token_loss.choose(labels, scores)


def hooks(model: nn.Module) -> int:
    return sum(len(e._forward_hooks) + len(e._forward_pre_hooks) for e in model.modules())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_loss_and_gradients_are_those_of_the_whole_model(checkpointed, device) -> None:
    words, labels, kept = (each.to(device) for each in chosen())
    model = small.make(tied=True, checkpointed=checkpointed).to(device)
    token_loss = sb.TokenLoss(model.head, shift=True)
    whole = token_loss(model(words), labels, kept=kept)
    expected = gradients(model, whole.loss)
    with sb.rows_only(kept, *last(model)):
        part = token_loss(model(words), labels, kept=kept)
        found = gradients(model, part.loss)  # inside, for what is computed again
    assert part.loss.item() == pytest.approx(whole.loss.item(), rel=1e-6)
    assert_equal(found, expected, 2e-6)
    assert hooks(model) == 0


def test_modules_see_the_chosen_positions_alone_and_others_pass_by() -> None:
    words, _, kept = chosen()
    model, seen = small.make(), []
    mlp = model.blocks[-1].mlp
    mlp[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with sb.rows_only(kept, mlp):
        hidden = torch.randn(*words.shape, small.FEATURES)
        output = mlp(hidden)
        model(words)
    assert set(seen) == {(1, int(kept.sum()), small.FEATURES)}
    assert not output[~kept].any()
    torch.testing.assert_close(output[kept], mlp(hidden[kept]))
    assert before.keys() == model.state_dict().keys()
    assert all(each.equal(before[name]) for name, each in model.state_dict().items())
    assert mlp(hidden).shape == hidden.shape


def test_an_error_inside_leaves_no_hooks_behind() -> None:
    model = small.make()
    _, _, kept = chosen()
    with pytest.raises(KeyError), sb.rows_only(kept, *last(model)):
        raise KeyError
    assert hooks(model) == 0


def test_modules_are_trained_after_a_call_in_inference_mode_with_the_same_mask() -> None:
    words, _, kept = chosen()
    mlp, hidden = nn.Linear(4, 4), torch.randn(*words.shape, 4)
    with torch.inference_mode(), sb.rows_only(kept, mlp):
        inside = mlp(hidden)
    with sb.rows_only(kept, mlp):
        output = mlp(hidden)
    output.sum().backward()
    assert output.equal(inside)
    assert mlp.weight.grad.any()


def test_no_position_at_all_is_a_loss_of_zero() -> None:
    words, labels = small.batch()
    model, kept = small.make(), torch.zeros_like(labels, dtype=torch.bool)
    with sb.rows_only(kept, *last(model)):
        selected = sb.TokenLoss(model.head, shift=True)(model(words), labels, kept=kept)
    assert selected.loss == 0
    assert not any(each.any() for each in gradients(model, selected.loss))


def test_a_compiled_model_trains_alike_inside_and_afterwards() -> None:
    words, labels, kept = chosen()
    model = small.make()
    compiled = torch.compile(model, backend="eager")
    token_loss = sb.TokenLoss(model.head, shift=True)
    expected = gradients(model, token_loss(model(words), labels, kept=kept).loss)
    for mask in (kept, kept.roll(1, 0)):
        with sb.rows_only(mask, *last(model)):
            selected = token_loss(compiled(words), labels, kept=mask)
        if mask is kept:
            assert_equal(gradients(model, selected.loss), expected, 1e-5)
    whole = token_loss(compiled(words), labels)
    torch.compiler.reset()
    assert whole.loss.item() == pytest.approx(token_loss(model(words), labels).loss.item())


class Pairs(nn.Module):
    """Takes two tensors by name, and returns them in a tuple with something beside them."""

    def forward(self, *, one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        rows, tokens, features = one.shape  # as mixtures of experts ask
        return one + two, two.view(rows * tokens, features).view(rows, tokens, features)


def test_several_tensors_go_in_and_come_out() -> None:
    kept = torch.tensor([[True, False], [False, True]])
    one, two = torch.randn(2, 2, 3), torch.randn(2, 2, 3)
    pairs = Pairs()
    with sb.rows_only(kept, pairs):
        both = pairs(one=one, two=two)
    for found, whole in zip(both, (one + two, two), strict=True):
        assert found.equal(torch.where(kept[..., None], whole, 0.0))


def test_what_mixes_positions_is_refused() -> None:
    kept = torch.ones(2, 3, dtype=torch.bool)
    for module in (
        nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2)),
        nn.TransformerEncoderLayer(4, 2, batch_first=True),
        nn.BatchNorm1d(4),
        nn.Conv1d(4, 4, 3),
        nn.GRU(4, 4),
    ):
        with (
            pytest.raises(sb.ConfigurationError, match=f"{type(module).__name__} holds"),
            sb.rows_only(kept, module),
        ):
            pass


def test_a_mask_and_tensors_of_other_shapes_are_refused() -> None:
    kept, linear = torch.ones(2, 3, dtype=torch.bool), nn.Linear(4, 4)
    with pytest.raises(sb.ConfigurationError, match="kept is"), sb.rows_only(kept + 0):
        pass
    with (
        pytest.raises(sb.BatchError, match=r"Linear got no tensor of shape \(2, 3, 'features'\)"),
        sb.rows_only(kept, linear),
    ):
        linear(torch.randn(6, 4))
    flat = nn.Flatten(0)
    with (
        pytest.raises(sb.BatchError, match=r"Flatten returned .*\(24,\)"),
        sb.rows_only(kept, flat),
    ):
        flat(torch.randn(2, 3, 4))
