"""Keys of a batch: integers of any make become one column, others stay what they are."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop._pipeline.index_sampler import list_keys, plain_list


@given(st.lists(st.integers(-5, 2**62), min_size=1))
def test_integer_keys_of_any_make_become_one_column(keys):
    column = torch.tensor(keys)
    for made in (keys, tuple(keys), column, np.array(keys), list(column), list(np.array(keys))):
        found = list_keys(made)
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.int64
        assert plain_list(found) == keys


@pytest.mark.parametrize("keys", [["a"], [(1, 2)], [(1, 2), 3], [1.5], [True], [None], [2**70]])
def test_keys_that_are_no_integers_stay_what_they_are(keys):
    assert list_keys(keys) == list_keys(tuple(keys)) == keys
    assert plain_list(keys) is keys
    for single in (3, "name", np.int64(3), torch.tensor(3), np.array(3)):
        assert list_keys(single) is None
