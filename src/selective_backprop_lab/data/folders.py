"""Find the folder of a data set, and refuse folders that are links."""

from collections.abc import Sequence
from pathlib import Path

import selective_backprop as sb


def damaged(path: Path, verdict: str) -> sb.DataError:
    """Return the error for a file that is damaged or not the publisher's."""
    return sb.DataError(
        f"{path} {verdict}. This is not the publisher's file: download it again, or pass another "
        "folder with --root"
    )


def find_folder(
    root: Path | None, *, name: str, folders: Sequence[str], files: Sequence[str], source: str
) -> Path:
    """Return the first of the `folders` under `root` that holds any of the `files`."""
    wanted = " or ".join(files)
    places = [root / folder for folder in folders] if root else []
    for place in places:
        if any((place / file).is_file() for file in files):
            return place
    why = f"needs {wanted}, which is in none of {', '.join(map(str, places))}"
    if root is None:
        why = "is read from disk, but no folder was named"
    elif not root.is_dir():
        why = f"cannot be read: {root} is not a folder"
    raise sb.DataError(
        f"{name} {why}. Pass the folder that holds {wanted} with --root (root= in Python); the "
        f"files are published at {source}"
    )


def find_file(folder: Path, *names: str) -> Path:
    """Return the first of several files that a data set's folder holds."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise sb.DataError(
        f"{folder} lacks {' and '.join(names)}, but holds other files of the data set. Download "
        "it too, or pass another folder with --root"
    )


def inside(folder: Path, name: str) -> Path:
    """Return the path of a folder in a folder that may be somebody else's, or refuse a link."""
    found = folder / name
    if found.is_symlink():
        raise sb.ConfigurationError(
            f"{found} is a link, so nothing is written there; name another folder with --out"
        )
    return found
