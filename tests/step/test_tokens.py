"""The loss counts the tokens that the rule takes, and their gradient is that of their mean."""

import pytest
import torch
from fixture_language import MASKED
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import selective_backprop as sb

LOSSES = torch.tensor([[0.1, 2.0, 0.5, 0.4], [3.0, 0.2, 9.0, 1.0]])
TARGETS = torch.tensor([[4, 1, 7, MASKED], [2, 2, MASKED, 0]])
tokens = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.5, 7.25]), st.floats(0, 8), st.booleans()),
    min_size=1,
    max_size=24,
)


@given(tokens, st.floats(0.01, 1), st.booleans())
def test_tokens_loss_and_gradient_are_those_of_the_rule(found, rate, excess) -> None:
    values, behind, counts = (list(column) for column in zip(*found, strict=True))
    losses = torch.tensor([values], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([behind], dtype=torch.float64) if excess else None
    selected = sb.TokenSelection(rate)(losses, torch.tensor([counts]), reference=reference)
    asked = [place for place, counted in enumerate(counts) if counted]
    hardest = sorted(asked, key=lambda place: behind[place] * excess - values[place])
    expected = sorted(hardest[: max(1, round(rate * len(asked)))])  # of ties the first
    assert selected.kept.flatten().nonzero().flatten().tolist() == expected
    wanted = sum(values[place] for place in expected) / max(1, len(expected))
    assert selected.loss.item() == pytest.approx(wanted, abs=1e-12)
    selected.loss.backward()
    slopes = [1 / len(expected) if place in expected else 0.0 for place in range(len(values))]
    assert losses.grad.flatten().tolist() == pytest.approx(slopes, abs=1e-15)


def test_masks_and_masked_targets_say_which_tokens_count() -> None:
    half = sb.TokenSelection(1 / 2)
    by_targets, by_mask = half(LOSSES, TARGETS), half(LOSSES, TARGETS != MASKED)
    assert by_targets.kept.tolist() == [[False, True, False, False], [True, False, False, True]]
    assert by_mask.kept.equal(by_targets.kept)
    assert by_mask.loss == by_targets.loss == 2.0
    assert sb.TokenSelection(1 / 8)(LOSSES).loss == 9.0
    assert sb.TokenSelection(1 / 8, ignored=2)(LOSSES, TARGETS).kept.nonzero().tolist() == [[1, 2]]


def test_a_rate_of_one_is_the_mean_that_cross_entropy_takes() -> None:
    logits = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    targets = TARGETS.clamp(max=5)
    losses = functional.cross_entropy(logits, targets, reduction="none")
    [slope] = torch.autograd.grad(sb.TokenSelection(1.0)(losses, targets).loss, logits)
    whole = functional.cross_entropy(logits, targets)
    assert sb.TokenSelection(1.0)(losses, targets).loss.item() == pytest.approx(whole.item())
    torch.testing.assert_close(slope, torch.autograd.grad(whole, logits)[0])


@pytest.mark.parametrize("strange", [torch.nan, torch.inf, -torch.inf])
def test_what_is_masked_may_be_no_number_and_what_counts_shows_in_the_loss(strange) -> None:
    hidden = LOSSES.clone().masked_fill_(TARGETS == MASKED, strange).requires_grad_()
    selected = sb.TokenSelection(1 / 2)(hidden, TARGETS)
    selected.loss.backward()
    assert selected.loss == 2.0
    assert hidden.grad.isfinite().all()
    seen = LOSSES.clone()
    seen[0, 0] = strange
    lowest = strange == -torch.inf
    assert sb.TokenSelection(1 / 2)(seen, TARGETS).loss.isfinite() == lowest
    assert not sb.TokenSelection(1.0)(seen, TARGETS).loss.isfinite()


def test_a_token_that_the_reference_finds_impossible_comes_last_but_counts() -> None:
    reference = torch.zeros_like(LOSSES)
    reference[1, 0] = torch.inf
    selection = sb.TokenSelection(1.0)
    assert selection(LOSSES, TARGETS, reference=reference).kept.equal(TARGETS != MASKED)
    kept = sb.TokenSelection(1 / 6)(LOSSES, TARGETS, reference=reference).kept
    assert kept.nonzero().tolist() == [[0, 1]]


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(precision) -> None:
    losses = torch.full((4, 2048), 1.5, dtype=precision, requires_grad=True)
    loss = sb.TokenSelection(1.0)(losses).loss
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss == 1.5
    assert losses.grad.dtype == precision


def test_the_host_never_asks_the_device() -> None:
    on_no_device = torch.empty(3, 5, device="meta", requires_grad=True)
    targets = torch.empty(3, 5, device="meta", dtype=torch.int64)
    selected = sb.TokenSelection(1 / 3)(on_no_device, targets, reference=on_no_device.detach())
    selected.loss.backward()
    assert selected.kept.shape == on_no_device.grad.shape == (3, 5)


def test_one_graph_serves_whatever_is_selected() -> None:
    selection = sb.TokenSelection(1 / 2)
    graph = make_fx(lambda *given: tuple(selection(*given)), tracing_mode="fake")(LOSSES, TARGETS)
    for hidden in (TARGETS, TARGETS.roll(1, 0), torch.full_like(TARGETS, MASKED)):
        assert graph(LOSSES, hidden)[1].equal(selection(LOSSES, hidden).kept)


@pytest.mark.parametrize(
    ("losses", "options", "message"),
    [
        (torch.tensor(1.0), {}, "per token.*reduction="),
        (torch.ones(2, 3).long(), {}, "type torch.int64"),
        (LOSSES, {"targets": TARGETS.flatten()}, r"targets .*\(8,\).*\(2, 4\)"),
        (LOSSES, {"targets": TARGETS[:, 1:]}, "flattened or shifted"),
        (LOSSES, {"reference": LOSSES[0]}, r"reference .*\(4,\)"),
        (LOSSES, {"targets": LOSSES}, "targets .*float32"),
    ],
)
def test_what_is_not_one_number_per_token_is_refused(losses, options, message) -> None:
    with pytest.raises(sb.LossError, match=message):
        sb.TokenSelection(1 / 2)(losses, **options)
