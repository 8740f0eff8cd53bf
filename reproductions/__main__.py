"""Run the reproductions: `python -m reproductions`, or `scripts/reproduce`."""

from reproductions.command import app

app(prog_name="scripts/reproduce")
