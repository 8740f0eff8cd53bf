"""Which rows are kept, with which weights, and when. Read `draws.py` first."""
