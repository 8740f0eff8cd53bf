"""Measuring on a GPU in one go: parts that fail or take too long are noted, and stop nothing."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def gpu():
    spec = importlib.util.spec_from_file_location("gpu_benchmark", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_benchmark"] = module  # where its dataclasses look for it
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SOURCE.parent)  # as for a script
        spec.loader.exec_module(module)
    yield module
    del sys.modules["gpu_benchmark"]


def test_every_test_marked_cuda_is_collected_where_the_packages_of_development_are_missing(
    gpu, request
):
    missing = ("beartype", "hypothesis", "jaxtyping", "xdist")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing})); "
        "import pytest; sys.exit(pytest.main())"
    )
    python, _, module, *arguments = gpu.tests().command
    assert module == "pytest"
    found = subprocess.run(
        [python, "-c", code, *arguments, "--collect-only", "-qq"],
        cwd=gpu.ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # plugins are packages, too
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    # All that there are, where all tests are run.
    marked = {each.nodeid for each in request.session.items if each.get_closest_marker("cuda")}
    assert marked <= set(found.stdout.splitlines())
    assert "tests/project/test_cuda.py::test_what_makes_the_host_wait_is_noticed" in found.stdout


def test_no_test_needs_cuda_without_the_mark(gpu):
    asks = re.compile(r"cuda\.(is_available|device_count)\(")
    files = (gpu.ROOT / "tests").rglob("test_*.py")
    assert not [file.name for file in files if asks.search(file.read_text(encoding="utf-8"))]


def part(gpu, code, record=None):
    return gpu.Part("a part", [sys.executable, "-c", code], record)


def test_a_part_that_fails_leaves_its_last_lines(gpu):
    found = gpu.run(part(gpu, "print('far'); raise SystemExit('so far')"), limit=60)
    assert (found.status, found.output) == (1, ["far", "so far"])
    assert "status 1" in gpu.said(found)


def test_a_part_that_takes_too_long_is_ended(gpu):
    found = gpu.run(part(gpu, "while True: pass"), limit=0.0)
    assert found.status is None
    assert gpu.said(found) == "took too long"


def test_what_an_earlier_run_wrote_is_not_taken_for_this_ones(gpu, tmp_path):
    record = tmp_path / "old.json"
    record.write_text("{}")
    gpu.run(part(gpu, "raise SystemExit(1)", record), limit=60)
    assert not record.exists()


@pytest.fixture
def measured(tmp_path):
    def ratio(median):
        return {"median": median, "low": median - 0.01, "high": median + 0.01, "rounds": 9}

    def write(precision):
        record = tmp_path / f"{precision}.json"
        found = {
            "config": {"model": "resnet18", "precision": precision},
            "scorers": {
                name: {"of_full": ratio(share)}
                for name, share in {"bf16": 0.2, "forward": 0.2, "fp32": 1.0}.items()
            },
            "strategies": {
                "traditional": {"relative": ratio(1.0)},
                "selective-backprop": {"relative": ratio(0.5)},
                "int8-sb": {"relative": ratio(0.395)},
                "int8-sb scored": {"relative": ratio(0.6)},
            },
        }
        record.write_text(json.dumps(found))
        return record

    return write


def test_demands_are_judged_by_the_whole_interval(gpu, measured):
    found = list(gpu.demands(measured("bf16")))
    assert [each["verdict"] for each in found] == ["pass", "fail", "unresolved"]
    assert [each["limit"] for each in found] == [0.3, 0.4, 0.4]
    assert found[0]["claim"] == "scoring in bf16, of an fp32 forward"
    assert found[2]["of"] == "resnet18 in bf16"
    assert len(list(gpu.demands(measured("fp32")))) == 1


def test_what_came_of_every_part_is_written(gpu, measured, tmp_path):
    outcome = gpu.run(part(gpu, "print('fine')"), limit=60)
    parts = [gpu.Part("one", [], measured("bf16")), gpu.Part("two", [], tmp_path / "none.json")]
    gpu.write(tmp_path / "gpu.json", [outcome], parts)
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert [each["output"] for each in record["parts"]] == [["fine"]]
    assert len(record["demands"]) == 3
    assert {"command", "written", "code_version", "versions", "hardware"} <= record.keys()


def test_each_model_is_measured_in_each_precision_those_at_stake_first(gpu, tmp_path):
    found = list(gpu.benches("cuda", 30.0, tmp_path))
    assert [each.name.split(" in ")[1] for each in found] == ["bf16", "bf16", "fp32", "fp32"]
    assert len({each.record for each in found}) == 4
    assert all("--device=cuda" in each.command for each in found)
    assert any("vit_small" in each.name for each in found)
