"""The looks of the report: its style sheet, its script, and the frame that holds a page together.

Everything is inside the file, and a content security policy forbids the browser to ask for anything
else, whatever the script or a text in a record might try.
"""

import base64
import gzip
import html
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def frame(title: str, body: Iterable[str], data: dict[str, Any]) -> str:
    """Return a whole page.

    Args:
        title: plain text.
        body: HTML, escaped already.
        data: for the script: `plots`, one entry for each element of class `plot`, and `gallery`,
            the single examples, or None for none.
    """
    # "<" could end the script element from inside a text; JSON has another spelling for it.
    content = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{_text('page.css')}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            f'<script type="application/json" id="data">{content}</script>',
            f'<script type="application/gzip" id="plotly">{packed_plotly()}</script>',
            f"<script>{_text('page.js')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def packed_plotly() -> str:
    """Return Plotly's code, compressed and in letters: 2 MB in place of 5."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _text(name: str) -> str:
    return files("selective_backprop.lab.report").joinpath(name).read_text(encoding="utf-8")
