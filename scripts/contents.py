"""Check what an sdist and a wheel hold: the whole package, typed, and nothing beside it.

python scripts/contents.py dist/*.tar.gz dist/*.whl
"""

import re
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "selective_backprop"
NEEDED = {"torch", "numpy"}  # without an extra
LARGEST = 100_000  # bytes of one file beside the records: no source has so many
PACKS = "records/*/runs.jsonl.xz"
STRAY = ("*.pyc", "*/__pycache__/*", "*/site/*", "*/.*")
IN_SDIST = (
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "constraints.txt",
    "pyproject.toml",
    "scripts/test",
)


def main(sdist: str, wheel: str) -> int:
    """Print what is wrong with either; return 1 if anything is."""
    source = {
        path.relative_to(ROOT / "src").as_posix(): path.stat().st_size
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    faults = [*_of_sdist(Path(sdist), source), *_of_wheel(Path(wheel), source)]
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{Path(sdist).name} and {Path(wheel).name} hold what they should")
    return int(bool(faults))


def _of_sdist(path: Path, source: dict[str, int]) -> list[str]:
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
    sizes = {member.name.partition("/")[2]: member.size for member in members}
    wanted = {*IN_SDIST, *(f"src/{name}" for name in source)}
    tests = [name for name in sizes if fnmatch(name, "tests/*/test_*.py")]
    packs = [name for name in sizes if fnmatch(name, PACKS)]
    return [
        *_strays(path, sizes),
        *(f"{path.name} lacks {name}" for name in sorted(wanted - sizes.keys())),
        *([] if tests else [f"{path.name} lacks the tests"]),
        *([] if packs else [f"{path.name} lacks the records, which tests read"]),
    ]


def _of_wheel(path: Path, source: dict[str, int]) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        [about] = [name for name in sizes if name.endswith(".dist-info/METADATA")]
        metadata = BytesParser().parsebytes(archive.read(about))
    shipped = {name for name in sizes if not fnmatch(name, f"{PACKAGE}-*.dist-info/*")}
    folder = about.partition("/")[0]
    wanted = {f"{folder}/entry_points.txt", f"{folder}/licenses/LICENSE", f"{PACKAGE}/py.typed"}
    requirements = [each for each in metadata.get_all("Requires-Dist") if "extra ==" not in each]
    needed = {re.split(r"[^\w-]", each)[0] for each in requirements}
    return [
        *_strays(path, sizes),
        *(f"{path.name} lacks {name}" for name in sorted((wanted | source.keys()) - sizes.keys())),
        *(f"{path.name} has {name}, no part of it" for name in sorted(shipped - source.keys())),
        *(f"{path.name} needs {name}, or needs it no more" for name in sorted(needed ^ NEEDED)),
    ]


def _strays(path: Path, sizes: dict[str, int]) -> list[str]:
    return [
        *(
            f"{path.name} has {name}, of {size:,} bytes"
            for name, size in sizes.items()
            if size > LARGEST and not name.startswith("records/")
        ),
        *(
            f"{path.name} has {name}, which was made on the way"
            for name in sizes
            if not name.startswith(".git")
            and any(fnmatch(f"/{name}", pattern) for pattern in STRAY)
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
