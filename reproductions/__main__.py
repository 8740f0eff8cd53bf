"""Run the reproductions: `python -m reproductions`, or `scripts/reproduce`."""

from reproductions.command import PROGRAM, app

app(prog_name=PROGRAM)
