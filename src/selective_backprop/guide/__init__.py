"""The guide: what selection would cost and save on a job, and what it skipped."""
