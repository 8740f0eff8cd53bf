"""The verdict on a claim, from an interval over seeds and a limit."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from selective_backprop_lab.analysis.estimates import Estimate
from selective_backprop_lab.analysis.tables import with_interval


class Verdict(StrEnum):
    """Whether a claim holds: `OPEN` if the interval includes the limit, or there is no interval."""

    HOLDS = "agrees"
    FAILS = "disagrees"
    OPEN = "cannot say"


@dataclass(frozen=True)
class Finding:
    """A claim, whether it holds, and the numbers in words."""

    claim: str
    verdict: Verdict
    measured: str
    aside: str = ""  # why the verdict does not count, such as "by construction"


def is_above(found: Estimate, limit: float = 0.0) -> Verdict:
    """Judge whether the whole 95 % interval of a quantity lies above a limit."""
    sides = {"higher": Verdict.HOLDS, "lower": Verdict.FAILS}
    return sides.get(found.against(limit), Verdict.OPEN)


def is_below(found: Estimate, limit: float = 0.0) -> Verdict:
    """Judge whether the whole 95 % interval of a quantity lies below a limit."""
    return opposite(is_above(found, limit))


def opposite(verdict: Verdict) -> Verdict:
    """Return the verdict on the opposite claim."""
    turned = {Verdict.HOLDS: Verdict.FAILS, Verdict.FAILS: Verdict.HOLDS}
    return turned.get(verdict, verdict)


def in_words(found: Estimate, unit: str) -> str:
    """Return a difference with its interval: `+2.00 ± 0.50 points (3 seeds)`."""
    if not found.seeds:
        return "no seed with both"
    seeds = f"{found.seeds} seed{'' if found.seeds == 1 else 's'}"
    return f"{with_interval(found, signed=True)} {unit} ({seeds})"


def tally(found: Iterable[Finding]) -> str:
    """Return how many findings there are of each verdict or reason: `agrees 2, cannot say 1`."""
    counts = Counter(finding.aside or finding.verdict for finding in found)
    words = dict.fromkeys([*Verdict, *counts])
    return ", ".join(f"{word} {counts[word]}" for word in words if counts[word])
