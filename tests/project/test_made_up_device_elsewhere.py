"""Where there is no GPU, all other tests for CUDA pass on a device that is made up.

In a file of its own, so that two workers share them.
"""

from fixture_made_up import FILES, LONGEST, pass_on_made_up_device


def test_all_else_that_needs_a_cuda_device_passes_on_one_that_is_made_up():
    pass_on_made_up_device(FILES - LONGEST)
