"""Figures, and the pages that hold them. Read `report.py` first."""
