"""Train one model with every strategy side by side, and say honestly which was cheaper."""
