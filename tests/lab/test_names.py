"""A name is found however it is spelt, and a misspelt one is answered with what is nearly alike."""

import hashlib
from pathlib import Path

import fixture_lab
import pytest

import selective_backprop as sb
from selective_backprop_lab.data.datasets import DATASETS, data_name
from selective_backprop_lab.names import find_name, fingerprint
from selective_backprop_lab.nets.models import MODELS, model_name
from selective_backprop_lab.recipe import RECIPES, find_recipe
from selective_backprop_lab.strategies import STRATEGIES, parse_strategies


@pytest.mark.parametrize(
    ("find", "typed", "meant"),
    [
        (parse_strategies, "selective_backprop, Stale_SB", ("selective-backprop", "stale-sb")),
        (data_name, "fashion_mnist:5-9", "fashion-mnist:5-9"),
        (data_name, "CIFAR-10", "cifar10"),
        (model_name, "small-cnn", "small_cnn"),
        (model_name, "my-nets:make_it", "my-nets:make_it"),
    ],
)
def test_hyphens_underscores_and_case_make_no_difference(find, typed, meant):
    assert find(typed) == meant


def test_a_recipe_bears_the_name_of_its_data_as_the_lab_writes_it():
    assert find_recipe("Fashion_MNIST") == find_recipe("fashion-mnist")
    assert RECIPES.keys() == DATASETS.keys()


@pytest.mark.parametrize("names", [STRATEGIES, DATASETS, MODELS])
def test_no_two_names_are_taken_for_each_other(names):
    assert [find_name("name", name, names) for name in names] == list(names)


@pytest.mark.parametrize(
    ("find", "typed", "meant"),
    [
        (parse_strategies, "auto,selectve_backprop", "Did you mean selective-backprop"),
        (data_name, "minst", "Did you mean mnist"),
    ],
)
def test_what_was_meant_is_named_with_all_that_there_are(find, typed, meant):
    with pytest.raises(sb.ConfigurationError, match=rf"{meant}.*\? There are ") as refused:
        find(typed)
    known = {parse_strategies: STRATEGIES, data_name: DATASETS}[find]
    assert all(name in str(refused.value) for name in known)


def test_a_net_of_the_lab_has_none_and_neither_has_what_is_not_there():
    for name in ("small_cnn", "digits:0-4", "no_such_module:net", "no_such_net"):
        assert fingerprint(name) is None


def test_it_is_that_of_the_file_in_which_the_model_is_made(tmp_path, monkeypatch):
    (tmp_path / "passed_on.py").write_text(
        "from functools import partial\n"
        "from fixture_lab import run_plans, small_net\n"
        "made_here = partial(small_net)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def of_file(path):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]

    assert fingerprint("passed_on:small_net") == of_file(fixture_lab.__file__)
    assert fingerprint("passed_on:made_here") == of_file(tmp_path / "passed_on.py")
    before = fingerprint("passed_on:made_here")
    (tmp_path / "passed_on.py").write_text("edited, which what was imported does not know\n")
    assert fingerprint("passed_on:made_here") == before
