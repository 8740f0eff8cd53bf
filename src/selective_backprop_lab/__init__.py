"""Train one model with every strategy side by side, and say honestly which was cheaper.

    import selective_backprop_lab as lab

    evaluations = lab.frame("records/demo")

`records.frame.COLUMNS` says what each column of that table holds.
"""

from typing import Any

__all__ = ["frame"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: pandas takes longer than the command's help."""
    if name == "frame":
        from selective_backprop_lab.records.frame import frame

        return frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
