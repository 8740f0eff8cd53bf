"""A ledger returns the last or the first loss of each token, by document and position."""

import pytest
import torch
from fixture_transformer import WORDS, batch, make
from hypothesis import given
from hypothesis import strategies as st
from unhooked import unhooked

import selective_backprop as sb

DOCUMENTS, LENGTH = 5, 4
numbers = st.one_of(st.just(float("nan")), st.integers(0, 16).map(lambda n: n / 4))
visits = st.lists(
    st.tuples(
        st.lists(st.integers(0, DOCUMENTS - 1), min_size=1, max_size=3, unique=True),
        st.lists(numbers, min_size=1, max_size=LENGTH),
    ),
    max_size=6,
)


@given(visits, st.booleans())
def test_what_was_filed_last_or_first_is_recalled(found, first) -> None:
    ledger = sb.TokenLedger(DOCUMENTS, LENGTH, first=first)
    known: dict[tuple[int, int], float] = {}
    for documents, losses in found:
        ledger.file(torch.tensor(documents), torch.tensor([losses] * len(documents)))
        for document in documents:
            for place, loss in enumerate(losses):
                if loss == loss and not (first and (document, place) in known):
                    known[document, place] = loss
    recalled = ledger.recall(torch.arange(DOCUMENTS), LENGTH)
    expected = [
        [known.get((document, place), float("nan")) for place in range(LENGTH)]
        for document in range(DOCUMENTS)
    ]
    torch.testing.assert_close(recalled, torch.tensor(expected), equal_nan=True)
    other = sb.TokenLedger(DOCUMENTS, LENGTH, first=first)
    other.load_state_dict(ledger.state_dict())
    torch.testing.assert_close(
        other.recall(torch.tensor([2, 0]), 2), recalled[[2, 0], :2], equal_nan=True
    )


def test_tokens_whose_loss_rose_are_chosen_by_the_losses_they_had() -> None:
    model, (words, labels) = make(), batch()
    documents = torch.tensor([3, 1, 0, 2])
    ledger = sb.TokenLedger(len(words), words.shape[1])
    token_loss = sb.TokenLoss(model.head, sb.TokenSelection(1 / 4), shift=True)
    ledger.file(documents, token_loss.losses(model(words), labels))
    with torch.no_grad():
        model.words.weight[: WORDS // 2] += torch.randn(WORDS // 2, 16)
    now = token_loss.losses(model(words), labels)
    earlier = ledger.recall(documents, words.shape[1])
    risen = token_loss(model(words), labels, reference=earlier).kept
    left = ~risen & ~now.isnan()
    assert (now - earlier)[risen].min() >= (now - earlier)[left].max()
    before = token_loss.choose(labels, scores=earlier)
    assert before.sum() == risen.sum()
    assert earlier[before].min() >= earlier[~before & ~now.isnan()].max()


def test_a_loss_too_high_for_half_precision_is_the_highest_of_it() -> None:
    ledger = sb.TokenLedger(1, 2)
    ledger.file(torch.tensor([0]), torch.tensor([[1e9, torch.inf]]))
    assert ledger.recall(torch.tensor([0]), 2).tolist() == [[65504.0, 65504.0]]


def test_losses_are_filed_after_the_ledger_was_made_or_loaded_in_inference_mode() -> None:
    with torch.inference_mode():
        made, loaded = sb.TokenLedger(1, 2), sb.TokenLedger(1, 2)
        loaded.load_state_dict(made.state_dict())
    for ledger in (made, loaded):
        ledger.file(torch.tensor([0]), torch.tensor([[1.0, 2.0]]))
        assert ledger.recall(torch.tensor([0]), 2).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("documents", "shape", "said"),
    [
        ([5], (1, 4), "documents 5 to 5.*0 to 4"),
        ([-1, 2], (2, 4), "documents -1 to 2"),
        ([0], (1, 5), "of 5 tokens.*at most 4"),
        ([0], (2, 4), r"\(2, 4\) for 1 documents"),
        ([0], (4,), r"\(4,\)"),
    ],
)
def test_what_is_not_in_the_data_set_is_refused(documents, shape, said) -> None:
    ledger = sb.TokenLedger(DOCUMENTS, LENGTH)
    with pytest.raises(sb.ConfigurationError, match=said):
        ledger.file(torch.tensor(documents), torch.zeros(shape))


@pytest.mark.parametrize(
    ("documents", "found"), [([0], "list"), (torch.tensor([0.0]), "torch.float32")]
)
def test_numbers_of_documents_must_be_whole_and_in_a_tensor(documents, found) -> None:
    ledger = sb.TokenLedger(DOCUMENTS, LENGTH)
    with unhooked(), pytest.raises(sb.ConfigurationError, match=f"{found}; an int64 tensor"):
        ledger.recall(documents, LENGTH)


def test_a_state_of_another_size_is_refused() -> None:
    state = sb.TokenLedger(DOCUMENTS, LENGTH).state_dict()
    with pytest.raises(sb.ConfigurationError, match="losses"):
        sb.TokenLedger(DOCUMENTS, LENGTH + 1).load_state_dict(state)


def test_a_mask_that_changes_after_it_was_chosen_is_looked_at_again():
    hidden, labels = torch.rand(1, 4, 2), torch.tensor([[1, 2, -100, 3]])
    token_loss = sb.TokenLoss(torch.nn.Linear(2, 9))
    kept = token_loss.choose(labels)
    assert token_loss(hidden, labels, kept=kept).kept.equal(kept)
    kept[0, 0], kept[0, 2] = False, True
    assert token_loss(hidden, labels, kept=kept).kept.tolist() == [[False, True, False, True]]
    labels[0, 1] = -100
    assert token_loss(hidden, labels, kept=kept).kept.tolist() == [[False, False, False, True]]
