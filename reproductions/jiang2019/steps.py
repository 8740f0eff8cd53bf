"""Figure 18: what a training step consists of."""

from matplotlib.axes import Axes

from reproductions.jiang2019.drawing import caption, sheet, under
from reproductions.jiang2019.items import Found, Presentation
from reproductions.jiang2019.judging import Finding, Verdict
from reproductions.jiang2019.text import Grid, percent
from reproductions.jiang2019.timing import PHASES, ROUNDS, StepTimes
from selective_backprop.lab.report.panels import INK, entitle
from selective_backprop.lab.report.styles import PHASE_COLOURS

_NAMES = {"forward": "forward", "backward": "backward", "step": "optimiser"}


def present(found: Found) -> Presentation:
    """Draw the shares of forward, backward and the optimiser, a bar for each net."""
    with sheet(1, 2, height=0.9 + 0.36 * len(found.timings)) as (figure, grid):
        shares, times = grid[0]
        _draw(shares, found, relative=True)
        _draw(times, found, relative=False)
        data = sorted({str(timing.config["data"]) for timing in found.timings})
        words = (
            f"Training steps alone on {', '.join(data)}, batch "
            f"{found.timings[0].config['batch_size']}, median of {ROUNDS} rounds."
        )
        under(figure, f"{words} {caption(found)}")
    return Presentation(
        figure=figure, tables=(_table(found),), findings=tuple(map(_judge, found.timings))
    )


def _draw(panel: Axes, found: Found, *, relative: bool) -> None:
    names = [str(timing.config["model"]) for timing in found.timings]
    left = [0.0] * len(names)
    for phase in PHASES:
        widths = [_width(timing, phase, relative=relative) for timing in found.timings]
        panel.barh(
            names, widths, left=left, height=0.62, color=PHASE_COLOURS[phase], label=_NAMES[phase]
        )
        for row, (start, width) in enumerate(zip(left, widths, strict=True)):
            if relative and width > 6:
                where, text = start + width / 2, percent(width / 100)
                colour = INK if phase == "forward" else "white"
                panel.text(where, row, text, ha="center", va="center", fontsize=8, color=colour)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    panel.tick_params(axis="y", length=0)
    panel.invert_yaxis()
    panel.set_xlabel("% of a training step" if relative else "milliseconds per 1,000 images")
    title = "Share of a step" if relative else "Time of a step"
    entitle(panel, title, list(_NAMES.values()), room=3.4)


def _width(timing: StepTimes, phase: str, *, relative: bool) -> float:
    whole = sum(timing.phases.values())
    return timing.phases[phase] * (100 / whole if relative else 1.0)


def _table(found: Found) -> Grid:
    rows = tuple(
        (
            str(timing.config["model"]),
            *(f"{timing.phases[phase]:.1f}" for phase in PHASES),
            f"{timing.backward.median:.2f}",
            f"{timing.backward.low:.2f} to {timing.backward.high:.2f}",
        )
        for timing in found.timings
    )
    head = (
        "net",
        *(f"{name}, ms" for name in _NAMES.values()),
        "backward / forward",
        "95 % interval",
    )
    return Grid("Milliseconds per 1,000 images", head, rows)


def _judge(timing: StepTimes) -> Finding:
    found = timing.backward
    verdict = Verdict.UNCLEAR
    if found.low > 1.0 or found.high < 1.0:
        verdict = Verdict.AGREES if found.low > 1.0 else Verdict.DISAGREES
    claim = f"{timing.config['model']}: a backward pass takes longer than a forward pass"
    words = f"{found.median:.2f} × ({found.low:.2f} to {found.high:.2f})"
    return Finding(claim, verdict, words)
