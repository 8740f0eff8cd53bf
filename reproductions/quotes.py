"""What the source documents say, word for word, and where each says it."""

import re
import tomllib
from collections.abc import Mapping
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
    notes: tuple[str, ...] = ()  # what is to be known of the source: ours, not quoted
    ours: str = ""  # what is measured, where it is not what the caption says
    model: str = ""  # the net whose steps the source timed
    claims: tuple[Mapping[str, Any], ...] = ()  # rows; see `claims.Claim`


@cache
def sources() -> Mapping[str, Source]:
    """Return the source documents by their short names."""
    found = tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))
    return {name: Source(**fields) for name, fields in found.items()}


def read_reported(path: Path) -> dict[str, Reported]:
    """Return what a file says that a source reports, by the name of the figure or table."""
    found = {}
    for name, said in tomllib.loads(path.read_text(encoding="utf-8")).items():
        source = sources()[said["source"]]
        quotes = {
            key: Quote(
                quote["text"], quote["section"], sources()[quote.get("source", said["source"])]
            )
            for key, quote in said.get("quotes", {}).items()
        }
        found[name] = Reported(
            said["title"],
            said["place"],
            source,
            quotes,
            tuple(said.get("notes", ())),
            said.get("ours", ""),
            said.get("model", ""),
            tuple(said.get("claims", ())),
        )
    return found


def plain(text: str) -> str:
    """Return a text without the marks of its transcription, to be searched for a quote.

    Bold and italic marks, formulas' dollars and line breaks are left out, and a word that a line
    break hyphenates is put together.
    """
    for marked, meant in ((r"\approx", "≈"), (r"\times", "x"), (r"\%", "%"), (r"\_", "_")):
        text = text.replace(marked, meant)
    text = re.sub(r"[*$]|</?su[bp]>", "", text)
    text = re.sub(r"(?<=[a-z])-\s*\n\s*(?=[a-z])", "", text)
    return " ".join(text.split())
