"""Without Lightning the adapter says what to install."""

import importlib
from importlib.util import find_spec

import pytest


def test_without_lightning_the_adapter_says_what_to_install():
    if find_spec("lightning") is not None:
        pytest.skip("lightning is installed")
    with pytest.raises(
        ImportError, match=r"not installed.*pip install 'selective-backprop\[lightning\]'"
    ):
        importlib.import_module("selective_backprop.integrations.lightning")
