"""Files that a crash or a power cut leaves whole."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path


@contextmanager
def replacing(path: Path, *, before: Path | None = None) -> Generator[BufferedWriter]:
    """Write a file beside its place in the body, and put it there, whole or not at all.

    Args:
        path: its place.
        before: where the file that was there is moved; None to let it go.
    """
    # Processes that write the same file at the same time must not write into one another's.
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if before is not None and path.exists():
            path.replace(before)
        fresh.replace(path)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    # A new name survives a power cut once its folder is on the disk. Not every system can open a
    # folder; there the file's own sync has to do.
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
