"""The command line: one file per command, and the options that commands share.

Read `main.py` first. A command imports the modules that draw and tabulate only when it is called:
these imports take longer than all the rest, and `--help` does not need them.
"""
