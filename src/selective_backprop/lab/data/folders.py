"""Find the folder that holds a data set, under the folder the user named."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import selective_backprop as sb

# How a message about a damaged or foreign file ends.
FETCH_AGAIN = "This is not the publisher's file: fetch it again, or pass another folder with --root"


def find_folder(
    root: Path | None, *, name: str, folders: Sequence[str], files: Sequence[str], source: str
) -> Path:
    """Return the first folder under `root` that holds one of the files.

    Args:
        root: the folder the user named; None if none was.
        name: the data set, for the message.
        folders: where to look, relative to `root`, in order of preference; "." is `root`.
        files: names of the file looked for, any of which will do.
        source: where the publisher keeps the files, for the message.

    Returns:
        An existing folder.

    Raises:
        DataError: if no folder was named, it does not exist, or holds none of the files.
    """
    wanted = " or ".join(files)
    if root is None:
        raise sb.DataError(
            f"{name} is read from disk, and no folder was named. Pass the one that holds "
            f"{wanted} with --root (root= in Python); the files are published at {source}"
        )
    if not root.is_dir():
        raise sb.DataError(
            f"{root} is not a folder. {name} needs the one that holds {wanted}: pass it with "
            f"--root (root= in Python); the files are published at {source}"
        )
    places = [root / folder for folder in folders]
    for place in places:
        if any((place / file).is_file() for file in files):
            return place
    raise sb.DataError(
        f"{name} needs {wanted}, which is in none of {', '.join(map(str, places))}. Pass the "
        f"folder that holds it with --root (root= in Python); the files are published at {source}"
    )


@contextmanager
def writing_out(out: Path) -> Generator[None]:
    """Write in the body what `--out` names the place of.

    Raises:
        ConfigurationError: if it cannot be written.
    """
    try:
        yield
    except OSError as error:
        name = Path(error.filename2 or error.filename or out).name
        raise sb.ConfigurationError(
            f"--out {out}: cannot be written ({name}: {error.strerror or error}); name another"
        ) from error


def make_folder(out: Path) -> None:
    """Make the folder that `--out` names, if it is not there.

    Raises:
        ConfigurationError: if it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise sb.ConfigurationError(
            f"--out {out}: cannot be made a folder ({error.strerror}); name another"
        ) from error
