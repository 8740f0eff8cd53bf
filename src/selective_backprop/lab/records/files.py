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


@contextmanager
def replacing(path: Path, *, before: Path | None = None) -> Generator[BufferedWriter]:
    """Write a file beside its place in the body, and put it there, whole or not at all.

    Args:
        path: its place.
        before: where the file that was there is moved; None to let it go.
    """
    fresh = path.with_name(path.name + ".new")
    try:
        with forced_to_disk(fresh) as file:
            yield file
        if before is not None and path.exists():
            path.replace(before)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    # A new name survives a power cut once its folder is on the disk. Not every system can open a
    # folder; there the file's own sync has to do.
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
