"""The list of suspicious examples as files: a CSV, small pictures, and a page that shows them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from jinja2 import Template
from PIL import Image

from selective_backprop.lab.cli.audits import Audit, predicted

CSV, PAGE, PICTURES = "suspects.csv", "suspects.html", "suspects"

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
<p>The {{ items | length }} most suspicious of {{ examples }} training examples that have a picture
or a text here; {{ csv }} lists {{ listed }}. The label comes first, then what the model believed
instead, and the suspicion, from −1 to 1. Hard but rightly labelled examples are among them: look
before you relabel or remove.</p>
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


def write_sheet(
    audit: Audit,
    folder: Path,
    *,
    count: int,
    pictures: Mapping[int, UInt8[np.ndarray, "height width channel"]],
    texts: Mapping[int, str],
) -> list[Path]:
    """Write the most suspicious examples as `suspects.csv`, with `suspects.html` beside it.

    Pictures go into a folder `suspects`, each named by the example's index in the data set, as the
    CSV's column `picture` has it. The page shows those examples that have a picture or a text.

    Args:
        audit: whose list.
        folder: where to; it exists.
        count: examples that are listed, from the top.
        pictures: of examples by index, grey or red, green and blue.
        texts: of examples by index.

    Returns:
        What was written: the CSV, and the page if there is anything to show.
    """
    suspects = audit.suspects
    listed = suspects.indices[:count].tolist()
    names = {index: f"{PICTURES}/{index:06}.png" for index in listed if index in pictures}
    if names:
        (folder / PICTURES).mkdir(exist_ok=True)
    for index, name in names.items():
        Image.fromarray(np.squeeze(pictures[index])).save(folder / name)
    extra: dict[str, list[object]] = {
        "mean_loss": [f"{each:.4f}" for each in audit.losses[listed]],
        "times_trained": audit.times_trained[listed].tolist(),
    }
    if names:
        extra["picture"] = [names.get(index, "") for index in listed]
    if texts:
        extra["text"] = [texts.get(index, "") for index in listed]
    suspects.write_csv(folder / CSV, limit=count, class_names=audit.class_names, extra=extra)
    if not names and not texts:
        return [folder / CSV]
    assert suspects.labels is not None
    assert suspects.predictions is not None
    items = [
        {
            "rank": rank + 1,
            "index": index,
            "picture": names.get(index),
            "text": texts.get(index),
            "label": audit.class_names[suspects.labels[rank]],
            "prediction": predicted(int(suspects.predictions[rank]), audit.class_names),
            "suspicion": f"{suspects.suspicion[rank]:.2f}",
        }
        for rank, index in enumerate(listed)
        if index in names or index in texts
    ]
    page = _PAGE.render(
        items=items, examples=f"{suspects.examples:,}", listed=f"{len(listed):,}", csv=CSV
    )
    (folder / PAGE).write_text(page, encoding="utf-8")
    return [folder / CSV, folder / PAGE]
