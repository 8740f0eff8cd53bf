"""The sentences of the source documents, word for word, with their places."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Source:
    """A document that says something of selection."""

    title: str  # as a page names it
    file: str  # the name of its text


@dataclass(frozen=True)
class Quote:
    """A sentence of a source, or as much of one as makes a claim."""

    text: str
    section: str  # of its source
    source: Source


@dataclass(frozen=True)
class Reported:
    """A figure or table of a source, with its sentences and claims."""

    title: str  # in our words
    place: str  # such as "figure 5"
    source: Source
    quotes: Mapping[str, Quote]  # by the short name that claims name
    notes: Sequence[str] = ()  # on the source, in our words
    ours: str = ""  # the measurement, if it differs from the caption
    model: str = ""  # the net whose steps the source timed
    claims: Sequence[Mapping[str, Any]] = ()  # rows; see `claims.Claim`


@cache
def sources() -> Mapping[str, Source]:
    """Return the source documents by their short names."""
    found = tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))
    return {name: Source(**fields) for name, fields in found.items()}


def read_reported(path: Path) -> dict[str, Reported]:
    """Return the figures and tables of a file, by name."""
    found = {}
    for name, said in tomllib.loads(path.read_text(encoding="utf-8")).items():
        source = sources()[said["source"]]
        quotes = {
            key: Quote(
                **quote | {"source": sources()[quote["source"]] if "source" in quote else source}
            )
            for key, quote in said.get("quotes", {}).items()
        }
        found[name] = Reported(**said | {"source": source, "quotes": quotes})
    return found
