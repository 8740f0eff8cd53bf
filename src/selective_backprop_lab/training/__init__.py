"""One run, measured, recorded and resumable. Read `run_config.py` first, then `run.py`."""
