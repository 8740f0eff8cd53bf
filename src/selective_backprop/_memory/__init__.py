"""What is remembered from step to step, and how ranks share it. Read `history.py` first."""
