"""What scoring and selecting cost on this machine, and advice from it. Read `harness.py` first."""
