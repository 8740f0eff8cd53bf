"""One run: a recipe trained with one strategy and seed, measured, recorded and resumable.

The runner trains grids of runs. Read `run_config.py` first, then `run.py`.
"""
