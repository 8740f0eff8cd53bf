"""What ranks note of examples is filed in order, and a repeated one in turn."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import selective_backprop as sb
from selective_backprop._distributed.group import Group
from selective_backprop._memory.pending_updates import PendingUpdates, merge

EXAMPLES = 7
NOTES = st.lists(
    st.tuples(
        st.lists(st.integers(0, EXAMPLES - 1), max_size=5), st.integers(0, 3), st.floats(0, 1)
    ),
    max_size=6,
)


class Itself(Group):
    """A group of one, which answers itself."""

    def gather(self, message, doing):
        return message[None]


@given(notes=NOTES, depth=st.integers(1, 3))
def test_a_merged_ledger_holds_what_a_ledger_holds_that_all_was_filed_in(notes, depth):
    direct = sb.scorers.Ledger(EXAMPLES, depth, first=True)
    journal = PendingUpdates(EXAMPLES, depth)
    notes = sorted(notes, key=lambda note: note[1])  # time does not run backwards
    for numbers, epoch, score in notes:
        indices = torch.tensor(numbers, dtype=torch.int64)
        scores = torch.tensor([score + number for number in numbers])
        journal.score(indices, scores, epoch)
        journal.hand_out(indices)
        journal.record(indices, scores + 1, epoch)
        journal.classify(indices, scores.round())
        for one in range(len(numbers)):  # one at a time, since one may come twice
            direct.scored.file(indices[one : one + 1], scores[one : one + 1], epoch)
            direct.recorded.file(indices[one : one + 1], scores[one : one + 1] + 1, epoch)
            direct.classify(indices[one : one + 1], scores[one : one + 1].round())
        direct.hand_out(indices)
    ledger = sb.scorers.Ledger(EXAMPLES, depth, first=True)
    merged = PendingUpdates(EXAMPLES, depth)
    merged.load_state_dict(journal.state_dict())
    merge(merged, ledger, Itself(0, 1, torch.device("cpu")), [len(merged)])
    assert len(merged) == 0
    for name in ("scored", "recorded", "classes"):
        found, wanted = getattr(ledger, name), getattr(direct, name)
        assert found.empty == wanted.empty
        for one, other in zip(found.observe(), wanted.observe(), strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(ledger.recorded.first(), direct.recorded.first())
    assert ledger.selected.tolist() == direct.selected.tolist()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hand out", "record", "merge"]),
        st.lists(st.integers(0, EXAMPLES - 1), max_size=5, unique=True),
    ),
    max_size=30,
)


@given(steps=STEPS, depth=st.integers(1, 3))
def test_losses_of_one_hand_out_replace_one_another_before_and_after_a_merge(steps, depth):
    direct, ledger = (sb.scorers.Ledger(EXAMPLES, depth, first=True) for _ in range(2))
    journal = PendingUpdates(EXAMPLES, depth)
    for number, (step, numbers) in enumerate([*steps, ("merge", [])]):
        indices = torch.tensor(numbers, dtype=torch.int64)
        if step == "hand out":
            for each in (direct, journal):
                each.hand_out(indices)
        elif step == "record":
            for each in (direct, journal):
                each.record(indices, indices + number / 100, number // 10)
        else:
            merge(journal, ledger, Itself(0, 1, torch.device("cpu")), [len(journal)])
    for one, other in zip(ledger.recorded.observe(), direct.recorded.observe(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(ledger.recorded.first(), direct.recorded.first())
