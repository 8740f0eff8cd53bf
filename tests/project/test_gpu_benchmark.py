"""Measuring on a GPU in one go: parts that fail or take too long are noted, and stop nothing."""

import os
import re
import subprocess
import sys

import pytest

from benchmarks.cases import bench, gpu
from selective_backprop_lab.bench.harness import Findings, ScorerCost, StrategyCost
from selective_backprop_lab.bench.rounds import Median


def test_every_test_marked_cuda_is_collected_where_the_packages_of_development_are_missing(
    request,
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


def test_no_test_needs_cuda_without_the_mark():
    asks = re.compile(r"cuda\.(is_available|device_count)\(")
    files = (gpu.ROOT / "tests").rglob("test_*.py")
    assert not [file.name for file in files if asks.search(file.read_text(encoding="utf-8"))]


def part(code, record=None):
    return gpu.Part("a part", [sys.executable, "-c", code], record)


def test_a_part_that_fails_leaves_its_last_lines(capsys):
    (row,) = gpu.run(part("print('far'); raise SystemExit('so far')"), limit=60)
    assert (row["median"], row["verdict"], row["output"]) == (1, "fail", ["far", "so far"])
    assert capsys.readouterr().out == "far\nso far\n"


def test_a_part_that_takes_too_long_is_ended():
    (row,) = gpu.run(part("while True: pass"), limit=0.0)
    assert row["median"] == gpu.TOO_LONG


def test_what_a_part_measured_stands_beside_how_it_ended(tmp_path):
    record = tmp_path / "a.json"
    code = f'open({str(record)!r}, \'w\').write(\'{{"rows": [{{"quantity": "x"}}]}}\'); exit(1)'
    ended, found = gpu.run(part(code, record), limit=60)
    assert (ended["median"], ended["verdict"]) == (0, "pass")  # it is a limit that was not kept
    assert found == {"quantity": "x"}


def test_parts_are_chosen_by_the_beginnings_of_their_names():
    names = [each.about["part"] for each in gpu.gpu.items(device="cpu", parts=("tests", "vit"))]
    assert names == ["tests", "vit_narrow in bf16", "vit_narrow in fp32"]


def test_each_model_is_measured_in_each_precision_those_at_stake_first(tmp_path):
    found = list(gpu.benches("cuda", 30.0, tmp_path))
    assert [each.name.split(" in ")[1] for each in found] == ["bf16", "bf16", "fp32", "fp32"]
    assert len({each.record for each in found}) == 4
    assert all("device=cuda" in each.command for each in found)
    assert any("vit_small" in each.name for each in found)


@pytest.mark.parametrize(("precision", "demands"), [("bf16", 3), ("fp32", 1)])
def test_demands_are_of_scoring_in_bf16_and_of_selective_epochs_in_bf16(
    precision, demands, monkeypatch
):
    def ratio(median):
        return Median(median, median - 0.01, median + 0.01, rounds=9)

    scorers = {"bf16": 0.2, "fp32": 1.0} if precision == "fp32" else {"forward": 0.2, "fp32": 1.0}
    epochs = {"traditional": 1.0, "selective-backprop": 0.5, "int8-sb": 0.395}
    findings = Findings(
        config={},
        rounds=9,
        step={},
        backward=ratio(2.0),
        scorers={n: ScorerCost(ratio(m), ratio(m), 0.9, 0.8) for n, m in scorers.items()},
        strategies={n: StrategyCost(ratio(m), ratio(m), ratio(m), {}) for n, m in epochs.items()},
        remarks={"fp32": "slow"},
    )
    monkeypatch.setattr(bench, "measure", lambda *_, **__: findings)
    (item,) = bench.bench.items(
        model="tiny_cnn", data="1x8x8/3", batch_size=8, device="cpu", precision=precision
    )
    rows = item.find()
    judged = [row["verdict"] for row in rows if "verdict" in row]
    assert judged == ["pass", "fail", "unresolved"][:demands]
    assert len(rows) == 5
    assert "slow" in [row.get("remark") for row in rows]
