"""Text that comes with every Python, to classify or to predict: its library and its manual."""

import re
import sysconfig
import zlib
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import selective_backprop as sb
from selective_backprop_lab.data.splits import Splits

# Python 3.11 to 3.14 have these packages. The longest has ten times the lines of the shortest.
_PACKAGES = "asyncio email http importlib json logging multiprocessing unittest urllib xml"
PACKAGES = tuple(_PACKAGES.split())
LINES, BUCKETS = 10, 1024  # lines in a snippet, without blank ones; buckets of words
_LEVEL, _MOST = 85, 3  # the level of one word; at most three per bucket count, and 85 x 3 = 255
_OLD_TESTS = {"test", "tests"}  # folders that only some versions of Python have
CONTEXT, HELD_OUT, TESTED = 128, 8, 1024  # bytes; one file or stretch in 8; test windows
STRETCH = 16  # windows


def read_source_code(library: Path | None = None) -> Splits:
    """Return snippets of ten lines of the standard library; the class is the package.

    An example says how often words (runs of letters) of each of 1,024 hash buckets occur, up to
    three times. Every third file of a package, from the longest to the shortest, is a test file.
    The data differ between versions of Python.
    """
    folder = library or Path(sysconfig.get_path("stdlib"))
    examples: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    labels: tuple[list[int], list[int]] = [], []
    for label, package in enumerate(PACKAGES):
        files = _lines_by_file(folder / package)
        _check_files(folder / package, len(files), 2, "source-code")
        for number, name in enumerate(sorted(files, key=lambda name: (-len(files[name]), name))):
            testing, lines = number % 3 == 1, files[name]
            for first in range(0, len(lines) - LINES + 1, LINES):
                examples[testing].append(_counted(" ".join(lines[first : first + LINES])))
                labels[testing].append(label)
    train, test = (torch.from_numpy(np.stack(each)) for each in examples)
    targets = torch.tensor(labels[0]), torch.tensor(labels[1])
    return Splits(train, targets[0], test, targets[1], PACKAGES, unit=255.0, standardised=False)


def read_source_bytes(library: Path | None = None) -> Splits:
    """Return single-file modules of Python in windows of 128 bytes; the next byte is the label."""
    folder = library or Path(sysconfig.get_path("stdlib"))
    files = sorted(folder.glob("*.py"))
    _check_files(folder, len(files), HELD_OUT, "source-bytes")
    testing = files[HELD_OUT - 1 :: HELD_OUT]
    train, test = (
        _windows(file.read_bytes() for file in part)
        for part in ([file for file in files if file not in testing], testing)
    )
    return _predicted(train, test[:: max(1, len(test) // TESTED)][:TESTED])


def read_help_bytes(topics: Mapping[str, str] | None = None) -> Splits:
    """Return the topics of Python's `help()`, each paragraph once, as in `source-bytes`."""
    try:
        found = import_module("pydoc_data.topics").topics if topics is None else topics
    except ImportError as error:
        raise sb.DataError(
            f"help-bytes needs a Python with the topics of help(): {error}"
        ) from error
    paragraphs = dict[str, str]()
    for topic in sorted(found, key=lambda name: (-len(found[name]), name)):
        for paragraph in found[topic].split("\n\n"):
            paragraphs.setdefault(" ".join(paragraph.split()), paragraph)
    text = "\n\n".join(paragraphs.values()).encode()
    if len(text) <= HELD_OUT * STRETCH * CONTEXT:
        raise sb.DataError(
            f"the topics of help() are {len(text)} bytes, but more than "
            f"{HELD_OUT * STRETCH * CONTEXT} are needed; help-bytes needs a Python that is "
            "installed with all topics"
        )
    windows = _windows([text])
    testing = torch.arange(len(windows)) // STRETCH % HELD_OUT == HELD_OUT - 1
    return _predicted(windows[~testing], windows[testing])


def _windows(texts: Iterable[bytes]) -> Tensor:
    """Return each window and the byte that follows it, `[window, 129]`; texts are joined."""
    text = torch.frombuffer(bytearray().join(texts), dtype=torch.uint8)
    return text.unfold(0, CONTEXT + 1, CONTEXT).contiguous()


def _predicted(train: Tensor, test: Tensor) -> Splits:
    # 16-bit integers, because bytes would be taken for grey levels.
    parts = [(part[:, :-1].short(), part[:, 1:].long()) for part in (train, test)]
    return Splits(*parts[0], *parts[1], tuple(f"byte {value}" for value in range(256)))


def _check_files(folder: Path, found: int, least: int, name: str) -> None:
    if found < least:
        raise sb.DataError(
            f"{folder} has {found} source files, but at least {least} are needed; {name} needs a "
            "Python that is installed with the sources of its library"
        )


def _lines_by_file(package: Path) -> dict[str, list[str]]:
    found = {path.relative_to(package): path for path in package.rglob("*.py")}
    return {
        name.as_posix(): [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        for name, path in found.items()
        if _OLD_TESTS.isdisjoint(name.parts)
    }


def _counted(text: str) -> np.ndarray:
    buckets = [zlib.crc32(word.encode()) % BUCKETS for word in re.findall("[A-Za-z]+", text)]
    counts = np.bincount(np.array(buckets, dtype=np.int64), minlength=BUCKETS)
    return (counts.clip(max=_MOST) * _LEVEL).astype(np.float32)
