"""Whether selection paid, in one sentence."""

from selective_backprop.lab.analysis.class_errors import is_text
from selective_backprop.lab.analysis.grouping import BASELINE, Comparison
from selective_backprop.lab.analysis.statistics import final_estimate, paired_difference
from selective_backprop.lab.analysis.tables import with_interval

_NO_MORE = 1.03  # times the cost, and still no more of it: the last batches overshoot a budget
_WORDS = {
    "lower": "Selection paid",
    "higher": "Selection lost",
    "unresolved": "Selection gained nothing that can be told from chance",
    "untold": "Too few seeds for a verdict",
}


def upshot(comparison: Comparison) -> str:
    """Hold the lowest end of any strategy against the lowest of traditional training for its cost.

    Traditional training of every length counts that cost no more, so a shortened one does too.

    Returns:
        One sentence; nothing where there are not both, nor of text, which ends at no error.
    """
    if any(map(is_text, comparison.runs)):
        return ""
    groups = [group for group in comparison.groups if group.runs]
    ends = {group.label: final_estimate(group) for group in groups}
    groups.sort(key=lambda group: ends[group.label].mean)
    best = next((group for group in groups if not group.is_baseline), None)
    rivals = (g for g in groups if best and g.is_baseline and g.cost <= _NO_MORE * best.cost)
    rival = next(rivals, None)
    if best is None or rival is None:
        return ""
    apart = paired_difference(best, rival)
    return (
        f"{_WORDS[apart.against()]}: {best.label} ended at {with_interval(ends[best.label])} % "
        f"error, and {BASELINE} training for no more cost at {with_interval(ends[rival.label])} % "
        f"at its best ({rival.label}), a difference of {with_interval(apart, signed=True)} points."
    )
