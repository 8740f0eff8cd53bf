"""Find out whether `auto` pays in a training, from what the data are made up of."""
