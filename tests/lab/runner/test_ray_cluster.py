"""Jobs on two workers of a Ray cluster: what they record, and where one of them cannot go on."""

import os
import sys

import pytest
from fixture_jobs import Endless, Failing, Killed
from fixture_lab import fixture_plan, untimed

import selective_backprop as sb
from selective_backprop_lab.runner.grid import run_grid
from selective_backprop_lab.runner.ray_cluster import run_on_ray
from selective_backprop_lab.runner.run_store import RunStore

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore::Warning")  # Ray's own


@pytest.fixture(scope="module", autouse=True)
def two_workers():
    paths = os.pathsep.join(filter(None, sys.path))
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


def run(*work, watch=lambda job, step: None):
    run_on_ray(work, jobs=2, threads=1, watch=watch)


def test_two_workers_record_what_this_process_does(tmp_path):
    plans = [
        fixture_plan(arm, seed=seed, evaluations=2)
        for arm in ("traditional", "auto")
        for seed in (0, 1)
    ]
    seen = []
    there = run_grid(
        plans,
        RunStore(tmp_path / "there"),
        engine=run_on_ray,
        jobs=2,
        watch=lambda *step: seen.append(step),
    )
    here = run_grid(plans, RunStore(tmp_path / "here"))
    for plan, one, other in zip(plans, there, here, strict=True):
        assert one.path.name == other.path.name
        assert untimed(list(one.points)) == untimed(list(other.points))
        assert one.header.identity == other.header.identity
        assert [point for each, point in seen if each == plan] == list(one.points)


def test_what_is_stopped_keeps_what_it_has_begun(tmp_path):
    def interrupt(job, step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Endless(tmp_path), watch=interrupt)
    assert (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (lambda folder: Failing(folder, sb.RecordError("it failed")), "^it failed$"),
        (lambda folder: Failing(folder, ZeroDivisionError("of mine")), "(?s)^failing: .*of mine"),
        (Killed, "killed while these ran: of no memory"),
    ],
)
def test_where_one_fails_the_others_keep_what_they_have_begun(tmp_path, failing, message):
    with pytest.raises(sb.RecordError, match=message):
        run(Endless(tmp_path), failing(tmp_path))
    assert (tmp_path / "kept").exists()
