"""A small table of texts, as plain text and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table; the first cell of each row is the row's name."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def as_text(self) -> str:
        """Return columns of even width, the first flush left, the others right."""
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = []
        for name, *cells in (self.head, *self.rows):
            parts = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *parts]).rstrip())
        rule = "-" * max(map(len, lines))
        return "\n".join([self.title, "", lines[0], rule, *lines[1:], ""])

    def as_markdown(self) -> str:
        """Return a Markdown table under its title."""
        rule = "| :-- |" + " --: |" * (len(self.head) - 1)
        lines = [f"**{escaped(self.title)}**", "", piped(self.head), rule, *map(piped, self.rows)]
        return "\n".join([*lines, ""])


def percent(share: float) -> str:
    """Return a share in whole per cent: `33 %`."""
    return f"{100 * share:.0f} %"


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in a table too."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def piped(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(map(escaped, cells)) + " |"
