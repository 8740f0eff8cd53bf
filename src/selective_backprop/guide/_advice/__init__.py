"""Find out whether `auto` pays in a training: look at the data, and time epochs."""
