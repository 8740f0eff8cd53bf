"""Write files that stay whole in a crash or a power cut, and never through another's link."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path


@contextmanager
def replacing(path: Path, *, before: Path | None = None) -> Generator[BufferedWriter]:
    """Write a new file in the body, then move it to its path, whole or not at all.

    A link at the path is replaced, not followed: the folder may be somebody else's. An earlier file
    moves to `before`; None deletes it.
    """
    # Nobody else writes or can foresee this file. Mode x creates it, and follows no link.
    fresh = path.with_name(f"{path.name}.{os.urandom(4).hex()}.new")
    try:
        with fresh.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if before is not None and path.exists():
            path.replace(before)
        fresh.replace(path)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
    # A new name survives a power cut only after its folder is synced, if it can be opened.
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
