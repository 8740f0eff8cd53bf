"""Limit the CPU threads of an operation, in all libraries."""

import importlib

import torch
from threadpoolctl import threadpool_limits


def limit_threads(threads: int) -> None:
    """Let each operation of this process use `threads` threads."""
    torch.set_num_threads(threads)
    # Libraries that are loaded later would not be limited, and waiting threads make a Gaussian
    # process ten times slower. scikit-learn also loads SciPy's linear algebra.
    importlib.import_module("sklearn")
    threadpool_limits(threads)
