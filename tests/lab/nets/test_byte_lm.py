"""A language model of bytes: its size, and that it sees what came before and nothing else."""

import torch

from selective_backprop_lab.nets.byte_lm import ByteLM


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
