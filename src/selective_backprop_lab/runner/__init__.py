"""Run a grid of runs: find missing ones, start processes, take turns, and show progress.

Read `grid.py` first.
"""
