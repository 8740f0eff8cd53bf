"""Records in a few small files, to carry what one machine has trained to another.

A zip file of the records, and of the last checkpoints of unfinished runs, is cut into pieces. Their
names hold the folder's name, the start of the zip file's SHA-256, and the number of each piece.
"""

import hashlib
import io
import lzma
import re
import zipfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

import selective_backprop as sb
from reproductions.training import read_step_times
from selective_backprop_lab.analysis.facts import listed
from selective_backprop_lab.data.folders import make_folder
from selective_backprop_lab.records.files import is_locked, replacing, told
from selective_backprop_lab.records.lines import record_name
from selective_backprop_lab.records.pack import packed
from selective_backprop_lab.records.schema import is_recorded, read_run, read_runs, record_paths
from selective_backprop_lab.training.process import asked_to_stop
from selective_backprop_lab.training.resumable_run import SUFFIX as CHECKPOINT

PIECES, PIECE = 8, 15 * 2**20  # at most so many, of at most so many bytes
_SUFFIX = ".piece"
_ENTRY = 512  # bytes that the zip file needs for a name, at most


@contextmanager
def carried(place: Path | None, folder: Path, console: Console) -> Generator[None]:
    """Take back what pieces hold before the body, and write new ones after it, however it ends."""
    if place is None:
        yield
        return
    take_back(place, folder, console)
    make_folder(place, "--pack")
    make_folder(folder)
    try:
        yield
    finally:
        with asked_to_stop() as stop:  # a signal waits until the pieces are written
            write_pieces(folder, place, console)
        if stop.asked:
            stop.leave()


def write_pieces(folder: Path, place: Path, console: Console) -> None:
    """Write a folder's records as pieces in the place of older ones; what does not fit is named."""
    room, left, file = PIECES * PIECE, list[str](), io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for path, files in _by_importance(folder):
            size = sum(len(content) + _ENTRY for content in files.values())
            if size > room:
                left.append(path.name)
                continue
            room -= size
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content)  # the same zip file each time
    if room == PIECES * PIECE and not left:
        return  # there is nothing
    content = file.getvalue()
    stem, cuts = f"{folder.name}-{_digest(content)}", range(0, len(content), PIECE)
    pieces = {place / f"{stem}-{i + 1}-of-{len(cuts)}{_SUFFIX}": at for i, at in enumerate(cuts)}
    with told(place):
        older = {path for parts in _sets(place, folder.name).values() for path in parts.values()}
        for path, at in pieces.items():
            with replacing(path) as out:
                out.write(content[at : at + PIECE])
        for path in older.difference(pieces):
            path.unlink()
    without = f"; left out, since they do not fit: {', '.join(left)}" if left else ""
    said = f"{place}: {len(pieces)} of {PIECES} pieces hold {folder}{without}"
    console.print(said, soft_wrap=True)


def take_back(place: Path, folder: Path, console: Console) -> None:
    """Write the runs of pieces into a folder, unless a run has come as far there.

    Raises:
        RecordError: if pieces are missing, damaged or hold something else; then nothing is written.
    """
    sets = _sets(place, folder.name)
    if not sets:
        return
    make_folder(folder)
    with told(folder), TemporaryDirectory(dir=folder) as there:
        found = [
            _unpacked(place, f"{folder.name}-{digest}", count, parts, Path(there, digest))
            for (digest, count), parts in sets.items()
        ]
        taken = sum(_take(path, folder) for paths in found for path in paths)
    console.print(f"{place}: {taken} runs and timings taken back into {folder}", soft_wrap=True)


def _unpacked(
    place: Path, name: str, count: int, parts: Mapping[int, Path], there: Path
) -> list[Path]:
    """Join pieces and unpack them into a new folder; return the records, which can be read."""
    if missing := [str(number) for number in range(1, count + 1) if number not in parts]:
        raise sb.RecordError(
            f"{place}: of the {count} pieces {name}, {listed(missing)} is missing. Put all into "
            "that folder, or take the others out of it."
        )
    content = b"".join(parts[number].read_bytes() for number in sorted(parts))
    if _digest(content) != name.rpartition("-")[2]:
        raise sb.RecordError(
            f"{place}: the pieces {name} are damaged. Carry them once more, or take them out of "
            "that folder."
        )
    there.mkdir()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for each in archive.namelist():
                if not re.fullmatch(r"[\w.+-]+\.(jsonl|json|checkpoint)", each):
                    raise ValueError(f"{each!r} is no name of a record")
                inner, packs = archive.read(each), not each.endswith(CHECKPOINT)
                with replacing(there / each) as file:
                    file.write(lzma.decompress(inner) if packs else inner)
        if other := [r.name for r in read_runs(there) if r.name != record_name(r.header.identity)]:
            raise ValueError(f"{other[0]} is the record of another run")
        for path in (steps := sorted(there.glob("*.json"))):
            read_step_times(path)
    except (zipfile.BadZipFile, lzma.LZMAError, ValueError, sb.RecordError) as error:
        raise sb.RecordError(f"{place}: {name} does not hold records ({error}).") from error
    return [*record_paths(there), *steps]


def _take(path: Path, folder: Path) -> bool:
    """Move a record with its checkpoint into a folder, unless the run there has come as far."""
    here = folder / path.name
    new = not (here.exists() if path.suffix == ".json" else is_recorded(here))
    if not new and path.suffix != ".json":
        new = _reach(path) > _reach(here) and not is_locked(here)
    for file in (path.with_suffix(CHECKPOINT), path):
        if new and file.exists():
            file.replace(folder / file.name)
    return new


def _by_importance(folder: Path) -> Iterator[tuple[Path, dict[str, bytes]]]:
    """Yield what belongs together as it goes into the zip file: finished runs and timings first."""
    unfinished = list[tuple[int, Path]]()
    for run in read_runs(folder):
        assert run.path is not None
        checkpoint = run.path.with_suffix(CHECKPOINT)
        if run.finished:
            yield run.path, _record(run.path)
        elif checkpoint.exists():
            unfinished.append((checkpoint.stat().st_size, checkpoint))
    for path in sorted(folder.glob("step-*.json")):
        yield path, _record(path)
    for _, path in sorted(unfinished):
        yield path, _record(path.with_suffix(".jsonl")) | {path.name: path.read_bytes()}


def _record(path: Path) -> dict[str, bytes]:
    """Return a record, compressed; tensors of checkpoints would not become smaller."""
    content = path.read_bytes() if path.exists() else packed(path.parent)[path.name]
    return {path.name: lzma.compress(content)}


def _reach(path: Path) -> tuple[bool, bool, int]:
    """Return how far the run of a record has come."""
    run = read_run(path)
    return run.finished, path.with_suffix(CHECKPOINT).exists(), len(run.points)


def _sets(place: Path, name: str) -> dict[tuple[str, int], dict[int, Path]]:
    """Return the pieces of a folder of this name, by digest and count, by number."""
    found: dict[tuple[str, int], dict[int, Path]] = {}
    for path in sorted(place.glob(f"*{_SUFFIX}")):
        parts = re.fullmatch(rf"(.+)-([0-9a-f]{{16}})-(\d)-of-(\d){re.escape(_SUFFIX)}", path.name)
        if parts is None:
            raise sb.RecordError(f"{path}: no piece as --pack writes it; take it out of the folder")
        if parts[1] == name:
            found.setdefault((parts[2], int(parts[4])), {})[int(parts[3])] = path
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
