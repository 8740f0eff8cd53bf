"""The command `audit`: which training examples look mislabelled, by what runs recorded of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from jinja2 import Template
from PIL import Image

import selective_backprop as sb
from selective_backprop.lab.analysis.tables import Column, Table
from selective_backprop.lab.cli.audits import Audit, audit_runs
from selective_backprop.lab.cli.command_line import console, errors
from selective_backprop.lab.cli.options import Root
from selective_backprop.lab.cli.write import folder_of
from selective_backprop.lab.data import datasets
from selective_backprop.lab.data.datasets import portraits
from selective_backprop.lab.data.folders import make_folder, writing_out
from selective_backprop.lab.data.noise import UniformFlip

PICTURED = 200  # examples that are shown in pictures, at most
_PRINTED = 10
_MEASURES = ("precision", "recall")
_PAGE = Template(
    """\
<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Examples that look mislabelled</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
  padding: 0 1rem; }
ol { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem;
  list-style: none; padding: 0; }
li { font-size: .85rem; overflow-wrap: anywhere; }
img { width: 6rem; image-rendering: pixelated; display: block; margin-bottom: .3rem; }
small { opacity: .7; }
</style>
<h1>Examples that look mislabelled</h1>
<p>The {{ items | length }} most suspicious of {{ "{:,}".format(examples) }} training examples that
have a picture or a text here; suspects.csv lists {{ "{:,}".format(listed) }}. The label comes
first, then what the model believed instead, and the suspicion, from −1 to 1. Hard but rightly
labelled examples are among them: look before you relabel or remove.</p>
<ol>
{%- for item in items %}
<li>
{%- if item.picture %}<img src="{{ item.picture }}" alt="example {{ item.index }}" loading="lazy">
{%- endif %}
{%- if item.text is not none %}<p>{{ item.text }}</p>{% endif -%}
{{ item.label }} → {% if item.label == item.prediction %}its label, at last
{%- else %}<b>{{ item.prediction }}</b>{% endif %}<br>
<small>{{ item.rank }}. index {{ item.index }}, suspicion {{ item.suspicion }}</small></li>
{%- endfor %}
</ol></html>
""",
    autoescape=True,
)


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
    pictures, trouble = _pictures(found, root)
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
    if against_noise and found.wrong is not None:
        console.print(_cuts_table(found, found.wrong))
    with writing_out(folder):
        written = _write_list(found, folder, count, pictures)
    console.print(
        f"{count:,} examples are listed in {' and '.join(map(str, written))}.", soft_wrap=True
    )


def _top_table(found: Audit, count: int) -> Table:
    """Return the most suspicious examples as a table for the terminal."""
    rows = found.rows(count)
    left = {"label", "prediction"}
    columns = [Column(name, left=name in left) for name in rows[0]]
    return Table(columns, [[str(cell) for cell in row.values()] for row in rows])


def _cuts_table(found: Audit, wrong: np.ndarray) -> Table:
    """Return what is found at several cuts by this list, and by final and by mean loss alone."""
    rankings = {
        "audit": found.suspects,
        "final loss": found.ranked_by("loss_last"),
        "mean loss": found.ranked_by("loss_mean"),
    }
    rows = [
        [f"{cuts[0].share:.0%}"]
        + [f"{value:.1%}" for cut in cuts for value in (cut.precision, cut.recall)]
        for cuts in zip(*(each.cuts(wrong) for each in rankings.values()), strict=True)
        if cuts[0].inspected  # of few examples a small share is none
    ]
    top = found.suspects.indices[: found.suspects.suspicious]
    return Table(
        ["inspected", *(f"{name}:\n{what}" for name in rankings for what in _MEASURES)],
        rows,
        title=f"{int(wrong.sum()):,} labels were flipped on purpose ({wrong.mean():.1%})",
        notes=[
            f"Of the {len(top):,} with a suspicion above 0, "
            f"{np.mean(wrong[top]) if len(top) else 0:.1%} are wrong; "
            f"{wrong[top].sum() / wrong.sum():.1%} of the flips are among them."
        ],
    )


def _write_list(
    found: Audit, folder: Path, count: int, pictures: Mapping[int, np.ndarray]
) -> list[Path]:
    """Write `suspects.csv`, and beside it a page of those that have a picture or a text.

    Pictures go into a folder `suspects`, each named by the example's index in the data set.
    """
    suspects, listed = found.suspects, found.suspects.indices[:count]
    texts = _recorded(found, "portrait_text", listed)
    names = {index: f"suspects/{index:06}.png" for index in listed.tolist() if index in pictures}
    if names:
        (folder / "suspects").mkdir(exist_ok=True)
    for index, name in names.items():
        Image.fromarray(np.squeeze(pictures[index])).save(folder / name)
    times = sum(each.selected[listed].astype(np.int64) for each in found.histories)
    extra: dict[str, Sequence[object]] = {
        "mean_loss": [f"{each:.4f}" for each in found.mean("loss_mean")[listed]],
        "times_trained": np.asarray(times).tolist(),
    }
    for title, shown in (("picture", names), ("text", texts)):
        if shown:
            extra[title] = [shown.get(index, "") for index in listed.tolist()]
    table, page = folder / "suspects.csv", folder / "suspects.html"
    suspects.write_csv(table, limit=count, class_names=found.class_names, extra=extra)
    items = [
        row | {"picture": names.get(row["index"]), "text": texts.get(row["index"])}
        for row in found.rows(count)
        if row["index"] in names or row["index"] in texts
    ]
    if not items:
        return [table]
    text = _PAGE.render(items=items, examples=suspects.examples, listed=len(listed))
    page.write_text(text, encoding="utf-8")
    return [table, page]


def _pictures(found: Audit, root: Path | None) -> tuple[Mapping[int, np.ndarray], list[str]]:
    """Return pictures of the most suspicious examples, and what was in the way."""
    if found.histories[0].portrait_image is None:
        return {}, []
    wanted = found.suspects.indices[:PICTURED]
    try:
        data = _data_of(found, root)
    except (sb.DataError, sb.ConfigurationError) as error:
        recorded = _recorded(found, "portrait_image", wanted)
        return recorded, [
            f"only {len(recorded)} of the {len(wanted)} most suspicious have pictures, those that "
            f"were recorded: {error}."
        ]
    return dict(zip(wanted.tolist(), portraits(data, wanted), strict=True)), []


def _recorded(found: Audit, field: str, wanted: np.ndarray) -> dict[int, Any]:
    """Return the pictures or texts that runs recorded of some examples, by index."""
    among = set(wanted.tolist())
    return {
        index: each
        for history in found.histories
        if (shown := getattr(history, field)) is not None
        for index, each in zip(history.portrait_index.tolist(), shown, strict=True)
        if index in among
    }


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
