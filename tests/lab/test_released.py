"""Stale-SB as released trains as its program was seen to."""

import pytest
import torch
from torch import nn

import selective_backprop as sb
from selective_backprop_lab.released import stale_sb_as_released

EXAMPLES, BATCH = 6400, 128
# Scored, trained on and updates of seven epochs of the authors' program at n = 3 and β = 2. How
# many it draws in an epoch that scores depends on the seed.
FIFTH = (0, 1280, 10)
SEEN = [(6400, 6400, 50), FIFTH, FIFTH, (6400, 3840, 30), FIFTH, FIFTH, (6400, 3772, 30)]


def test_seven_epochs_score_and_train_as_often_as_the_released_program():
    torch.manual_seed(0)
    inputs = torch.randn(EXAMPLES, 4)
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    model, loss = nn.Linear(4, 2), nn.CrossEntropyLoss(reduction="none")
    loader = sb.SelectiveLoader(
        torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True),
        model,
        loss,
        stale_sb_as_released(1 / 3, epochs=3, history=1024),
        leftovers="flush",
        epochs=len(SEEN),
        with_selection=True,
        quiet=True,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for scored, trained, updates in SEEN:
        before, batches = loader.stats, []
        for (inputs, labels), selection in loader:
            losses = loss(model(inputs), labels)
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            loader.record(selection, losses.detach())
            batches.append(len(labels))
        assert loader.stats.scored - before.scored == scored
        assert sum(batches) == pytest.approx(trained, abs=0 if trained in (6400, 1280) else 200)
        assert len(batches) == pytest.approx(updates, abs=0 if updates in (50, 10) else 2)
        assert set(batches[:-1]) == {BATCH}
