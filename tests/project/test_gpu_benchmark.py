"""Tests and measurements on a GPU: what runs there, and what is demanded of it."""

import os
import subprocess
import sys

import pytest

from benchmarks.cases import bench
from benchmarks.stale import ROOT


def test_every_test_marked_cuda_is_collected_where_the_packages_of_development_are_missing(
    request,
):
    missing = ("beartype", "hypothesis", "jaxtyping", "xdist")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing})); "
        "import pytest; sys.exit(pytest.main())"
    )
    files = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "pytest.mark.cuda" in path.read_text(encoding="utf-8")
    ]
    options = ["-m", "cuda", "-p", "no:fixture_checks", "-p", "no:cacheprovider", "-W", "default"]
    found = subprocess.run(
        [sys.executable, "-c", code, *options, *files, "--collect-only", "-q"],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # plugins are packages, too
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    # All that there are, where all tests are run.
    marked = {each.nodeid for each in request.session.items if each.get_closest_marker("cuda")}
    assert marked <= set(found.stdout.splitlines())
    assert "tests/project/test_cuda.py::test_what_makes_the_host_wait_is_noticed" in found.stdout


@pytest.mark.parametrize(("precision", "demands"), [("bf16", 3), ("fp32", 1)])
def test_demands_are_of_scoring_in_bf16_and_of_selective_epochs_in_bf16(
    precision, demands, monkeypatch
):
    def ratio(median):
        return {"median": median, "low": median - 0.01, "high": median + 0.01, "rounds": 9}

    scorers = {"bf16": 0.2, "fp32": 1.0} if precision == "fp32" else {"forward": 0.2, "fp32": 1.0}
    epochs = {"traditional": 1.0, "selective-backprop": 0.5, "pipelined-sb": 0.395}
    findings = {
        "scorers": {n: {"of_full": ratio(m), "overlap": 0.8} for n, m in scorers.items()},
        "strategies": {
            n: {"relative": ratio(m), "over_limit": ratio(m)} for n, m in epochs.items()
        },
        "remarks": {"fp32": "slow"},
    }
    monkeypatch.setattr(bench, "measure", lambda *_, **__: findings)
    (item,) = bench.bench.items(
        models=("tiny_cnn",), precisions=(precision,), data="1x8x8/3", batch_size=8, device="cpu"
    )
    rows = item.find()
    judged = [row["verdict"] for row in rows if "verdict" in row]
    assert judged == ["pass", "fail", "unresolved"][:demands]
    assert len(rows) == 5
    assert "slow" in [row.get("remark") for row in rows]
