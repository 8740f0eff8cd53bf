"""Threads are limited in every library that computes."""

import os
import subprocess
import sys


def test_a_library_that_is_used_later_takes_no_more_threads_either():
    code = """if True:
        from threadpoolctl import threadpool_info
        from selective_backprop_lab.training.threads import limit_threads
        limit_threads(1)
        import scipy.linalg, sklearn.datasets, sklearn.gaussian_process, sklearn.linear_model
        for each in threadpool_info():
            print(each["filepath"], each["num_threads"])
    """
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    libraries = dict(line.rsplit(maxsplit=1) for line in printed.splitlines())
    assert len(libraries) > 1
    assert set(libraries.values()) == {"1"}, printed
