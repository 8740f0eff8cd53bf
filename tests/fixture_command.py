"""The command line as a shell runs it, in a folder of its own and without a process of its own."""

import io
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from selective_backprop import _command


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that was printed, however it was broken into lines."""
        return " ".join((self.out + self.err).split())


def run_command(line: str, folder: Path) -> Outcome:
    """Type a line in a folder, into no terminal of 120 columns."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["/bin/selective-backprop", *shlex.split(line)])
        patch.setattr(sys, "path", sys.path[:])
        patch.setenv("COLUMNS", "120")
        patch.delenv("FORCE_COLOR", raising=False)
        with pytest.raises(SystemExit) as leaving:
            _command.main()
    return Outcome(leaving.value.code or 0, out.getvalue(), err.getvalue())
