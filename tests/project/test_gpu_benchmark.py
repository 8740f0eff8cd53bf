"""Tests and measurements on a GPU: what runs there, and what is demanded of it."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu_session
from benchmarks.case import ROOT, find_cases, measure
from benchmarks.cases import bench

MISSING = ("beartype", "hypothesis", "jaxtyping", "xdist")


@pytest.mark.skipif(torch.cuda.is_available(), reason="they run on the real device")
@pytest.mark.skipif(shutil.which("g++") is None, reason="the made-up CUDA device needs g++")
def test_all_tests_for_cuda_pass_on_a_made_up_device_but_those_that_need_a_real_one(request):
    """They run where packages of the group `dev` are missing, as on the machine of scripts/gpu."""
    tests = (ROOT / "tests").rglob("test_*.py")
    files = {
        str(path.relative_to(ROOT))
        for path in tests
        if path.name != Path(__file__).name and "pytest.mark.cuda" in path.read_text("utf-8")
    }
    # All that there are, where all tests are run.
    marked = (each for each in request.session.items if each.get_closest_marker("cuda"))
    assert {str(each.path.relative_to(ROOT)) for each in marked} <= files
    code = f"import sys; sys.modules.update(dict.fromkeys({MISSING})); import pytest; "
    code += "sys.exit(pytest.main())"
    options = ["-m", "cuda", "-q", "-rs", "--tb=short", "-p", "made_up_cuda", "-W", "default"]
    options += ["-p", "no:fixture_checks", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": "src:.:tests/fixtures"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins are packages, too
    command = [sys.executable, "-c", code, *options, *sorted(files)]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert " passed" in found.stdout.splitlines()[-1]
    reasons = {line.partition(": ")[2] for line in found.stdout.splitlines() if "SKIPPED" in line}
    assert all("a made-up CUDA device lacks" in reason for reason in reasons), reasons


@pytest.mark.parametrize(("precision", "demands"), [("bf16", 3), ("fp32", 1)])
def test_demands_are_of_scoring_in_bf16_and_of_selective_epochs_in_bf16(
    precision, demands, monkeypatch
):
    def ratios(*names, **medians):
        spread = {n: {"low": m - 0.01, "median": m, "high": m + 0.01} for n, m in medians.items()}
        return {n: dict.fromkeys(names, each | {"rounds": 9}) for n, each in spread.items()}

    cheap = "bf16" if precision == "fp32" else "forward"
    scorers = ratios("of_full", **{cheap: 0.2, "fp32": 1.0})
    epochs = {"traditional": 1.0, "selective-backprop": 0.5, "pipelined-sb": 0.395}
    findings = {
        "scorers": {name: each | {"overlap": 0.8} for name, each in scorers.items()},
        "strategies": ratios("relative", "over_limit", **epochs),
        "remarks": {"fp32": "slow"},
    }
    monkeypatch.setattr(bench, "measure", lambda *_, **__: findings)
    settings = {"models": ("tiny_cnn",), "precisions": (precision,), "data": "1x8x8/3"}
    rows = [*bench.bench.items(**settings, batch_size=8, device="cpu")]
    judged = [row["verdict"] for row in rows if "verdict" in row]
    assert judged == ["pass", "fail", "unresolved"][:demands]
    assert len(rows) == 5
    assert "slow" in [row.get("remark") for row in rows]


def test_without_a_cuda_device_it_says_so_and_runs_nothing(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu_session.main([]) == 2
    assert capsys.readouterr().out == "no CUDA device: --device cpu rehearses\n"


def test_parts_share_the_seconds_and_what_one_leaves_goes_to_the_others(
    monkeypatch, capsys, tmp_path
):
    clock, seconds, given = [0.0], 600.0, {}

    def run(part, most, log, grace):
        given[part.name] = most
        clock[0] += 1.0 if part.name == "probe" else most  # all but one use up their shares
        return "unfinished" if part.name == "papers" else "done"

    monkeypatch.setattr(gpu_session, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(gpu_session, "run", run)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setenv("OUT", str(tmp_path))
    assert gpu_session.main(["--root", str(tmp_path)]) == 1
    assert clock[0] == pytest.approx(seconds - gpu_session.GRACE)
    assert given["tests"] / given["sanitizer"] == pytest.approx(22 / 5)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("NVIDIA H200")
    table = told[told.index("part             seconds verdict") + 1 :]
    assert [line.split()[0] for line in table] == list(given)
    assert table[0].split() == ["probe", "1", "done"]
    assert table[-1].split()[::2] == ["papers", "unfinished"]
    assert gpu_session.main(["--only", "probe"]) == 0


@pytest.mark.parametrize(
    ("status", "last", "said"),
    [
        (0, "== 183 skipped in 9.00s ==", "skipped: 183 skipped"),
        (0, "== 12 passed, 3 skipped in 9.00s ==", "passed: 12 passed, 3 skipped"),
        (1, "== 1 failed, 3 passed in 9s ==", "failed with exit status 1, 1 failed, 3 passed"),
        (0, "187/299 tests collected (112 deselected) in 1s", "collected: 187/299 tests collected"),
        (5, "no tests collected in 1s", "failed with exit status 5"),
        (1, "bench.bench: 1.0 limit 0.3 verdict fail", "over a limit"),
        (0, "a row", "done"),
        (-11, None, "failed with exit status -11"),
    ],
)
def test_a_verdict_counts_tests_and_skipped_ones_are_not_passed(status, last, said):
    assert gpu_session.verdict(status, [last] if last else []) == said
    assert not said.startswith("skipped") or not said.startswith(gpu_session.FINE)


def test_the_papers_need_a_folder_with_data_sets(tmp_path):
    for root in (None, tmp_path):
        *_, papers = gpu_session.parts_of("cuda", root, tmp_path)
        assert papers.command(100.0)[-4:-2] == (["--root", str(root)] if root else [])
        if not root:
            assert gpu_session.run(papers, 0.0, tmp_path / "log", 0.0) == "left out, no --root"


@pytest.mark.parametrize(
    ("handler", "grace", "status"), [("lambda *_: exit(7)", 60, 7), ("signal.SIG_IGN", 0, -9)]
)
def test_a_part_whose_time_is_over_may_save_its_work_before_it_is_killed(handler, grace, status):
    code = f"import signal; signal.signal(signal.SIGTERM, {handler}); print(flush=True); "
    command = [sys.executable, "-c", code + "signal.pause()"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    with process.stdout:
        process.stdout.readline()  # now it handles the signal
    gpu_session.end(process, grace)
    assert process.returncode == status


@pytest.mark.parametrize("name", ["probe.steps", "probe.lab"])
def test_what_limits_training_is_told_by_the_times_of_the_wall_and_of_the_host(name):
    (found,) = find_cases([name])
    small = {"device": "cpu", "net": "tiny_cnn", "size": 8, "count": 4}
    rows = list(measure(found, found.settings | small, rounds=1))
    assert {row["quantity"].rpartition(", ")[2] for row in rows} == {"wall", "host"}
    assert all(row["median"] > 0 for row in rows)


# What TRL itself still asks of Transformers.
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_a_model_that_learned_the_tasks_is_updated_alike_by_trl_s_trainer_and_on_fewer_rows():
    pytest.importorskip("trl")
    (sized,) = find_cases(["trl.sized"])
    settings = sized.settings | {"device": "cpu", "seconds": math.inf, "rounds": 1}
    plain, fewer = measure(sized, settings)
    assert (plain["arm"], fewer["arm"]) == ("GRPOTrainer", "NonzeroGRPOTrainer")
    assert 1 / 2 <= fewer["right"] < 1
    assert 0 < fewer["rows"] < plain["rows"] == 128
    assert plain["apart"] == 0 < fewer["apart"] < 1e-4
    assert all(row["updates"] > 0 < row["old log-probabilities"] for row in (plain, fewer))
