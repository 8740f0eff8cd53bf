"""The command line: one file per command, and the options that commands share.

Read `main.py` first. A command imports what draws and tabulates when it is called: that takes
longer than all the rest, and `--help` does without.
"""
