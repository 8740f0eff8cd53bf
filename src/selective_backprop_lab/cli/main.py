"""The command line."""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

import selective_backprop as sb
from selective_backprop_lab.cli.bench import advise, bench
from selective_backprop_lab.cli.command_line import Commands, console
from selective_backprop_lab.cli.options import with_options
from selective_backprop_lab.cli.report import audit, pack, report
from selective_backprop_lab.cli.train import compare, train

app = typer.Typer(
    name="selective-backprop",
    cls=Commands,
    help="Train on the examples that still teach the model something, and see whether it pays.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (compare, train, bench, advise, report, audit):
    app.command()(with_options(command))
app.command()(pack)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"{app.info.name} {sb.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. It ends with exit status 0, 1, 2, 130 (Ctrl-C) or 143 (SIGTERM)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # its encoding may lack a minus sign
            stream.reconfigure(errors="replace")
    app(prog_name=app.info.name)
