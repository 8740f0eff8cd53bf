"""What every test runs under: checked annotations, one thread, and repeatable random cases."""

import signal
from pathlib import Path

import pytest
import torch
from hook import install_hook
from hypothesis import settings

# Before the package's first import.
install_hook("selective_backprop")

torch.set_num_threads(1)

# The tests are the same for everyone; scripts/search draws anew each time.
settings.register_profile(
    "same", deadline=None, max_examples=30, derandomize=True, database=None, print_blob=True
)
settings.register_profile("search", deadline=None, max_examples=100, print_blob=True)
settings.load_profile("same")

TESTS = Path(__file__).parent
LONGEST = ("distributed", "reproductions/test_papers.py", "reproductions/test_training.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that none is left for the end."""
    first = tuple(TESTS / name for name in LONGEST)
    items.sort(key=lambda item: not any(item.path.is_relative_to(each) for each in first))


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # which is part of what a record is known by
    yield
    torch.set_num_threads(before)


@pytest.fixture
def signals_as_usual():
    """Signals act, also where they were ignored when the tests began, as `nohup` and `&` do."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
