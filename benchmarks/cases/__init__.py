"""What `scripts/bench` measures, a module for each subject. Read `../case.py` to add one."""
