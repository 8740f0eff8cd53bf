"""The command line. Commands import slow modules only when called. Read `main.py` first."""
