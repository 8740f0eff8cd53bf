"""Where there is no GPU, tests of the loader for CUDA pass on a device that is made up."""

from fixture_made_up import FILES, LONGEST, pass_on_made_up_device


def test_what_takes_longest_on_a_cuda_device_passes_on_one_that_is_made_up():
    assert LONGEST <= FILES
    pass_on_made_up_device(LONGEST)
