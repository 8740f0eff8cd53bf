"""Print, as JSON, the host waits and kernels of a steady batch on a CUDA device that is made up.

It is a process of its own, since the device must be there before torch is imported.
"""

import made_up_cuda  # noqa: F401 - first  # isort: skip

import json

from benchmarks.cases.launches import LAUNCHES

if __name__ == "__main__":
    print(json.dumps({name: count() for name, (count, *_) in LAUNCHES.items()}))
