"""Parts for reinforcement learning: which answers and rows to train on, and which prompts rest."""
