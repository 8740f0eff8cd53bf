"""What is held against records stands, word for word, in a source."""

import hashlib
import re
from pathlib import Path

import pytest

from reproductions.papers import FIGURES

TEXTS = Path(__file__).parents[3] / "shared" / "seeds"
DIGESTS = Path(__file__).with_name("quotes.sha256")
QUOTED = [
    (f"{figure.name} {name}", quote)
    for figure in FIGURES.values()
    for name, quote in figure.reported.quotes.items()
]


def plain(text: str) -> str:
    """Return a text without marks of fonts and formulas, line breaks and hyphens before them."""
    for marked, meant in ((r"\approx", "≈"), (r"\times", "x"), (r"\%", "%"), (r"\_", "_")):
        text = text.replace(marked, meant)
    text = re.sub(r"[*$]|</?su[bp]>", "", text)
    text = re.sub(r"(?<=[a-z])-\s*\n\s*(?=[a-z])", "", text)
    return " ".join(text.split())


@pytest.mark.skipif(not TEXTS.exists(), reason="the texts of the sources are not at hand")
@pytest.mark.parametrize(("name", "quote"), QUOTED, ids=[name for name, _ in QUOTED])
def test_a_quote_is_in_its_source(name, quote):
    text = plain((TEXTS / quote.source.file).read_text(encoding="utf-8"))
    assert quote.text in text


def test_quotes_are_those_that_were_compared_with_their_sources():
    texts = (f"{each.source.file}\n{each.section}\n{each.text}" for _, each in QUOTED)
    digests = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)
    lines = [f"{digest}  {name}" for digest, (name, _) in zip(digests, QUOTED, strict=True)]
    assert DIGESTS.read_text(encoding="utf-8").splitlines() == lines
