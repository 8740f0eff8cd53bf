"""What the command `audit` does: rank, hold against known flips, write list and pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import selective_backprop as sb
from selective_backprop.lab.cli.audits import Audit, audit_runs, predicted
from selective_backprop.lab.cli.suspect_sheet import write_sheet
from selective_backprop.lab.cli.write import folder_of
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.folders import make_folder, writing_out
from selective_backprop.lab.data.noise import UniformFlip
from selective_backprop.lab.data.thumbnails import portraits

PICTURED = 200  # examples that are shown in pictures, at most
_PRINTED = 10
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)


def show_audit(
    console: Console,
    errors: Console,
    places: Sequence[Path],
    *,
    top: int | None,
    root: Path | None,
    against_noise: bool,
    out: Path | None,
) -> None:
    """Audit the runs at a path, print the top of the list, and write it.

    Args:
        console: where to.
        errors: where what is wrong goes.
        places: records, or folders of records.
        top: examples that are listed; None for those that the runs believed to be of another
            class.
        root: folder of the data set's files, for pictures.
        against_noise: whether to say how many of the labels that were flipped on purpose are found.
        out: where the list goes; None for a folder `audit` beside the first record.

    Raises:
        RecordError: if no run can be audited.
        ConfigurationError: if there are no flips to hold the list against, or the list cannot be
            written.
    """
    audit = audit_runs(places)
    if against_noise and audit.wrong is None:
        raise sb.ConfigurationError(
            "--against-noise: no label of these runs was flipped on purpose, so that nobody knows "
            "which are wrong; make a run with --noise 0.2, or leave the option out"
        )
    folder = out or folder_of(places[0]) / "audit"
    make_folder(folder)
    pictures, texts, trouble = _exhibits(audit, root)
    for problem in (*audit.problems, *trouble):
        errors.print(f"warning: {problem}")
    suspects = audit.suspects
    count = suspects.suspicious if top is None else min(top, len(suspects))
    console.print(_headline(audit), soft_wrap=True)
    if count:
        console.print(_top_table(audit, min(count, _PRINTED)))
    if against_noise:
        console.print(_cuts_table(audit))
    with writing_out(folder):
        written = write_sheet(audit, folder, count=count, pictures=pictures, texts=texts)
    console.print(
        f"{count:,} examples are listed in {' and '.join(map(str, written))}.", soft_wrap=True
    )


def _headline(audit: Audit) -> str:
    suspects, runs = audit.suspects, audit.runs
    arms = ", ".join(dict.fromkeys(run.header.arm for run in runs))
    return (
        f"{audit.config.get('data')}: of {suspects.examples:,} training examples, "
        f"{suspects.suspicious:,} ({suspects.suspicious / suspects.examples:.1%}) have a suspicion "
        f"above 0: {len(runs)} run{'s' * (len(runs) > 1)} ({arms}) believed another class more "
        "than the label, in the mean over all looks."
    )


def _top_table(audit: Audit, count: int) -> Table:
    suspects, names = audit.suspects, audit.class_names
    assert suspects.labels is not None
    assert suspects.predictions is not None
    assert suspects.confidences is not None
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("rank", "index", "suspicion", "looks"):
        table.add_column(title, justify="right")
    for title in ("label", "prediction"):
        table.add_column(title)
    table.add_column("confidence", justify="right")
    for rank in range(count):
        table.add_row(
            str(rank + 1),
            str(suspects.indices[rank]),
            f"{suspects.suspicion[rank]:.3f}",
            str(suspects.looks[rank]),
            names[suspects.labels[rank]],
            predicted(int(suspects.predictions[rank]), names),
            "–" if np.isnan(suspects.confidences[rank]) else f"{suspects.confidences[rank]:.0%}",
        )
    return table


def _cuts_table(audit: Audit) -> Table:
    """Return what is found at several cuts by this list, and by final and by mean loss alone."""
    wrong = audit.wrong
    assert wrong is not None
    rankings = {
        "audit": audit.suspects,
        "final loss": audit.final_loss,
        "mean loss": audit.mean_loss,
    }
    title = f"{int(wrong.sum()):,} labels were flipped on purpose ({wrong.mean():.1%})"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    table.add_column("inspected", justify="right")
    for name in rankings:
        table.add_column(f"{name}:\nprecision", justify="right")
        table.add_column("\nrecall", justify="right")
    columns = [ranking.cuts(wrong, _SHARES) for ranking in rankings.values()]
    for cuts in zip(*columns, strict=True):
        if not cuts[0].inspected:
            continue  # of so few examples that share is none
        cells = [f"{value:.1%}" for cut in cuts for value in (cut.precision, cut.recall)]
        table.add_row(f"{cuts[0].share:.0%}", *cells)
    top = audit.suspects.indices[: audit.suspects.suspicious]
    table.caption = (
        f"Of the {len(top):,} with a suspicion above 0, "
        f"{np.mean(wrong[top]) if len(top) else 0:.1%} are wrong; "
        f"{wrong[top].sum() / wrong.sum():.1%} of the flips are among them."
    )
    table.caption_justify = "left"
    return table


def _exhibits(
    audit: Audit, root: Path | None
) -> tuple[dict[int, np.ndarray], dict[int, str], list[str]]:
    """Return pictures and texts of the most suspicious examples, and what was in the way."""
    wanted = audit.suspects.indices[:PICTURED]
    recorded, texts = _recorded(audit)
    if audit.histories[0].portrait_image is None:
        return {}, texts, []
    try:
        data = _data_of(audit, root)
    except (sb.DataError, sb.ConfigurationError) as error:
        trouble = (
            f"only {len(recorded)} of the {len(wanted)} most suspicious have pictures, those that "
            f"were recorded: {error}."
        )
        return recorded, texts, [trouble]
    return dict(zip(wanted.tolist(), portraits(data, wanted), strict=True)), texts, []


def _recorded(audit: Audit) -> tuple[dict[int, np.ndarray], dict[int, str]]:
    """Return the pictures and texts among the runs' records of the most suspicious examples."""
    wanted = set(audit.suspects.indices[:PICTURED].tolist())
    pictures: dict[int, np.ndarray] = {}
    texts: dict[int, str] = {}
    for history in audit.histories:
        indices = history.portrait_index.tolist()
        for found, shown in (
            (pictures, history.portrait_image),
            (texts, history.portrait_text),
        ):
            if shown is not None:
                pairs = zip(indices, shown, strict=True)
                found.update({index: each for index, each in pairs if index in wanted})
    return pictures, texts


def _data_of(audit: Audit, root: Path | None) -> datasets.ImageData:
    """Return the data that the runs trained on.

    Raises:
        DataError: if it cannot be read, or is not that data.
        ConfigurationError: if there is none of its name.
    """
    config, labels = audit.config, audit.histories[0].label
    clean = datasets.load(config["data"], root=root, limit=config.get("limit"))
    data = UniformFlip(config.get("noise", 0.0))(clean)
    if not np.array_equal(data.train_labels.numpy(), labels):
        raise sb.DataError(
            f"the {config['data']} that is found has other labels than what the run trained on; "
            "name the folder of that data with --root"
        )
    return data
