"""Adult as published: numbers, categories, and what is missing."""

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.data import adult
from selective_backprop_lab.data.datasets import load

ROW = (
    "{age}, {work}, 7, Bachelors, 13, Divorced, Sales, Husband, White, Male, 9, 0, 40, Peru, {pay}"
)


def write(folder, *, end="."):
    def rows(*people, end=""):
        return "".join(
            ROW.format(age=age, work=work, pay=pay) + end + "\n" for age, work, pay in people
        )

    train = rows((20, "Private", "<=50K"), (30, "?", ">50K"), (40, "Private", ">50K"))
    (folder / "adult.data").write_text(train + "\n")
    test = rows((50, "Never-worked", ">50K"), end=end)
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + test)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(adult, "_ROWS", {"adult.data": 3, "adult.test": 1})


@pytest.mark.filterwarnings("ignore:invalid value")  # of columns that never change
def test_numbers_are_standardised_and_each_category_is_a_feature(small, tmp_path):
    (tmp_path / "adult").mkdir()
    write(tmp_path / "adult")
    data = load("adult", root=tmp_path)
    assert (data.train_labels.tolist(), data.test_labels.tolist()) == ([0, 1, 1], [1])
    age = torch.cat([data.train_inputs, data.test_inputs])[:, 0]
    assert torch.allclose(age, torch.tensor([-1.0, 0.0, 1.0, 2.0]) * 1.5**0.5)
    work = data.train_inputs[:, 6:9], data.test_inputs[:, 6:9]  # ?, Never-worked, Private
    assert work[0].tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert work[1].tolist() == [[0, 1, 0]]


def test_files_that_are_not_the_publishers_are_refused(small, tmp_path):
    with pytest.raises(sb.DataError, match=r"adult\.data or adult\.test.*archive\.ics\.uci"):
        load("adult", root=tmp_path)
    write(tmp_path, end="?")
    with pytest.raises(sb.DataError, match=r"adult\.test has 0 labelled rows, not 1"):
        load("adult", root=tmp_path)
    (tmp_path / "adult.data").write_text("<html>\n")
    with pytest.raises(sb.DataError, match=r"adult\.data cannot be read as 15 columns"):
        load("adult", root=tmp_path)
