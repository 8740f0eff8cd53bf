"""Several processes that carry out tasks, where one of them cannot go on."""

import signal

import pytest
from fixture_crew import Endless, Failing

import selective_backprop as sb
from selective_backprop.lab.runner import worker_pool as crew


@pytest.mark.usefixtures("signals_as_usual")
@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_where_one_fails_the_others_keep_what_they_have_begun(tmp_path, monkeypatch, handler):
    monkeypatch.setattr(crew, "PATIENCE", 10.0)  # seconds until a process is killed
    signal.signal(signal.SIGTERM, handler)
    tasks = [Endless(tmp_path), Failing(tmp_path)]
    with pytest.raises(sb.RecordError, match="it failed"):
        crew.carry_out(tasks, jobs=2, threads=1, watch=lambda task, news: None)
    assert (tmp_path / "kept").exists()
