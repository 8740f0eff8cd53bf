"""How many CPU threads an operation takes, in whatever library computes it."""

import importlib

import torch
from threadpoolctl import threadpool_limits


def limit_threads(threads: int) -> None:
    """Let operations of this process take so many threads."""
    torch.set_num_threads(threads)
    # A library that is loaded later would not be limited, and threads that wait for one another
    # make a Gaussian process ten times slower. This one loads SciPy's linear algebra too.
    importlib.import_module("sklearn")
    threadpool_limits(threads)
