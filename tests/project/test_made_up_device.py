"""Where there is no GPU, the tests marked `cuda` run on a CUDA device that is made up."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from benchmarks.case import ROOT

FILES = [
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "tests").rglob("test_*.py"))
    if "pytest.mark.cuda" in path.read_text(encoding="utf-8")
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="they run on the real device")
@pytest.mark.skipif(
    shutil.which("g++") is None, reason="the made-up CUDA device needs g++: no test of CUDA runs"
)
def test_what_needs_a_cuda_device_passes_on_one_that_is_made_up():
    found = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-m", "cuda", "-q", "-rs", "--tb=short", *FILES),
            *("-p", "made_up_cuda", "-p", "no:fixture_checks", "-p", "no:cacheprovider"),
            *("-p", "no:xdist", "-W", "default"),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "src:.:tests/fixtures"},
        capture_output=True,
        text=True,
    )
    print(found.stdout)
    assert found.returncode == 0, found.stdout + found.stderr
    assert " passed" in found.stdout.splitlines()[-1]
    reasons = {line.partition(": ")[2] for line in found.stdout.splitlines() if "SKIPPED" in line}
    assert all("a made-up CUDA device lacks" in reason for reason in reasons), reasons
