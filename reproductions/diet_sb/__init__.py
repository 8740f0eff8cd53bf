"""The Diet-SB poster, redone from records of runs."""
