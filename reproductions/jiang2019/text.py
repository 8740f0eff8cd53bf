"""Small tables, as text and as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table of texts.

    Attributes:
        title: above it.
        head: a name for each column.
        rows: as many cells each as the head has; the first is the row's name.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def as_text(self) -> str:
        """Return columns of even width, the first flush left, the others right."""
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [_aligned(row, widths) for row in (self.head, *self.rows)]
        rule = "-" * max(map(len, lines))
        return "\n".join([self.title, "", lines[0], rule, *lines[1:], ""])

    def as_markdown(self) -> str:
        """Return a Markdown table under its title."""
        lines = [
            f"**{escaped(self.title)}**",
            "",
            _piped(self.head),
            "| :-- |" + " --: |" * (len(self.head) - 1),
            *map(_piped, self.rows),
        ]
        return "\n".join([*lines, ""])


def percent(share: float) -> str:
    """Return a share in whole per cent: `33 %`."""
    return f"{100 * share:.0f} %"


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in a table too."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    parts = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return "  ".join(parts).rstrip()


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"
