"""What selecting costs and does, measured: `scripts/bench`. Read `case.py` to add a case."""
