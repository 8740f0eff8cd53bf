import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from selective_backprop_lab.analysis.profile import performance_profile

ERRORS = np.array([[2.0, 1.0, 4.0], [1.0, 1.0, 1.5], [3.0, 6.0, 2.0], [1.0, math.nan, 1.2]])


def test_a_profile_is_the_share_of_problems_within_a_factor_of_the_lowest():
    found = performance_profile(ERRORS, np.array([1.0, 1.3, 1.5, 2.0, 3.0, 4.0]))
    assert_allclose(found[0], [0.5, 0.5, 0.75, 1.0, 1.0, 1.0])
    assert_allclose(found[1], [0.5, 0.5, 0.5, 0.5, 0.75, 0.75])  # once it was not run
    assert_allclose(found[2], [0.25, 0.5, 0.75, 0.75, 0.75, 1.0])


def test_who_is_best_counts_at_a_factor_of_one_whatever_the_unit():
    for unit in (1.0, 0.1, 1e-7):
        (first, second), _ = performance_profile(unit * ERRORS[:, :2], np.array([1.0, 2.0]))
        assert (first, second) == (0.75, 1.0)


def test_an_error_of_nought_is_within_a_factor_of_itself_alone():
    found = performance_profile(np.array([[0.0, 0.1]]), np.array([1.0, 100.0]))
    assert_allclose(found, [[1.0, 1.0], [0.0, 0.0]])


@pytest.mark.parametrize("arms", [1, 3])
def test_without_problems_nothing_is_known(arms):
    assert np.isnan(performance_profile(np.empty((0, arms)), np.array([1.0]))).all()
