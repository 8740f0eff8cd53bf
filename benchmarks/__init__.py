"""Measurements of selection: `scripts/bench`. Read `case.py` to add a case."""
