"""Whether `auto` pays on a training: what the data are made up of, and what an epoch costs."""
