"""Figures, and the page that holds them. Read `report.py` first."""
