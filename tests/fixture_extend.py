"""The scorers and selectors that the documentation shows how to write."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "extend.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def documented() -> dict[str, Any]:
    """Every name that the page defines before it uses them in a training."""
    names: dict[str, Any] = {"__name__": "extend"}
    for example in EXAMPLES[:-1]:
        exec(example, names)
    return names


NAMES = documented()
SCORERS = [NAMES["Margin"](), NAMES["EveryOther"](NAMES["Margin"]())]
SELECTORS = [
    NAMES["Gentle"](1 / 4),
    NAMES["Gentle"](1 / 3, floor=0.01),
    NAMES["TakingTurns"](1 / 4),
]
