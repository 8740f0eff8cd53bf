"""What the study has on record of each strategy's worth, by the traits of the data."""

import json
from pathlib import Path
from typing import Any

from reproductions.auto_study.protocol import STAGES
from reproductions.auto_study.results import read_results
from selective_backprop.guide._worth import fit, place_of

TRAITS = "records/bench/workload-traits.json"


def known_worths(root: Path) -> dict[str, Any]:
    """Return what `advise` forecasts worths by, from the records in a folder."""
    traits = json.loads((root / TRAITS).read_text(encoding="utf-8"))["workloads"]
    cells = []
    for name, stage in STAGES.items():
        for results in read_results(stage, root / "records/study" / name):
            if results.workload.pretrained:
                continue  # no trait of the data
            title = results.workload.title
            for length in results.lengths:
                worths = {arm: results.worth(arm, length) for arm in results.arms}
                times = {arm: round(w.times, 3) for arm, w in worths.items() if not w.reason}
                if times:
                    place = place_of(traits[title], length).round(4).tolist()
                    cells.append({"workload": title, "place": place, "worth": times})
    return fit(cells)
