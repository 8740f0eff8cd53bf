"""A grid of runs: what is missing, worker processes, turns, progress and interruption.

Read `grid.py` first.
"""
