"""What tests of several rooms of the lab need."""

import pytest


@pytest.fixture
def undrawn(monkeypatch):
    """Nothing is drawn, which takes a second."""
    from selective_backprop_lab.report import figures, report  # which tests on a GPU do without

    monkeypatch.setattr(figures, "draw_comparison", lambda runs, path, **_: None)
    monkeypatch.setattr(report, "write_report", lambda runs, path, **_: None)
