"""The lab: train a model with several strategies side by side, and compare their errors and costs.

    import selective_backprop_lab as lab

    evaluations = lab.frame("records/demo")
    evaluations.groupby(["length", "arm", "seed"]).error.last()

`records.frame.COLUMNS` says what each column of this table holds.
"""

from typing import Any

__all__ = ["frame"]


def __getattr__(name: str) -> Any:
    """Import pandas only when it is needed: the import takes longer than the command's help."""
    if name == "frame":
        from selective_backprop_lab.records.frame import frame

        return frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
