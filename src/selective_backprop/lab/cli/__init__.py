"""The command line: one file per command, and the options that commands share.

Read `main.py` first.
"""
