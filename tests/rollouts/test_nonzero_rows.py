"""Rows of gradient zero are left out, and training is as if they had been there."""

import io
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from unhooked import unhooked

import selective_backprop as sb

masks = st.lists(st.booleans(), min_size=1, max_size=9)


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))


def make_rollouts(nonzero, seed=0):
    """States, actions and advantages, as a policy gradient takes them."""
    torch.manual_seed(seed)
    rows = len(nonzero)
    advantages = torch.randn(rows).where(torch.tensor(nonzero), 0.0)
    states, actions = torch.randn(rows, 3), torch.randint(4, (rows,))
    return {"states": states, "actions": actions, "advantages": advantages}


def policy_losses(model, batch):
    logs = model(batch["states"]).log_softmax(1)
    return -batch["advantages"] * logs.gather(1, batch["actions"][:, None]).squeeze(1)


def weighed(model, pair):
    batch, selection = pair
    return (selection.weights * policy_losses(model, batch)).mean()


@given(masks)
def test_loss_and_gradient_are_those_of_the_whole_batch(nonzero):
    batch, whole, part = make_rollouts(nonzero), make_net(), make_net()
    wanted = policy_losses(whole, batch).mean()
    wanted.backward()
    [pair] = sb.NonzeroRows()(batch, batch["advantages"])
    assert len(pair[0]["states"]) == len(pair[1].weights) == max(1, sum(nonzero))
    assert pair[1].indices.tolist() == [n for n, kept in enumerate(nonzero) if kept] or [0]
    loss = weighed(part, pair)
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-6)
    loss.backward()
    for one, other in zip(part.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-6)


def test_rows_without_a_token_that_counts_are_left_out():
    labels = torch.tensor([[1, -100, 2], [-100, -100, -100], [-100, 3, -100]])
    [(batch, selection)] = sb.NonzeroRows()({"labels": labels}, labels != -100)
    assert batch["labels"].tolist() == labels[[0, 2]].tolist()
    assert selection.weights.tolist() == pytest.approx([2 / 3] * 2)


@given(batches=st.lists(masks, max_size=6), size=st.integers(1, 5), saved=st.integers(0, 5))
def test_batches_are_filled_up_in_order_and_go_on_from_a_saved_state(batches, size, saved):
    backfill, found, start = sb.NonzeroRows(backfill=size), [], 0
    for number, nonzero in enumerate(batches):
        rows = torch.arange(start, start + len(nonzero))
        start += len(nonzero)
        if number == saved:
            file = io.BytesIO()
            torch.save(backfill.state_dict(), file)
            file.seek(0)
            backfill = sb.NonzeroRows(backfill=size)
            backfill.load_state_dict(torch.load(file, weights_only=True))
        for batch, selection in backfill({"row": rows, "more": rows * 2}, torch.tensor(nonzero)):
            assert len(batch["row"]) == size
            assert selection.weights.tolist() == [1.0] * size
            assert batch["more"].tolist() == (batch["row"] * 2).tolist()
            found += batch["row"].tolist()
    kept = [row for row, each in enumerate(itertools.chain(*batches)) if each]
    assert found == kept[: len(kept) // size * size]


def test_rows_of_other_lengths_are_padded_and_what_is_whole_is_kept():
    backfill = sb.NonzeroRows(backfill=2, pad={"tokens": 9}, whole={"scale"})
    batches = []
    for width in (2, 3):
        batch = {"tokens": torch.ones(2, width, dtype=torch.int64), "scale": torch.arange(5)}
        batches += backfill(batch, torch.tensor([0.0, 1.0]))
    [(batch, _)] = batches
    assert batch["tokens"].tolist() == [[1, 1, 9], [1, 1, 1]]
    assert batch["scale"].tolist() == [0, 1, 2, 3, 4]


def test_rows_that_wait_stay_as_they_were_if_the_next_are_written_into_the_same_tensors():
    backfill, rollouts = sb.NonzeroRows(backfill=4), torch.empty(3, 2)
    assert backfill(rollouts.fill_(1.0), torch.ones(3)) == []
    [(batch, _)] = backfill(rollouts.fill_(2.0), torch.ones(3))
    assert batch[:, 0].tolist() == [1.0, 1.0, 1.0, 2.0]


def test_rows_on_two_devices_cannot_be_joined_and_the_message_names_both():
    backfill = sb.NonzeroRows(backfill=4)
    backfill({"row": torch.ones(3, 2)}, torch.ones(3))
    with pytest.raises(sb.BatchError, match=r"on meta, .* on cpu.* same type, device"):
        backfill({"row": torch.ones(3, 2, device="meta")}, torch.ones(3))


def test_a_batch_without_zero_rows_or_rows_is_passed_on_and_rows_without_values_are_zero_rows():
    batch = make_rollouts([True] * 5)
    [(same, selection)] = sb.NonzeroRows()(batch, torch.full((5, 2), torch.nan))
    assert same is batch
    assert selection.weights.tolist() == [1.0] * 5
    for shape in ((0,), (0, 4)):
        [(batch, selection)] = sb.NonzeroRows()(torch.ones(0, 2), torch.ones(shape))
        assert len(batch) == len(selection.weights) == 0
    [(batch, selection)] = sb.NonzeroRows()(torch.ones(3, 2), torch.ones(3, 0))
    assert selection.weights.tolist() == pytest.approx([1 / 3])


@pytest.mark.parametrize(
    ("batch", "values", "error", "message"),
    [
        (torch.ones(3, 2), torch.ones(2), sb.LossError, r"\(2,\).* 3 rows"),
        (torch.ones(3, 2), torch.tensor(1.0), sb.LossError, r"\(\).* 3 rows"),
        (torch.ones(3, 2), [1.0, 0.0, 1.0], sb.LossError, "no tensor.* 3 rows"),
        (torch.ones(3, requires_grad=True), torch.ones(3), sb.BatchError, "require gradients"),
        ({"a": torch.ones(3), "b": torch.ones(2)}, torch.ones(3), sb.BatchError, "2 rows"),
    ],
)
def test_what_cannot_be_told_apart_by_row_is_refused(batch, values, error, message):
    with unhooked(), pytest.raises(error, match=message):
        sb.NonzeroRows()(batch, values)


def test_a_path_that_the_batch_lacks_and_a_state_of_another_mode_are_refused():
    with pytest.raises(sb.BatchError, match="'scale'"):
        sb.NonzeroRows(whole={"scale"})({"row": torch.ones(2)}, torch.ones(2))
    match, backfill = sb.NonzeroRows(), sb.NonzeroRows(backfill=4)
    assert backfill(torch.ones(3, 2), torch.ones(3)) == []
    assert match.state_dict() == {}
    with pytest.raises(sb.ConfigurationError, match="buffer"):
        match.load_state_dict(backfill.state_dict())
    with pytest.raises(sb.ConfigurationError, match='lacks "buffer"'):
        backfill.load_state_dict({})
    [(batch, _)] = backfill(torch.zeros(3, 2), torch.ones(3))
    assert batch[:, 0].tolist() == [1.0, 1.0, 1.0, 0.0]
