"""Tables of examples for other tools: what stands in them, is written, and what cleanlab takes."""

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from unhooked import unhooked

import selective_backprop as sb

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"
LABELS = torch.tensor([0, 1, 1, 0, 2])
LOGITS = torch.tensor([[9.0, 0, 0], [0, 9, 0], [9, 0, 0], [0, 0, 1]])


@pytest.fixture
def doubts():
    """Of five examples the third looks wrong for sure, the fourth a little, one was never seen."""
    noted = sb.guide.Doubts(5)
    noted.note(torch.arange(4), LOGITS, LABELS[:4])
    return noted


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_doubts_become_the_columns_of_cleanlab_in_the_data_set_s_order(doubts):
    table = sb.guide.example_table(doubts)
    assert table["index"].tolist() == [0, 1, 2, 3, 4]
    assert table["given_label"].tolist() == [0, 1, 1, 0, -1]
    assert table["predicted_label"].tolist() == [0, 1, 0, 2, -1]
    assert table["looks"].tolist() == [1, 1, 1, 1, 0]
    doubt = np.tanh([-4.5, -4.5, 4.5, 0.5])
    quality = 0.5 - (doubt - 1.0) / 4.0  # with the look that is sure of the label
    np.testing.assert_allclose(table["label_quality"][:4], quality, rtol=1e-5)
    np.testing.assert_allclose(table["suspicion"][:4], (doubt - 1.0) / 2.0, atol=1e-6)
    assert np.isnan([table[name][4] for name in ("label_quality", "suspicion", "confidence")]).all()
    assert not table["is_label_issue"].any()
    for _ in range(2):
        doubts.note(torch.arange(4), LOGITS, LABELS[:4])
    assert sb.guide.example_table(doubts)["is_label_issue"].tolist() == [0, 0, 1, 1, 0]
    suspects = sb.guide.audit(doubts)
    for name, column in sb.guide.example_table(suspects).items():
        np.testing.assert_array_equal(column, sb.guide.example_table(doubts)[name])


def test_a_ledger_shows_last_losses_scores_classes_and_counts():
    ledger = sb.scorers.Ledger(4, depth=2)
    assert list(sb.guide.example_table(ledger)) == ["index", "times_trained"]
    for epoch, losses in enumerate(([0.5, 0.25], [2.0, 1.0])):
        ledger.hand_out(torch.tensor([0, 2]))
        ledger.record(torch.tensor([0, 2]), torch.tensor(losses), epoch)
    ledger.scored.file(torch.tensor([3]), torch.tensor([7.0]), 5)
    ledger.classify(torch.tensor([2]), torch.tensor([9.0]))
    table = {name: column.tolist() for name, column in sb.guide.example_table(ledger).items()}
    nan = pytest.approx(np.nan, nan_ok=True)
    assert table == {
        "index": [0, 1, 2, 3],
        "loss": [2.0, nan, 1.0, nan],
        "loss_epoch": [1, -1, 1, -1],
        "score": [nan, nan, nan, 7.0],
        "score_epoch": [-1, -1, -1, 5],
        "label": [-1, -1, 9, -1],
        "times_trained": [2, 0, 2, 0],
    }


def test_what_is_written_as_csv_is_read_again(doubts, tmp_path):
    table = {**sb.guide.example_table(doubts), "file": ["a", "b", "c", "d", 'e, "f"']}
    sb.guide.write_table(table, tmp_path / "all.csv")
    rows = read(tmp_path / "all.csv")
    assert list(rows[0]) == list(table)
    assert [row["file"] for row in rows] == table["file"]
    assert [row["label_quality"] == "" for row in rows] == [False] * 4 + [True]
    found = [float(row["label_quality"]) for row in rows[:4]]
    np.testing.assert_allclose(found, table["label_quality"][:4], rtol=1e-6)
    assert [row["is_label_issue"] for row in rows] == ["False"] * 5


