"""The looks of the report: its style sheet, its script, and the frame that holds a page together.

Everything is inside the file, and a content security policy forbids the browser to ask for anything
else, whatever the script or a text in a record might try.
"""

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from plotly.offline import get_plotlyjs

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2024; --quiet: #5c636b;
  --line: #d9dce0; --shade: #f4f5f7; --accent: #0b62a0; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --ink: #e4e6e9; --quiet: #9aa2ab;
  --line: #33383f; --shade: #1e2125; --accent: #6cb6ec; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: clamp(1.5rem, 5vw, 2.1rem); line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.8rem 0 .6rem; }
p, li, dd { max-width: 46rem; overflow-wrap: anywhere; }
.quiet, figcaption, .notes { color: var(--quiet); font-size: .9rem; }
.notes li { margin: .3rem 0; }
ul { padding-left: 1.2rem; }
.findings { list-style: none; padding: 0; margin: 1.4rem 0 0; border-top: 1px solid var(--line); }
.findings li { padding: .55rem 0; border-bottom: 1px solid var(--line); max-width: none; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: 1rem 0;
  font-size: .92rem; }
dt { color: var(--quiet); } dd { margin: 0; }
.wide { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; min-width: 100%; font-size: .88rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .55rem; text-align: right; white-space: nowrap; vertical-align: top; }
th { color: var(--quiet); font-weight: 500; vertical-align: bottom;
  border-bottom: 1px solid var(--line); }
th.group { text-align: center; border-bottom: 0; }
th:first-child, td:first-child { text-align: left; padding-left: 0; position: sticky; left: 0;
  background: var(--paper); }
tr.rule td { border-top: 1px solid var(--line); }
td small { display: block; color: var(--quiet); }
.swatch { display: inline-block; width: .7em; height: .7em; border-radius: 50%;
  margin-right: .5em; }
figure { margin: 0; }
.plot { width: 100%; }
.choices { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; margin: .4rem 0 .6rem; }
.choices div { display: flex; flex-wrap: wrap; align-items: center; gap: .3rem; }
.choices span { color: var(--quiet); font-size: .85rem; margin-right: .2rem; }
button { font: inherit; font-size: .85rem; color: var(--ink); background: var(--shade);
  border: 1px solid var(--line); border-radius: 6px; padding: .25rem .65rem; cursor: pointer; }
.choices button[aria-pressed="true"] { background: var(--accent); border-color: var(--accent);
  color: var(--paper); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .3rem; margin: .2rem 0 .5rem; }
.legend button { display: inline-flex; align-items: center; gap: .45rem; background: none;
  border-color: transparent; color: var(--ink); padding: .1rem .4rem; text-align: left; }
.legend button[aria-pressed="false"] { opacity: .4; text-decoration: line-through; }
.legend svg { flex: none; }
button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
pre { background: var(--shade); border: 1px solid var(--line); border-radius: 6px; padding: .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .88rem; }
summary { cursor: pointer; color: var(--quiet); }
noscript p { color: var(--quiet); }
"""

_SCRIPT = """
const dark = matchMedia('(prefers-color-scheme: dark)');
const plots = JSON.parse(document.getElementById('plots').textContent);
// Plotly offers by itself to send a figure to its maker's server; this page has no such button.
const config = {displaylogo: false, responsive: true, showSendToCloud: false, plotlyServerURL: '',
  modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]};

function coloured(layout) {
  const css = getComputedStyle(document.documentElement);
  const of = name => css.getPropertyValue(name).trim();
  const axis = {gridcolor: of('--line'), linecolor: of('--quiet'), tickcolor: of('--quiet'),
    tickfont: {color: of('--quiet')}};
  // A finger that scrolls the page must not zoom the figure it happens to cross.
  const dragmode = matchMedia('(pointer: fine)').matches ? 'zoom' : false;
  return {dragmode, ...layout,
    font: {color: of('--ink'), family: getComputedStyle(document.body).fontFamily, size: 13},
    hoverlabel: {bgcolor: of('--paper'), bordercolor: of('--line'), font: {color: of('--ink')}},
    modebar: {color: of('--line'), activecolor: of('--quiet'), bgcolor: 'rgba(0,0,0,0)'},
    xaxis: {...layout.xaxis, ...axis}, yaxis: {...layout.yaxis, ...axis}};
}

function draw(plot) {
  return Plotly.react(document.getElementById(plot.name), plot.data, coloured(plot.layout), config);
}

// A click switches one entry; a double click shows it alone, or everything again.
function switchEntries(plot, entries, only) {
  if (only) {
    const alone = entries.every(e => (e.getAttribute('aria-pressed') === 'true') === (e === only));
    entries.forEach(e => e.setAttribute('aria-pressed', alone || e === only));
  }
  const shown = new Set(entries.filter(e => e.getAttribute('aria-pressed') === 'true')
    .map(e => e.dataset.entry));
  plot.data = plot.data.map(trace => ({...trace, visible: shown.has(trace.legendgroup)}));
  draw(plot);
}

for (const plot of plots) {
  draw(plot);
  const entries = [...document.querySelectorAll(`[data-legend="${plot.name}"]`)];
  for (const entry of entries) {
    entry.addEventListener('click', () => {
      entry.setAttribute('aria-pressed', entry.getAttribute('aria-pressed') !== 'true');
      switchEntries(plot, entries);
    });
    entry.addEventListener('dblclick', () => switchEntries(plot, entries, entry));
  }
  for (const button of document.querySelectorAll(`[data-plot="${plot.name}"]`)) {
    button.addEventListener('click', () => {
      const {choice, scale} = button.dataset;
      if (choice) {
        plot.choices[choice].x.forEach((x, i) => { plot.data[i].x = x; });
        plot.data = plot.data.map(trace => ({...trace}));
        plot.layout.xaxis = {...plot.layout.xaxis, title: {text: plot.choices[choice].title},
          autorange: true};
      } else {
        plot.layout.yaxis = {...plot.layout.yaxis, ...plot.scales[scale], autorange: false};
      }
      for (const other of button.parentElement.querySelectorAll('button'))
        other.setAttribute('aria-pressed', other === button);
      draw(plot);
    });
  }
}
dark.addEventListener('change', () => plots.forEach(draw));
"""


def frame(title: str, body: Iterable[str], plots: Sequence[dict[str, Any]]) -> str:
    """Return a whole page.

    Args:
        title: plain text.
        body: HTML, escaped already.
        plots: data for the script, one entry for each element of class `plot`.
    """
    # "<" could end the script element from inside a text; JSON has another spelling for it.
    data = json.dumps(plots, allow_nan=False).replace("<", "\\u003c")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            f'<script type="application/json" id="plots">{data}</script>',
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{_SCRIPT}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )
