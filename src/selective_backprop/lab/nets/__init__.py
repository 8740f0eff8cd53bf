"""Published networks in the forms in which they are trained on small images."""
