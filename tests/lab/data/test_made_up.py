"""Images that are made up have the shape and the classes that were asked for."""

import pytest
import torch

import selective_backprop as sb
from selective_backprop_lab.data.made_up import made_up


def test_images_that_are_made_up_are_the_same_every_time_and_of_every_class():
    one, other = made_up("3x9x9/4", 20), made_up("3x9x9/4", 20)
    assert torch.equal(one.train_inputs, other.train_inputs)
    assert one.train_labels.unique().tolist() == [0, 1, 2, 3]
    assert made_up("3x9x9", 20).classes == 10


@pytest.mark.parametrize("shape", ["3x8x9", "0x8x8", "3x8x8/0"])
def test_shapes_that_no_net_takes_are_refused(shape):
    with pytest.raises(sb.ConfigurationError, match="square images"):
        made_up(shape, 4)
