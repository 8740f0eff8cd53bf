"""One run: a recipe trained with one strategy and seed, metered, recorded and resumable.

Knows one run only; grids of runs are the runner's. Read `run_config.py` first, then `run.py`.
"""
