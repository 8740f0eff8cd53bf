"""Measure what scoring and selecting cost on this machine. Read `harness.py` first."""
