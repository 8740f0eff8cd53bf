"""Several processes that carry out jobs, where one of them cannot go on."""

import signal

import pytest
from fixture_crew import Broken, Endless, Failing, Killed

import selective_backprop as sb
from selective_backprop.lab.runner import worker_pool
from selective_backprop.lab.runner.worker_pool import run_jobs


def run(*work, jobs=2, watch=lambda job, news: None):
    run_jobs(work, jobs=jobs, threads=1, watch=watch)


@pytest.mark.usefixtures("signals_as_usual")
@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_where_one_fails_the_others_keep_what_they_have_begun(tmp_path, monkeypatch, handler):
    monkeypatch.setattr(worker_pool, "PATIENCE", 10.0)  # seconds until a process is killed
    signal.signal(signal.SIGTERM, handler)
    with pytest.raises(sb.RecordError, match="it failed"):
        run(Endless(tmp_path), Failing(tmp_path))
    assert (tmp_path / "kept").exists()


def test_a_process_that_is_killed_is_told_of_and_the_others_keep_what_they_have_begun(tmp_path):
    with pytest.raises(sb.RecordError, match="killed while these ran: endless; of no memory"):
        run(Endless(tmp_path), Killed(tmp_path))
    assert (tmp_path / "kept").exists()


def test_an_error_that_is_none_of_ours_says_which_job_raised_it(tmp_path):
    with pytest.raises(sb.RecordError, match=r"(?s)broken: Traceback.*ZeroDivisionError"):
        run(Broken(), Broken())
    with pytest.raises(ZeroDivisionError):
        run(Broken())


def test_ctrl_c_ends_all_processes_with_what_they_have_begun_kept(tmp_path):
    def interrupt(job, news):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Endless(tmp_path), Endless(tmp_path), watch=interrupt)
    assert (tmp_path / "kept").exists()
