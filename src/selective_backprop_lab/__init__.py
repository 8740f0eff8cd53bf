"""Train one model with every strategy side by side, and say honestly which was cheaper.

    import selective_backprop_lab as lab

    evaluations = lab.frame("records/demo")

`records.frame.COLUMNS` says what each column of that table holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

__all__ = ["frame"]


def frame(*places: str | Path) -> pd.DataFrame:
    """Return all evaluations of all runs of some folders of records, a row each.

    Raises:
        RecordError: if a folder is missing, or one of its records cannot be read.
    """
    from selective_backprop_lab.records import frame as records  # which imports pandas: slow

    return records.frame(*places)
