"""The command `audit`: which training examples look mislabelled, by what runs recorded of them."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

import selective_backprop as sb
from selective_backprop.lab.cli.audits import Audit, audit_runs, predicted
from selective_backprop.lab.cli.command_line import console, errors
from selective_backprop.lab.cli.options import Root
from selective_backprop.lab.cli.suspect_sheet import write_sheet
from selective_backprop.lab.cli.write import folder_of
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.folders import make_folder, writing_out
from selective_backprop.lab.data.noise import UniformFlip
from selective_backprop.lab.data.thumbnails import portraits

PICTURED = 200  # examples that are shown in pictures, at most
_PRINTED = 10
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)


def audit(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUNS...",
            help="Folders of records, as compare and train write them, or single records; those of "
            "the same data.",
        ),
    ],
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="List this many examples. Default: all that were believed to be of another class.",
        ),
    ] = None,
    against_noise: Annotated[
        bool,
        typer.Option(
            "--against-noise",
            help="Of runs with --noise: say how many of the flipped labels are found.",
        ),
    ] = False,
    root: Root = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to. Default: audit, beside the first record."),
    ] = None,
) -> None:
    """Say which training examples look mislabelled, by what runs recorded of them.

    Runs of the same data are taken together. Writes suspects.csv, the most suspicious first, and
    suspects.html with their pictures, into a folder audit beside the records.
    """
    found = audit_runs(runs)
    if against_noise and found.wrong is None:
        raise sb.ConfigurationError(
            "--against-noise: no label of these runs was flipped on purpose, so that nobody knows "
            "which are wrong; make a run with --noise 0.2, or leave the option out"
        )
    folder = out or folder_of(runs[0]) / "audit"
    make_folder(folder)
    pictures, texts, trouble = _exhibits(found, root)
    for problem in (*found.problems, *trouble):
        errors.print(f"warning: {problem}")
    suspects = found.suspects
    count = suspects.suspicious if top is None else min(top, len(suspects))
    names = ", ".join(dict.fromkeys(run.header.arm for run in found.runs))
    console.print(
        f"{found.config.get('data')}: of {suspects.examples:,} training examples, "
        f"{suspects.suspicious:,} ({suspects.suspicious / suspects.examples:.1%}) have a suspicion "
        f"above 0: {len(found.runs)} run{'s' * (len(found.runs) > 1)} ({names}) believed another "
        "class more than the label, in the mean over all looks.",
        soft_wrap=True,
    )
    if count:
        console.print(_top_table(found, min(count, _PRINTED)))
    if against_noise:
        console.print(_cuts_table(found))
    with writing_out(folder):
        written = write_sheet(found, folder, count=count, pictures=pictures, texts=texts)
    console.print(
        f"{count:,} examples are listed in {' and '.join(map(str, written))}.", soft_wrap=True
    )


def _top_table(found: Audit, count: int) -> Table:
    suspects, names = found.suspects, found.class_names
    assert suspects.labels is not None
    assert suspects.predictions is not None
    assert suspects.confidences is not None
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("rank", "index", "suspicion", "looks", "label", "prediction", "confidence"):
        table.add_column(title, justify="left" if title in {"label", "prediction"} else "right")
    for rank in range(count):
        confidence = suspects.confidences[rank]
        table.add_row(
            str(rank + 1),
            str(suspects.indices[rank]),
            f"{suspects.suspicion[rank]:.3f}",
            str(suspects.looks[rank]),
            names[suspects.labels[rank]],
            predicted(int(suspects.predictions[rank]), names),
            "–" if np.isnan(confidence) else f"{confidence:.0%}",
        )
    return table


def _cuts_table(found: Audit) -> Table:
    """Return what is found at several cuts by this list, and by final and by mean loss alone."""
    wrong = found.wrong
    assert wrong is not None
    rankings = {
        "audit": found.suspects,
        "final loss": found.final_loss,
        "mean loss": found.mean_loss,
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
    top = found.suspects.indices[: found.suspects.suspicious]
    table.caption = (
        f"Of the {len(top):,} with a suspicion above 0, "
        f"{np.mean(wrong[top]) if len(top) else 0:.1%} are wrong; "
        f"{wrong[top].sum() / wrong.sum():.1%} of the flips are among them."
    )
    table.caption_justify = "left"
    return table


def _exhibits(
    found: Audit, root: Path | None
) -> tuple[dict[int, np.ndarray], dict[int, str], list[str]]:
    """Return pictures and texts of the most suspicious examples, and what was in the way."""
    wanted = found.suspects.indices[:PICTURED]
    pictures, texts = found.exhibits(wanted)
    if found.histories[0].portrait_image is None:
        return {}, texts, []
    try:
        data = _data_of(found, root)
    except (sb.DataError, sb.ConfigurationError) as error:
        trouble = (
            f"only {len(pictures)} of the {len(wanted)} most suspicious have pictures, those that "
            f"were recorded: {error}."
        )
        return pictures, texts, [trouble]
    return dict(zip(wanted.tolist(), portraits(data, wanted), strict=True)), texts, []


def _data_of(found: Audit, root: Path | None) -> datasets.ImageData:
    """Return the data that the runs trained on, if it is found here."""
    config, labels = found.config, found.histories[0].label
    clean = datasets.load(config["data"], root=root, limit=config.get("limit"))
    data = UniformFlip(config.get("noise", 0.0))(clean)
    if not np.array_equal(data.train_labels.numpy(), labels):
        raise sb.DataError(
            f"the {config['data']} that is found has other labels than what the run trained on; "
            "name the folder of that data with --root"
        )
    return data
