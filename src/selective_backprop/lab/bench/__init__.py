"""What scoring and selecting cost on this machine, by the guide's timing. Read `harness.py`."""
