"""A budget knows what is left of it, and what was left out."""

import pytest

import selective_backprop as sb
from selective_backprop.guide._budget import Budget


def test_what_does_not_fit_is_named():
    moments = iter([100.0, 103.0, 103.0, 108.0, 108.0, 112.0])
    budget = Budget(10, now=lambda: next(moments))
    assert budget.left == 7.0
    assert budget.fits("a look", 7.0)
    assert not budget.fits("another", 2.5)
    assert budget.left_out == ["another: about 2.5 s, and 2 s left"]
    assert budget.left == -2.0


def test_a_budget_that_is_too_small_says_what_would_do():
    moments = iter([0.0, *[4.0] * 9])
    budget = Budget(10, now=lambda: next(moments))
    budget.needs(6.0, 0.5)
    with pytest.raises(sb.ConfigurationError, match=r"step takes 0.5 s here.*give budget=22$"):
        budget.needs(7.0, 0.5)


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.01, 1), (10.5, 21), (61.0, 130), (64.9, 130), (721.0, 1500)]
)
def test_the_budget_that_would_do_is_written_in_whole_seconds(seconds, written):
    budget = Budget(1e-9, now=lambda: 0.0)
    with pytest.raises(sb.ConfigurationError, match=rf"give budget={written}$"):
        budget.needs(seconds, 0.5)
