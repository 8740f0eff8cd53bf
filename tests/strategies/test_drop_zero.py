"""What scores exactly zero is left out: where it is scored, or before it is loaded."""

import pytest
import torch
from fixture_loaders import NotedSampler, Numbered
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import selective_backprop as sb

EXAMPLES = 40


def hinge(model, batch):
    inputs, signs = batch
    return functional.relu(1.0 - signs * model(inputs).squeeze(1))


def test_batches_are_filled_up_with_what_has_a_hinge_loss():
    torch.manual_seed(0)
    inputs = torch.randn(EXAMPLES, 3)
    data = TensorDataset(inputs, inputs[:, 0].sign())
    model = nn.Linear(3, 1)
    nn.init.constant_(model.weight, 1.0)
    with torch.no_grad():
        losses = hinge(model, data.tensors)
    kept = losses.count_nonzero().item()
    assert EXAMPLES / 4 < kept < EXAMPLES * 3 / 4
    loader = sb.SelectiveLoader(DataLoader(data, 4), model, None, sb.drop_zero(), losses=hinge)
    batches = list(loader)
    assert [len(signs) for _, signs in batches] == [4] * (kept // 4)
    seen = torch.cat([rows for rows, _ in batches])
    assert torch.equal(seen, inputs[losses > 0][: kept // 4 * 4])
    assert (loader.stats.scored, loader.stats.kept) == (EXAMPLES, kept // 4 * 4)


class Prompts:
    """A loop over prompts that records the spread of the rewards in each prompt's group."""

    def __init__(self, max_age):
        self.data = Numbered(EXAMPLES)
        loader = DataLoader(self.data, 4, sampler=NotedSampler(EXAMPLES))
        options = {"with_selection": True, "leftovers": "flush"}
        strategy = sb.drop_zero(sb.scorers.Recorded(max_age))
        self.loader = sb.SelectiveLoader(loader, nn.Identity(), None, strategy, **options)

    def epoch(self, spread):
        seen = []
        for (_, numbers), selection in self.loader:
            seen += numbers.tolist()
            self.loader.record(selection, spread[numbers])
        return set(seen)


def test_prompts_without_a_spread_are_not_loaded_until_they_are_looked_at_again():
    spread = torch.ones(EXAMPLES)
    spread[::4] = 0.0
    everything, told = set(range(EXAMPLES)), set(range(EXAMPLES)) - set(range(0, EXAMPLES, 4))
    prompts = Prompts(max_age=2)
    assert [prompts.epoch(spread) for _ in range(5)] == [everything, told, told, everything, told]
    assert prompts.data.reads.tolist() == [2 if n % 4 == 0 else 5 for n in range(EXAMPLES)]
    spread[:] = 1.0
    seen = [prompts.epoch(spread) for _ in range(3)]
    assert seen == [told, everything, everything]


def test_an_epoch_in_which_nothing_is_left_says_so():
    prompts = Prompts(max_age=None)
    assert prompts.epoch(torch.zeros(EXAMPLES)) == set(range(EXAMPLES))
    with pytest.warns(
        sb.SelectionWarning, match=rf"had {EXAMPLES} candidates, and 0 examples wait.*batch size\.$"
    ):
        assert prompts.epoch(torch.zeros(EXAMPLES)) == set()