FORMULAS = ["=1+2", "+3 4", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", Path("-x")]
PLAIN = ["a=1", "'=1", "", "-0.5", "+1e-3", "-inf", -2, -0.25, True, None]


@pytest.mark.parametrize("given", [FORMULAS, PLAIN])
def test_no_text_begins_as_a_formula_for_a_spreadsheet_and_numbers_stay_numbers(
    doubts, tmp_path, given
):
    cells = [str(each) for each in given]
    expected = [f"'{cell}" for cell in cells] if given is FORMULAS else cells
    sb.guide.write_table({"=name": cells, "-2": range(len(cells))}, tmp_path / "all.csv")
    rows = read(tmp_path / "all.csv")
    assert list(rows[0]) == ["'=name", "-2"]
    assert [row["'=name"] for row in rows] == expected
    suspects = sb.guide.audit(np.linspace(1.0, 2.0, len(given)))
    suspects.write_csv(tmp_path / "suspects.csv", extra={"@more": given})
    expected = [cell.replace("None", "") for cell in expected]
    assert [row["'@more"] for row in read(tmp_path / "suspects.csv")] == expected
    sb.guide.audit(doubts).write_csv(tmp_path / "all.csv", class_names=["=1", "@2", "-3"])
    assert {row["label"] for row in read(tmp_path / "all.csv")} == {"'=1", "'@2"}


def test_parquet_keeps_types_and_values(doubts, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = sb.guide.example_table(doubts)
    sb.guide.write_table(table, tmp_path / "all.parquet")
    found = pandas.read_parquet(tmp_path / "all.parquet")
    for name, column in table.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name].to_numpy(), column)


def test_what_cannot_be_written_is_refused_by_name_or_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for table, name, said in (
        ({"a": np.arange(2)}, "all.parquet", r"pip install pandas pyarrow.*\.csv"),
        ({"a": np.arange(2), "b": np.arange(3)}, "all.csv", r"'a': 2, 'b': 3"),
        ({"a": np.arange(2)}, "all.xlsx", r"all\.xlsx.*\.csv or \.parquet"),
    ):
        with pytest.raises(sb.ConfigurationError, match=said):
            sb.guide.write_table(table, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_suspects_of_losses_alone_have_no_labels_and_what_is_no_table_is_refused():
    table = sb.guide.example_table(sb.guide.audit(torch.tensor([3.0, 0.1])))
    assert list(table) == ["index", "suspicion", "label_quality", "is_label_issue", "looks"]
    for wrong in (None, [0.5], np.zeros((2, 2, 2))):
        with unhooked(), pytest.raises(sb.ConfigurationError, match=r"\[look, example\]"):
            sb.guide.example_table(wrong)


def test_the_page_logs_the_losses_of_any_loop_and_writes_them(doubts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    part = PAGE.read_text(encoding="utf-8").split("\n## For other tools")[1].split("\n## ")[0]
    inputs, model = torch.randn(12, 3), nn.Linear(3, 3)
    data = TensorDataset(inputs, inputs.argmax(1), torch.arange(12))
    names = {
        **{"torch": torch, "functional": functional, "sb": sb, "doubts": doubts},
        **{"files": list("abcde"), "epochs": 3, "data": data, "device": "cpu", "model": model},
        "indexed_loader": DataLoader(data, 5, shuffle=True),
        "optimizer": torch.optim.SGD(model.parameters(), 0.5),
    }
    with torch.no_grad():
        first = functional.cross_entropy(model(inputs), data.tensors[1])
    for block in re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE):
        exec(block, names)
    assert len(read(tmp_path / "examples.csv")) == 5
    rows = read(tmp_path / "losses.csv")
    assert list(rows[0]) == ["index", "loss_0", "loss_1", "loss_2"]
    means = [np.mean([float(row[f"loss_{epoch}"]) for row in rows]) for epoch in range(3)]
    assert means[2] < means[1] < means[0] < first + 0.2
    assert len(names["suspects"]) == 12
