"""Hold each room of the house to its budget of lines, as `wc -l` counts them.

python scripts/budget.py

The budgets stand in `[tool.budget]` of pyproject.toml. A part of a room that has a budget of its
own does not count for it.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Print each room's lines and budget; return 1 if a room is over its budget."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budget"]
    found = dict.fromkeys(budgets, 0)
    for path in {file for room in budgets for file in (ROOT / room).rglob("*.py")}:
        rooms = [room for room in budgets if (ROOT / room) in path.parents]
        found[max(rooms, key=len)] += path.read_bytes().count(b"\n")
    over = {room: lines for room, lines in found.items() if lines > budgets[room]}
    for room, lines in found.items():
        print(f"{room:40} {lines:7,} of {budgets[room]:7,} lines{' *' * (room in over)}")
    for room in over:
        print(
            f"{room} is over its budget: take something out, or lower another room's budget by as "
            "much as you raise this one's, in [tool.budget] of pyproject.toml",
            file=sys.stderr,
        )
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
