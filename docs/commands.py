"""Write the reference of the command line, docs/command.md, from the command itself.

Run it when a command or an option has changed: `python docs/commands.py`. A test compares.
"""

import re
import textwrap
from pathlib import Path
from typing import Any

import typer

from selective_backprop_lab.cli.main import app

PAGE = Path(__file__).with_name("command.md")
MARK = "<!-- What follows is written by docs/commands.py: change the command, not this page. -->\n"


def describe(app: typer.Typer) -> str:
    """Return what every command does and takes.

    Raises:
        ValueError: if a command, an option or an argument does not say what it is for.
    """
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    lines = ["## The commands", ""]
    for name, command in commands.items():
        if not command.help:
            raise ValueError(f"the command {name} does not say what it does")
        names = [f"- **{name}**"]
        for each in command.params:
            shown = _parameter(name, each)
            if each.param_type_name == "argument":
                names.append(shown)
        first = re.split(r"\.\s|\.$", command.help)[0]
        lines.append(_wrapped(f"{' '.join(names)}: {first}."))
    lines += ["", "`selective-backprop COMMAND --help` says what each option of a command means."]
    return "\n".join([*lines, ""])


def rewrite(page: str, app: typer.Typer) -> str:
    """Return a page with everything below its mark written anew."""
    above, _, _ = page.partition(MARK)
    return f"{above}{MARK}\n{describe(app)}"


def _parameter(command: str, each: Any) -> str:
    """Return a parameter as it is written."""
    is_argument = each.param_type_name == "argument"
    repeated = "..." * (is_argument and each.nargs < 0)
    names = [each.metavar + repeated] if is_argument else [*each.opts, *each.secondary_opts]
    if not each.help:
        raise ValueError(f"{command} {names[0]} does not say what it is for")
    value = "" if is_argument or each.is_flag else f" {each.metavar}"
    if "None" in value:
        raise ValueError(f"{command} {names[0]} does not say what its value stands for: metavar=")
    return ", ".join(f"`{name}{value}`" for name in names)


def _coded(text: str) -> str:
    """Return a text in which options are code, so that two hyphens do not become a dash."""
    return re.sub(r"(?<![`\w])--[a-z][a-z-]*", r"`\g<0>`", " ".join(text.split()))


def _wrapped(text: str) -> str:
    return textwrap.fill(
        _coded(text), 150, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    PAGE.write_text(rewrite(PAGE.read_text(encoding="utf-8"), app), encoding="utf-8")
