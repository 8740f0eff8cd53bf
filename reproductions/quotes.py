"""What the source documents say, word for word, and where each says it."""

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
    """What a source says of one of its figures or tables."""

    title: str  # what the figure shows, in our words
    place: str  # such as "figure 5"
    source: Source
    quotes: Mapping[str, Quote]  # by the short name that claims name
    notes: Sequence[str] = ()  # what is to be known of the source: ours, not quoted
    ours: str = ""  # what is measured, where it is not what the caption says
    model: str = ""  # the net whose steps the source timed
    claims: Sequence[Mapping[str, Any]] = ()  # rows; see `claims.Claim`


@cache
def sources() -> Mapping[str, Source]:
    """Return the source documents by their short names."""
    found = tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))
    return {name: Source(**fields) for name, fields in found.items()}


def read_reported(path: Path) -> dict[str, Reported]:
    """Return what a file says that a source reports, by the name of the figure or table."""
    found = {}
    for name, said in tomllib.loads(path.read_text(encoding="utf-8")).items():
        quotes = {
            key: Quote(
                quote["text"], quote["section"], sources()[quote.get("source", said["source"])]
            )
            for key, quote in said.get("quotes", {}).items()
        }
        made: dict[str, Any] = {"source": sources()[said["source"]], "quotes": quotes}
        found[name] = Reported(**said | made)
    return found
