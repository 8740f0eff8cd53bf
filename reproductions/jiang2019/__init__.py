"""The source papers' figures and tables, redone from records of runs."""
