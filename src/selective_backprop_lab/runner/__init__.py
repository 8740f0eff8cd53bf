"""Run a grid of runs, in processes that take turns. Read `grid.py` first."""
