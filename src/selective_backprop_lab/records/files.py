"""Write files, and keep other processes from writing the same."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import selective_backprop as sb
from selective_backprop._core.files import replacing

__all__ = ["inside", "is_locked", "lock", "locked", "make_folder", "replacing", "told"]


@contextmanager
def told(path: Path) -> Generator[None]:
    """Turn a write error in the body into a `RecordError` that says what to do."""
    try:
        yield
    except OSError as error:
        name = Path(error.filename2 or error.filename or path).name
        inner = "" if name == path.name else f" ({name})"
        raise sb.RecordError(
            f"{path} cannot be written{inner}: {error.strerror or error}. What was recorded before "
            "is kept. Fix this, or name another folder, and repeat the command."
        ) from error


def make_folder(folder: Path) -> None:
    """Make a folder, which may exist."""
    with told(folder):
        folder.mkdir(parents=True, exist_ok=True)


def inside(folder: Path, name: str) -> Path:
    """Return the path of a folder in a folder that may be somebody else's, or refuse a link."""
    found = folder / name
    if found.is_symlink():
        raise sb.ConfigurationError(
            f"{found} is a link, so nothing is written there; name another folder with --out"
        )
    return found


def lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock an open file or folder; False if another process has it. Without locks, all is free."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Generator[bool]:
    """Lock a file or folder in the body, as `lock` does; what cannot be opened is free."""
    descriptor = None
    with suppress(OSError):
        # Some network file systems lock only files that are open for writing.
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        yield descriptor is None or lock(descriptor, wait=wait)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether another process has locked a file."""
    with locked(path, wait=False) as free:
        return not free
