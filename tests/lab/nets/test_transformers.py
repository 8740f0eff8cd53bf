"""A vision transformer: its size, what it sees, and what it refuses."""

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.nets.transformers import ByteLM, vision_transformer


@pytest.fixture
def net():
    torch.manual_seed(0)
    return vision_transformer(3, 5, 8, width=12, depth=2, heads=3).double()


def test_the_small_one_is_of_width_384_and_has_21_3_million_parameters():
    with torch.device("meta"):
        net = vision_transformer(3, 10, 32)
    count = sum(parameter.numel() for parameter in net.parameters())
    block = 12 * 384**2 + 13 * 384  # three for attention's inputs, one for its output, eight
    assert count == 12 * block + (48 + 1 + 64) * 384 + 2 * 384 + 3850
    assert round(count / 1e6, 1) == 21.3


def test_a_block_attends_as_its_formula_says(net):
    block, patches = net[1], torch.randn(2, 4, 12, dtype=torch.float64)
    normal = block.before_attention(patches)
    queries, keys, values = block.inward(normal).chunk(3, dim=2)
    heads = []
    for head in range(3):
        mine = slice(4 * head, 4 * head + 4)
        scores = queries[..., mine] @ keys[..., mine].mT / 2.0
        heads.append(scores.softmax(2) @ values[..., mine])
    attended = patches + block.outward(torch.cat(heads, dim=2))
    torch.testing.assert_close(block(patches), attended + block.perceptron(attended))


def test_sides_that_do_not_divide_are_refused():
    with pytest.raises(sb.ConfigurationError, match="9 pixels a side cannot be cut into patches"):
        vision_transformer(3, 10, 9)


def test_it_has_one_to_two_million_parameters_and_logits_for_each_byte():
    with torch.device("meta"):
        net = ByteLM(128, 256, 1)
        logits = net(torch.zeros(2, 128, dtype=torch.int64))
    width, block = 144, 12 * 144**2 + 13 * 144
    count = sum(parameter.numel() for parameter in net.parameters())
    assert count == 4 * block + (256 + 128 + 2 + 256) * width + 256
    assert 1e6 < count < 2e6
    assert logits.shape == (2, 256, 128)


def test_a_byte_changes_the_predictions_from_its_own_place_on():
    torch.manual_seed(0)
    net = ByteLM(8, 256, 1, width=36, depth=2).double()
    window = torch.arange(8).view(1, 8)
    other = window.clone()
    other[0, 5] = 200
    changed = (net(window) != net(other)).any(1)[0]
    assert changed.tolist() == [False] * 5 + [True] * 3
