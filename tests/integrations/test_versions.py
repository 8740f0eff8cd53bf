"""A framework that is missing or too old is named, with what is needed and what to do."""

import pytest

import selective_backprop as sb
from selective_backprop.integrations._kit import require


def test_a_framework_that_is_missing_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"no-such-thing 3\.1.*not installed") as refusal:
        require("no-such-thing", "3.1")
    assert refusal.value.name == "no-such-thing"


def test_a_framework_that_is_too_old_is_named_with_what_to_do():
    require("torch", "2.8")
    require("numpy", "1.9")  # which is older than 1.26
    message = r"torch 2\.\d.* 99\.1 or newer.*pip install 'selective-backpro"
    with pytest.raises(sb.ConfigurationError, match=message):
        require("torch", "99.1")
