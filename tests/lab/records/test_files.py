import os
from multiprocessing import get_context

import pytest

from selective_backprop_lab.records.files import replacing


def _write_and_go(path, text):
    with replacing(path) as file:
        file.write(text)


def test_a_process_that_writes_a_file_while_another_does_leaves_both_whole(tmp_path):
    path = tmp_path / "figure.png"
    with replacing(path) as file:
        file.write(b"this process's, ")
        other = get_context("spawn").Process(target=_write_and_go, args=(path, b"the other's"))
        other.start()
        other.join()
        assert (other.exitcode, path.read_bytes()) == (0, b"the other's")
        file.write(b"all of it")
    assert path.read_bytes() == b"this process's, all of it"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_file_that_is_not_written_to_its_end_leaves_the_old_one_and_nothing_else(tmp_path, error):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path):
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]
