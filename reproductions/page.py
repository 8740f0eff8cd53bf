"""What is written of each figure, and the page that collects them all."""

import re
from collections.abc import Collection
from pathlib import Path

from reproductions.drawing import caption, save
from reproductions.figures import Figure, Found, Presentation
from selective_backprop.lab.analysis.tables import escaped, piped
from selective_backprop.lab.analysis.verdict import CLAIMS, tally

_START = "<!-- sections -->"
_HEAD = f"""# The papers, redone

Figures and tables of the source papers, drawn from the records in `runs`. A claim \
*agrees* where the 95 % interval over seeds lies on the side that its source says, \
*disagrees* where it lies on the other, and *cannot say* where it holds both.

{_START}

"""


def write_figure(figure: Figure, found: Found, folder: Path) -> Presentation:
    """Draw a figure and write its tables, as text and as Markdown."""
    shown = figure.present(found)
    if shown.figure is not None:
        save(shown.figure, folder / figure.name)
    text = "\n".join(table.to_text() for table in shown.tables)
    (folder / f"{figure.name}.txt").write_text(text, encoding="utf-8")
    (folder / f"{figure.name}.md").write_text(section(figure, found, shown), encoding="utf-8")
    return shown


def write_index(folder: Path, order: Collection[str], drawn: Collection[str]) -> Path:
    """Collect the sections that were just written, and what the page has of other figures.

    Args:
        folder: of the page.
        order: names of all figures there are, at whatever scale.
        drawn: names of those whose sections were written into the folder anew.
    """
    page = folder / "index.md"
    sections = _sections(page)
    sections |= {name: (folder / f"{name}.md").read_text(encoding="utf-8") for name in drawn}
    text = "\n".join(sections[name] for name in order if name in sections)
    page.write_text(_HEAD + text, encoding="utf-8")
    return page


def section(figure: Figure, found: Found, shown: Presentation) -> str:
    """Return what is written of a figure, in Markdown."""
    lines = [
        f"## {figure.name}: {figure.title}",
        "",
        f"Source: {figure.source}. Scale: {found.scale.name}.",
        "",
        "Reported:",
        "",
        *(f"- {escaped(said)}" for said in figure.reported),
        "",
    ]
    if shown.figure is not None:
        lines += [f"![{figure.title}]({figure.name}.png)", ""]
    for table in shown.tables:
        lines += [table.to_markdown(), ""]
    lines += [f"Verdict: {tally(shown.findings) or 'no claim'}.", ""]
    if shown.findings:
        lines += ["| claim | verdict | measured |", "| :-- | :-- | :-- |"]
    for each in shown.findings:
        lines.append(piped((each.claim, f"**{CLAIMS[each.verdict]}**", each.measured)))
    return "\n".join([*lines, "", escaped(caption(found)), ""])


def _sections(page: Path) -> dict[str, str]:
    if not page.exists():
        return {}
    _, _, rest = page.read_text(encoding="utf-8").partition(_START)
    found = re.split(r"^## ([^:\n]+):", rest, flags=re.MULTILINE)[1:]
    pairs = zip(found[::2], found[1::2], strict=True)
    return {name: f"## {name}:{text.rstrip()}\n" for name, text in pairs}
