"""Export what is known about each example as a table with cleanlab's columns, CSV or Parquet."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.files import replacing
from selective_backprop._memory.ledger import Ledger
from selective_backprop.guide._audit.audit import as_losses, audit
from selective_backprop.guide._audit.label_doubts import Doubts
from selective_backprop.guide._audit.ranked_examples import Suspects, write_columns

Table = Mapping[str, np.ndarray | Sequence[object]]


def example_table(evidence: Doubts | Suspects | Ledger | Tensor | np.ndarray) -> Table:
    """Return what is known about each example as columns, in the data set's order.

    For `Doubts` and `Suspects`, the columns are:

    - `suspicion`: from −1 to 1, as in `audit`.
    - `label_quality`: (1 − suspicion) / 2, in [0, 1]; the lower, the likelier the label is wrong.
    - `is_label_issue`: true for the suspects: the first `Suspects.suspicious` ranked examples. If
      `audit` ranked the examples, the suspects are those with a `label_quality` below ½.
    - `looks`: how many times the model saw the example, as far as is known.
    - `given_label`, the last `predicted_label` and its `confidence`, unless only losses are known.

    cleanlab's `CleanLearning` takes this table as `label_issues`. The table has no `pred_probs`,
    because cleanlab expects these from a model that was not trained on the example.

    Args:
        evidence: what is known about the examples:

            - `Doubts`, or the `Suspects` that `audit` or `find_label_issues` found.
            - A loader's `ledger`. The columns are `loss` and `loss_epoch` (last recorded loss),
              `score` and `score_epoch` (last selection pass), `label` if known, and
              `times_trained`.
            - Losses, `[look, example]`, or `[example]` for one look. The columns are `loss_0`,
              `loss_1`, …

    Returns:
        Columns by name, each an array `[example]`; the first column is `index`. An unknown value is
        NaN, or −1 in a column of whole numbers.

    Raises:
        ConfigurationError: if `evidence` is of another kind or shape.

    Example:
        >>> import numpy as np, selective_backprop as sb
        >>> table = sb.guide.example_table(np.array([[0.5, 2.0], [0.25, np.nan]]))
        >>> {name: column.tolist() for name, column in table.items()}
        {'index': [0, 1], 'loss_0': [0.5, 2.0], 'loss_1': [0.25, nan]}
    """
    if isinstance(evidence, Doubts):
        evidence = audit(evidence)
    if isinstance(evidence, Suspects):
        columns = _of_suspects(evidence)
    elif isinstance(evidence, Ledger):
        columns = _of_ledger(evidence)
    elif isinstance(evidence, Tensor | np.ndarray):
        columns = {f"loss_{look}": each for look, each in enumerate(as_losses(evidence))}
    else:
        raise ConfigurationError(
            f"a {type(evidence).__name__} does not describe examples. Give Doubts, Suspects, "
            "losses [look, example], or the ledger of a loader whose strategy remembers examples"
        )
    examples = len(next(iter(columns.values()), ()))
    return {"index": np.arange(examples), **columns}


def write_table(table: Table, path: str | Path) -> None:
    """Write columns of equal length to a file, as CSV or as Parquet.

    Args:
        table: columns by name, as `example_table` returns them; you may add your own.
        path: path of the file. A `.csv` file has floats of seven digits, and empty cells for NaN.
            Texts that look like formulas get an apostrophe in front, as in `Suspects.write_csv`.
            A `.parquet` file keeps the columns' types; writing it needs pandas and pyarrow.

    Raises:
        ConfigurationError: if the file name has another ending, columns differ in length, or a
            package is missing.
    """
    path, lengths = Path(path), {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigurationError(f"all columns need the same length, but these have {lengths}")
    if path.suffix == ".csv":
        write_columns({name: _cells(column) for name, column in table.items()}, path)
    elif path.suffix == ".parquet":
        try:
            import pandas as pd

            with replacing(path) as file:
                pd.DataFrame(dict(table)).to_parquet(file, engine="pyarrow", index=False)
        except ImportError as error:
            raise ConfigurationError(
                f"{path} needs pandas and pyarrow ({error}): pip install pandas pyarrow, or write "
                "a name that ends in .csv"
            ) from error
    else:
        raise ConfigurationError(f"path={str(path)!r}: write a name ending in .csv or .parquet")


def _of_suspects(suspects: Suspects) -> dict[str, np.ndarray]:
    def spread(values: np.ndarray, unknown: float) -> np.ndarray:
        column = np.full(suspects.examples, unknown, values.dtype)
        column[suspects.indices] = values
        return column

    suspicion = spread(suspects.suspicion, np.nan)
    columns = {
        "suspicion": suspicion,
        "label_quality": (1.0 - suspicion) / 2.0,
        "is_label_issue": spread(np.arange(len(suspects)) < suspects.suspicious, False),
        "looks": spread(suspects.looks, 0),
    }
    for name, values, unknown in (
        ("given_label", suspects.labels, -1),
        ("predicted_label", suspects.predictions, -1),
        ("confidence", suspects.confidences, np.nan),
    ):
        if values is not None:
            columns[name] = spread(values, unknown)
    return columns


def _of_ledger(ledger: Ledger) -> dict[str, np.ndarray]:
    columns = {}
    for name, column in (("loss", ledger.recorded), ("score", ledger.scored)):
        if not column.empty:
            observed = column.observe()
            columns |= {name: observed.scores[0], f"{name}_epoch": observed.epochs[0]}
    if not ledger.classes.empty:
        labels = ledger.classes.observe().scores[0]
        columns["label"] = np.where(np.isnan(labels), -1, labels).astype(np.int64)
    return columns | {"times_trained": ledger.selected.numpy()}


def _cells(column: np.ndarray | Sequence[object]) -> Sequence[object]:
    values = np.asarray(column)
    if values.dtype.kind != "f":
        return values.tolist()
    return [f"{each:.7g}" if each == each else "" for each in values.tolist()]
