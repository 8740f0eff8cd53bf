"""A kept part of a data set: what it holds, what it refuses, and that a file gives it back."""

import copy
import dataclasses
import os
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from unhooked import unhooked

import selective_backprop as sb

SCORES = torch.tensor([0.5, 0.25, 1.0, 0.0, 0.75])


def subset(**changes) -> sb.Subset:
    facts = {"scores": SCORES, "source": "EL2N, 2 models", "cost": 1.5} | changes
    return sb.Subset(facts.pop("indices", torch.tensor([2, 0])), facts.pop("examples", 5), **facts)


@given(st.sets(st.integers(0, 29), min_size=1), st.randoms())
def test_indices_come_in_any_order_and_are_filed_ascending(kept, chance):
    order = sorted(kept, key=lambda _: chance.random())
    found = sb.Subset(torch.tensor(order), 30)
    assert found.indices.tolist() == sorted(kept)
    assert found.mask().nonzero().flatten().tolist() == sorted(kept)
    assert found.mask().shape == (30,)
    assert len(found) == len(kept)
    assert found == sb.Subset(torch.tensor(sorted(kept)), 30)


def test_equal_content_is_equal_and_hashes_alike_in_every_process():
    indices, scores = torch.tensor([2, 0]), SCORES.clone()
    found = subset(indices=indices, scores=scores)
    indices.fill_(1)
    scores.fill_(0)  # it holds copies
    assert (found, found.scores.tolist()) == (subset(), SCORES.tolist())
    assert repr(found) == "Subset(2 of 5, 'EL2N, 2 models', digest a86a5fc00096)"
    again = [subset(indices=torch.tensor([0, 2])), copy.deepcopy(subset())]
    again.append(pickle.loads(pickle.dumps(subset())))
    assert {subset(), *again} == {subset()}
    assert subset() != subset().digest
    with pytest.raises(dataclasses.FrozenInstanceError):
        subset().source = "elsewhere"


@pytest.mark.parametrize(
    "change",
    [
        {"indices": torch.tensor([0, 3])},
        {"indices": torch.tensor([0])},
        {"examples": 6, "scores": None},
        {"scores": None},
        {"scores": SCORES.double()},
        {"scores": SCORES.flip(0)},
        {"source": "GraNd, 2 models"},
        {"cost": 0.0},
    ],
)
def test_any_other_content_makes_another_subset(change):
    assert subset(**change) != subset()
    assert repr(subset(**change)) != repr(subset())


@pytest.mark.parametrize(
    ("given", "filed"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float64),
    ],
)
def test_scores_of_any_type_are_filed_in_one_that_holds_them(given, filed):
    scores = (4 * SCORES).to(given)
    found = subset(scores=scores).scores
    assert found.dtype is filed
    assert torch.equal(found, 4 * SCORES.to(filed))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": torch.tensor([], dtype=torch.int64)}, "at least one"),
        ({"indices": torch.tensor([0, 5])}, "index 5 .* of 5"),
        ({"indices": torch.tensor([-1, 2])}, "index -1 "),
        ({"indices": torch.tensor([3, 1, 3])}, r"index 3 .*unique"),
        ({"indices": torch.tensor([0.0, 1.0])}, "whole numbers.*float32"),
        ({"indices": torch.tensor([True, False])}, r"mask\.nonzero"),
        ({"indices": torch.tensor([[0, 1]])}, r"shape \(1, 2\)"),
        ({"indices": [0, 1]}, "got list"),
        ({"scores": torch.zeros(4)}, r"\(5,\).*\(4,\)"),
        ({"scores": [0.0] * 5}, "got list"),
        (
            {"scores": torch.tensor([0.0, 1.0, torch.nan, 0.0, torch.inf])},
            r"2 of 5 scores .*\[2, 4\]",
        ),
    ],
)
def test_what_is_no_part_of_a_data_set_is_refused(change, message):
    with unhooked(), pytest.raises(sb.ConfigurationError, match=message):
        subset(**change)


def test_it_fits_a_data_set_of_its_size_alone():
    subset().check(5)
    with pytest.raises(sb.ConfigurationError, match=r"of 5 .* of 6"):
        subset().check(6)


@pytest.mark.parametrize("scores", [None, SCORES, SCORES.double()])
def test_a_file_gives_back_what_was_saved(tmp_path, scores):
    path = tmp_path / "deep" / "down.pt"
    saved = subset(scores=scores)
    saved.save(path)
    found = sb.Subset.load(str(path))
    assert found == saved
    assert repr(found) == repr(saved)
    assert (found.source, found.cost, found.examples) == (saved.source, saved.cost, 5)
    assert scores is None or torch.equal(found.scores, scores)
    assert [file.name for file in path.parent.iterdir()] == ["down.pt"]


class Burglar:
    def __reduce__(self):
        return os.mkdir, ("broken-in",)


def tamper(without=None, **changes):
    def write(path):
        subset().save(path)
        content = torch.load(path, weights_only=True) | changes
        content.pop(without, None)
        torch.save(content, path)

    return write


def rewrite(change):
    def write(path):
        subset().save(path)
        path.write_bytes(change(path.read_bytes()))

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, r"No such file.*kept\.pt"),
        (rewrite(lambda content: content[: len(content) // 2]), ""),
        (rewrite(lambda content: content.replace(SCORES.numpy().tobytes(), bytes(20))), ""),
        (lambda path: path.write_text("Dear Sir or Madam"), ""),
        (lambda path: torch.save({"weight": torch.ones(2)}, path), ""),
        (tamper(kind="selective_backprop.Subset 2"), "no selective_backprop.Subset 1"),
        (tamper(indices=torch.tensor([0, 1])), "digest"),
        (tamper(indices=torch.tensor([0, 9])), "index 9"),
        (tamper(digest=torch.ones(2)), ""),
        (tamper(more=1), '"?more'),
        (tamper(without="scores"), 'lacks "scores"'),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, write, message):
    path = tmp_path / "kept.pt"
    write(path)
    with unhooked(), pytest.raises(sb.DataError, match=f"(?s)as a subset: .*{message}.*save"):
        sb.Subset.load(path)


def test_a_file_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"kind": Burglar()}, "kept.pt")
    with pytest.raises(sb.DataError, match="cannot be read"):
        sb.Subset.load("kept.pt")
    assert not (tmp_path / "broken-in").exists()
