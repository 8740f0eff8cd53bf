"""What every test runs under: checked annotations, one thread, and repeatable random cases."""

import signal
import sys
from pathlib import Path

import pytest
import torch

pytest_plugins = ["fixture_checks"]  # apart, since scripts/gpu runs without it

torch.set_num_threads(1)

TESTS = Path(__file__).parent
LONGEST = ("distributed", "reproductions/test_papers.py", "reproductions/test_training.py")
LONGEST += ("project/test_gpu_benchmark.py",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that none is left for the end."""
    first = tuple(TESTS / name for name in LONGEST)
    items.sort(key=lambda item: not any(item.path.is_relative_to(each) for each in first))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs more CUDA devices than there are, or what a made-up one lacks."""
    mark = item.get_closest_marker("cuda")
    needed = 0 if mark is None else mark.kwargs.get("devices", 1)
    if torch.cuda.device_count() < needed:
        pytest.skip(f"CUDA devices needed: {needed}")
    if needed and (lacks := mark.kwargs.get("real")) and "made_up_cuda" in sys.modules:
        pytest.skip(f"a made-up CUDA device lacks {lacks}")


@pytest.fixture
def lone_rank(tmp_path):
    """A process group of one rank."""
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture
def signals_as_usual():
    """Signals act, also where they were ignored when the tests began, as `nohup` and `&` do."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
