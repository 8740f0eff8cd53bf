"""Text that every Python carries, to classify or to predict: its library and its manual."""

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

# Present in every supported version of Python, 3.11 to 3.14; the longest has ten times the lines
# of the shortest.
PACKAGES = (
    "asyncio",
    "email",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
    "xml",
)
LINES, BUCKETS = 10, 1024  # of a snippet that are not blank; of words
_LEVEL, _MOST = 85, 3  # of one word, and how many of a kind count: 85 x 3 is the full level
_OLD_TESTS = {"test", "tests"}  # folders that some packages have in some versions
CONTEXT, HELD_OUT, TESTED = 128, 8, 1024  # bytes; one file or stretch of so many; windows
STRETCH = 16  # windows


def read_source_code(library: Path | None = None) -> Splits:
    """Return snippets of ten lines of the standard library; the class is the package.

    Words are runs of letters, each of which falls into one of 1,024 buckets by its hash; an example
    says how often each bucket occurs, up to three times. A perceptron's first layer is then a bag
    of embeddings. Of a package's files, from the longest to the shortest, the second of every three
    is tested on, so that no file is in both splits. Classes are as unequal as the packages are.

    The data come from the Python that runs, whose version records name: another version has
    other snippets.

    Args:
        library: the folder of the standard library; None for this Python's.

    Raises:
        DataError: if a package has no source files there.
    """
    folder = _library(library)
    examples: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    labels: tuple[list[int], list[int]] = [], []
    for label, package in enumerate(PACKAGES):
        files = _lines_by_file(folder / package)
        if len(files) < 2:
            raise sb.DataError(
                f"{folder / package} has {len(files)} source files, but at least 2 are needed; "
                "source-code needs a Python that is installed with the sources of its library"
            )
        for number, name in enumerate(sorted(files, key=lambda name: (-len(files[name]), name))):
            testing, lines = number % 3 == 1, files[name]
            for first in range(0, len(lines) - LINES + 1, LINES):
                examples[testing].append(_counted(" ".join(lines[first : first + LINES])))
                labels[testing].append(label)
    train, test = (torch.from_numpy(np.stack(each)) for each in examples)
    targets = torch.tensor(labels[0]), torch.tensor(labels[1])
    # Standardised, a rare word would be huge.
    return Splits(train, targets[0], test, targets[1], PACKAGES, unit=255.0, standardised=False)


def read_source_bytes(library: Path | None = None) -> Splits:
    """Return windows of 128 bytes of the modules of the standard library, to predict the next byte.

    An example is a window of 128 and has a label for each byte: the one that follows it.
    Windows do not overlap. Of the modules that are a single file, in order of name, every eighth
    is tested on, in 1,024 windows that are evenly spaced. About three lines in ten occur more than
    once.

    Args:
        library: as for `read_source_code`, and as there the data come from the Python that runs.

    Raises:
        DataError: if there are fewer than eight modules.
    """
    folder = _library(library)
    files = sorted(folder.glob("*.py"))
    if len(files) < HELD_OUT:
        raise sb.DataError(
            f"{folder} has {len(files)} source files, but at least {HELD_OUT} are needed; "
            "source-bytes needs a Python that is installed with the sources of its library"
        )
    testing = files[HELD_OUT - 1 :: HELD_OUT]
    train, test = (
        _windows(file.read_bytes() for file in part)
        for part in ([file for file in files if file not in testing], testing)
    )
    return _predicted(train, test[:: max(1, len(test) // TESTED)][:TESTED])


def read_help_bytes(topics: Mapping[str, str] | None = None) -> Splits:
    """Return windows of 128 bytes of what Python's `help()` has on its topics, as `source-bytes`.

    The topics are chapters of the Language Reference, of which some hold others: from the longest
    to the shortest, what occurred before is left out, paragraph by paragraph. Every eighth stretch
    of 16 windows is tested on.

    Args:
        topics: texts by topic; None for this Python's.

    Raises:
        DataError: if this Python has none, or there are fewer than eight stretches.
    """
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
            "installed with all of them"
        )
    windows = _windows([text])
    testing = torch.arange(len(windows)) // STRETCH % HELD_OUT == HELD_OUT - 1
    return _predicted(windows[~testing], windows[testing])


def _windows(texts: Iterable[bytes]) -> Tensor:
    """Return each window and the byte that follows it, `[window, 129]`; texts are joined."""
    text = torch.frombuffer(bytearray().join(texts), dtype=torch.uint8)
    return text.unfold(0, CONTEXT + 1, CONTEXT).contiguous()


def _predicted(train: Tensor, test: Tensor) -> Splits:
    """Return windows as examples, each byte with the next one as its label."""
    # Other integers than bytes, which would be taken for grey levels.
    parts = [(part[:, :-1].short(), part[:, 1:].long()) for part in (train, test)]
    return Splits(*parts[0], *parts[1], tuple(f"byte {value}" for value in range(256)))


def _library(given: Path | None) -> Path:
    return Path(sysconfig.get_path("stdlib")) if given is None else given


def _lines_by_file(package: Path) -> dict[str, list[str]]:
    """Return the lines of a package's files that are not blank, by the file's path within it."""
    found = {path.relative_to(package): path for path in package.rglob("*.py")}
    return {
        name.as_posix(): [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        for name, path in found.items()
        if _OLD_TESTS.isdisjoint(name.parts)
    }


def _counted(text: str) -> np.ndarray:
    """Return the levels of a text: how often words of each bucket occur in it."""
    buckets = [zlib.crc32(word.encode()) % BUCKETS for word in re.findall("[A-Za-z]+", text)]
    counts = np.bincount(np.array(buckets, dtype=np.int64), minlength=BUCKETS)
    return (counts.clip(max=_MOST) * _LEVEL).astype(np.float32)
