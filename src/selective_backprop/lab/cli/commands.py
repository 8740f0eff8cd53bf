"""How the command line ends where it cannot go on: with a message and an exit status."""

import signal
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

import selective_backprop as sb
from selective_backprop.lab.training.stopping import sigterm_leaves

# A folder may be called "[a]" or ":b:", which Rich would otherwise take for style and emoji.
errors = Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)

KEPT = (
    "what was recorded is kept. compare, reproduce and study go on from there when they are run "
    "again, and so does train with --resume"
)


class Commands(TyperGroup):
    """The commands, ending in a message and an exit status where they cannot go on."""

    def invoke(self, ctx: Any) -> Any:  # Typer's versions differ in whose context this is
        """Run the command that was asked for."""
        try:
            with sigterm_leaves():
                return super().invoke(ctx)
        except sb.SelectiveBackpropError as error:
            errors.print(f"error: {error}")
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            errors.print(f"interrupted; {KEPT}")
            raise typer.Exit(130) from None
        except SystemExit as leaving:
            if leaving.code == 128 + signal.SIGTERM:
                errors.print(f"ended by SIGTERM; {KEPT}")
            raise
