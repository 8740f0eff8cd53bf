"""What the study has on record of each strategy's worth, by the traits of the data."""

from collections.abc import Iterable, Mapping
from typing import Any

from reproductions.auto_study.results import Results
from selective_backprop.guide._worth import fit, place_of


def known_worths(
    results: Iterable[Results], traits: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what `advise` forecasts worths by.

    Args:
        results: of the study's workloads. Nets that were trained before are left out, since that
            is no trait of the data.
        traits: of the workloads' data, by title; a workload that is not there is left out.
    """
    cells = []
    for each in results:
        title = each.workload.title
        if each.workload.pretrained or title not in traits:
            continue
        for length in each.lengths:
            worths = {arm: each.worth(arm, length) for arm in each.arms}
            times = {arm: round(w.times, 3) for arm, w in worths.items() if not w.reason}
            if times:
                place = place_of(traits[title], length).round(4).tolist()
                cells.append({"workload": title, "place": place, "worth": times})
    return fit(cells)
