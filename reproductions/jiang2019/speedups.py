"""Table 1: how much sooner each strategy reaches multiples of Traditional's final error."""

from collections.abc import Iterator, Mapping

from reproductions.jiang2019.clock import clock, timed
from reproductions.jiang2019.items import Filled, Found, Presentation
from reproductions.jiang2019.judging import Finding, Verdict, reaches_sooner
from reproductions.jiang2019.text import Grid
from selective_backprop.lab.analysis.grouping import Arm
from selective_backprop.lab.analysis.statistics import (
    AXIS_WORDS,
    FACTORS,
    Axis,
    SpeedUp,
    estimate,
    final_error,
    speedups,
    time_to,
)
from selective_backprop.lab.analysis.tables import with_interval

# Of table 1, to 1.1, 1.2 and 1.4 times the final error of Traditional; None: not reached.
REPORTED: Mapping[str, Mapping[str, tuple[float | None, ...]]] = {
    "CIFAR-10": {"sb": (1.4, 1.2, 1.5), "stale": (None, 1.5, 2.0), "kath18": (1.4, 1.1, 1.3)},
    "CIFAR-100": {"sb": (1.2, 1.2, 1.2), "stale": (1.5, 1.0, 1.6), "kath18": (1.1, 0.8, 0.8)},
    "SVHN": {"sb": (3.4, 3.4, 3.5), "stale": (4.3, 4.9, 5.0), "kath18": (1.9, 2.8, 3.4)},
}
_AXES: tuple[Axis, ...] = ("seconds", "cost")


def present(found: Found) -> Presentation:
    """Make the table, in seconds as the paper's and in cost, with the paper's beside."""
    return Presentation(
        tables=tuple(
            _table(filled, axis) for filled in found.panels for axis in timed(_AXES, found.runs)
        ),
        findings=tuple(finding for filled in found.panels for finding in _judge(filled)),
    )


def _table(filled: Filled, axis: Axis) -> Grid:
    base = filled.find("traditional")
    reported = REPORTED.get(filled.panel.setting.paper_data, {})
    rows = []
    for entry, arm in filled.pairs:
        error = with_interval(estimate([final_error(run) for run in arm.runs]))
        measured = (
            [_text(speed, filled) for speed in speedups(arm, base, axis=axis)] if base else []
        )
        theirs = [_said(factor) for factor in reported.get(entry.key, ())] or [""] * len(FACTORS)
        rows.append((entry.label, error, *(measured or ["–"] * len(FACTORS)), *theirs))
    factors = tuple(f"{factor:g}×" for factor in FACTORS)
    head = ("strategy", "final error %", *factors, *(f"paper {name}" for name in factors))
    return Grid(f"{filled.panel.title}: speed-up in {AXIS_WORDS[axis]}", head, tuple(rows))


def _text(speed: SpeedUp, filled: Filled) -> str:
    return speed.text if speed.target < filled.panel.setting.guessing else "guessing does"


def _said(factor: float | None) -> str:
    return "not reached" if factor is None else f"{factor:.1f}×"


def _judge(filled: Filled) -> Iterator[Finding]:
    base = filled.find("traditional")
    if base is None:
        return
    final = estimate([final_error(run) for run in base.runs]).mean
    for key, factors in REPORTED.get(filled.panel.setting.paper_data, {}).items():
        arm = filled.find(key)
        if arm is None:
            continue
        for factor, said in zip(FACTORS, factors, strict=True):
            where, target = f"{filled.panel.title}: {arm.label} to {factor:g}×", factor * final
            if target < filled.panel.setting.guessing:
                yield _one(where, arm, base, target, said)
            else:
                claim = f"{where} is {'not reached' if said is None else f'{said:.1f}× as fast'}"
                yield Finding(claim, Verdict.UNCLEAR, f"guessing reaches {target:.2f} %")


def _one(where: str, arm: Arm, base: Arm, target: float, said: float | None) -> Finding:
    if said is None:
        return _never(f"{where} is not reached", arm, target)
    claim = f"{where} is faster ({_said(said)})"
    found = reaches_sooner(claim, arm, base, target, clock(base.runs))
    if said > 1.0:
        return found
    flipped = {Verdict.AGREES: Verdict.DISAGREES, Verdict.DISAGREES: Verdict.AGREES}
    claim = f"{where} is no faster ({_said(said)})"
    return Finding(claim, flipped.get(found.verdict, found.verdict), found.words)


def _never(claim: str, arm: Arm, target: float) -> Finding:
    reached = sum(time_to(run, target) is not None for run in arm.runs)
    verdict = Verdict.UNCLEAR
    if len(arm.runs) > 1 and reached in (0, len(arm.runs)):
        verdict = Verdict.DISAGREES if reached else Verdict.AGREES
    return Finding(claim, verdict, f"{reached} of {len(arm.runs)} seeds reached {target:.2f} %")
