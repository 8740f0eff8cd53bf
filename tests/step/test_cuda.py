"""On a CUDA device, steps on rows and tokens choose as on the CPU, and few make the host wait."""

import pytest
import torch
from fixture_cuda import no_waiting
from torch.nn import functional

import selective_backprop as sb

pytestmark = pytest.mark.cuda


def test_losses_on_a_device_are_filed_without_waiting_and_recalled_once_they_are_there():
    ledger = sb.TokenLedger(8, 4)
    documents, losses = torch.tensor([1, 3]), torch.tensor([[0.5, torch.nan, 2.0]] * 2)
    on_device = losses.cuda()
    with no_waiting():
        ledger.file(documents, on_device)
    documents[0] = 7  # what is on its way is of the numbers as they were
    assert ledger.recall(torch.tensor([2]), 3).isnan().all()
    found = ledger.recall(torch.tensor([1, 3], device="cuda"), 3)
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), losses, equal_nan=True)
    ledger.file(torch.tensor([1]), torch.tensor([[3.0]]).cuda())
    assert ledger.state_dict()["losses"][1, 0] == 3.0


def test_with_numbers_on_the_host_labels_on_a_device_are_chosen_as_on_the_host():
    ledger, labels = sb.TokenLedger(2, 4), torch.arange(8).view(2, 4)
    documents = torch.arange(2)
    ledger.file(documents, torch.rand(2, 4, generator=torch.Generator().manual_seed(0)))
    token_loss = sb.TokenLoss(torch.nn.Linear(2, 9), sb.TokenSelection(0.5))
    scores = ledger.recall(documents, 4)
    kept = token_loss.choose(labels.cuda(), scores, reference=scores.square())
    assert kept.is_cuda
    assert kept.cpu().equal(token_loss.choose(labels, scores, reference=scores.square()))
    assert token_loss.choose(labels, scores.cuda()).equal(token_loss.choose(labels, scores))


@pytest.mark.parametrize("values_on", ["cpu", "cuda"])
def test_rows_of_a_loaded_state_go_to_the_device_of_the_next_batch(values_on):
    before, backfill = sb.NonzeroRows(backfill=3), sb.NonzeroRows(backfill=3)
    before({"row": torch.zeros(2, 2)}, torch.ones(2))
    backfill.load_state_dict(before.state_dict())
    rows = {"row": torch.ones(2, 2, device="cuda")}
    [(batch, selection)] = backfill(rows, torch.ones(2, device=values_on))
    assert batch["row"].is_cuda
    assert batch["row"][:, 0].tolist() == [0.0, 0.0, 1.0]
    assert selection.indices.tolist() == [0, 1, 0]


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


def test_hidden_states_on_the_host_are_taken_at_places_chosen_on_the_device():
    labels, hidden = torch.arange(8).view(2, 4), torch.randn(2, 4, 2)
    head, last = torch.nn.Linear(2, 9), torch.nn.Linear(2, 2)
    kept = torch.tensor([[True, False, True, False], [False, True, True, True]])
    token_loss = sb.TokenLoss(head)
    expected = token_loss(hidden, labels, kept=kept).losses
    found = token_loss(hidden, labels.cuda(), kept=kept.cuda()).losses
    torch.testing.assert_close(found, expected, equal_nan=True)
    with sb.rows_only(kept.cuda(), last):
        output = last(hidden)
    torch.testing.assert_close(output[kept], last(hidden)[kept])
