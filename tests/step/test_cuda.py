"""`SelectiveStep` on a CUDA device."""

import pytest
import torch
from torch.nn import functional

import selective_backprop as sb

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("nonfinite", ["raise", "skip"])
@pytest.mark.parametrize(
    "strategy", [sb.top_k(1 / 3), sb.selective_backprop(1 / 3, warmup_epochs=0)]
)
def test_what_a_batch_holds_on_the_host_keeps_the_rows_that_its_losses_on_the_device_choose(
    strategy, nonfinite
):
    net, seen = torch.nn.Linear(6, 3).cuda(), []
    inputs = torch.randn(48, 6, generator=torch.Generator().manual_seed(1))

    def losses(model, batch):
        inputs, places, array, listed = batch
        if torch.is_grad_enabled():
            seen.append((inputs.cpu(), places, torch.from_numpy(array), torch.tensor(listed)))
        found = functional.cross_entropy(model(inputs), (places % 3).cuda(), reduction="none")
        return found.where(places.cuda() > 0, torch.nan) if nonfinite == "skip" else found

    places = torch.arange(48)
    batch = (inputs.cuda(), places, places.numpy(), places.tolist())
    step = sb.SelectiveStep(net, None, strategy, losses=losses, nonfinite=nonfinite)
    rows = step(batch).rows.cpu()
    [(kept, *host)] = seen
    assert len(rows) in (15, 16)
    assert kept.equal(inputs[rows])
    assert all(each.equal(rows) for each in host)
