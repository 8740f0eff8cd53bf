"""Types and tools that every other package uses. Read `errors.py` first."""
