"""What is written for each item, and the page that collects them all."""

import re
from collections.abc import Collection
from pathlib import Path

from reproductions.jiang2019.drawing import caption, save
from reproductions.jiang2019.items import Found, Item, Presentation
from reproductions.jiang2019.judging import Finding, tally
from reproductions.jiang2019.text import escaped

_TITLE = "# The papers, redone"
_START = "<!-- sections -->"


def write_item(item: Item, found: Found, folder: Path) -> Presentation:
    """Draw an item's figure and write its tables, as text and as Markdown.

    Args:
        item: what to make.
        found: the records it is made of.
        folder: where to.
    """
    shown = item.present(found)
    if shown.figure is not None:
        save(shown.figure, folder / item.name)
    text = "\n".join(grid.as_text() for grid in shown.tables)
    (folder / f"{item.name}.txt").write_text(text, encoding="utf-8")
    page = section(item, found, shown)
    (folder / f"{item.name}.md").write_text(page, encoding="utf-8")
    return shown


def write_index(folder: Path, order: Collection[str], drawn: Collection[str]) -> Path:
    """Collect the sections of items: those just written, and what the page has of others.

    Args:
        folder: of the page.
        order: names of all items there are, at whatever scale.
        drawn: names of those whose sections were written into the folder anew.

    Returns:
        The page.
    """
    page = folder / "index.md"
    sections = _sections(page)
    for name in drawn:
        sections[name] = (folder / f"{name}.md").read_text(encoding="utf-8")
    parts = [
        _TITLE,
        "",
        "Figures and tables of the source papers, drawn from the records in `runs`. A claim "
        "*agrees* where the 95 % interval over seeds lies on the side that its source says, "
        "*disagrees* where it lies on the other, and *cannot say* where it holds both.",
        "",
        _START,
        "",
        *(sections[name] for name in order if name in sections),
    ]
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _sections(page: Path) -> dict[str, str]:
    if not page.exists():
        return {}
    _, _, rest = page.read_text(encoding="utf-8").partition(_START)
    found = re.split(r"^## ([^:\n]+):", rest, flags=re.MULTILINE)[1:]
    return {
        name: f"## {name}:{text.rstrip()}\n"
        for name, text in zip(found[::2], found[1::2], strict=True)
    }


def section(item: Item, found: Found, shown: Presentation) -> str:
    """Return what is written of an item, in Markdown."""
    lines = [
        f"## {item.name}: {item.title}",
        "",
        f"Source: {item.source}. Scale: {found.scale.name}.",
        "",
    ]
    lines += ["Reported:", "", *(f"- {escaped(said)}" for said in item.reported), ""]
    if shown.figure is not None:
        lines += [f"![{item.title}]({item.name}.png)", ""]
    for grid in shown.tables:
        lines += [grid.as_markdown(), ""]
    lines += [f"Verdict: {tally(shown.findings)}.", ""]
    if shown.findings:
        lines += ["| claim | verdict | measured |", "| :-- | :-- | :-- |"]
        lines += [_row(finding) for finding in shown.findings]
    lines += ["", escaped(caption(found))]
    return "\n".join([*lines, ""])


def _row(finding: Finding) -> str:
    cells = (finding.claim, f"**{finding.verdict}**", finding.words)
    return "| " + " | ".join(map(escaped, cells)) + " |"
