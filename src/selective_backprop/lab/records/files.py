"""Files that a crash or a power cut leaves whole."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path


@contextmanager
def forced_to_disk(path: Path) -> Generator[BufferedWriter]:
    """Write a file anew in the body; all of it is on the disk when this ends."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make sure that a new name survives a power cut, for which its folder is forced to the disk.

    Not every system can open a folder; there the file's own sync has to do.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
