"""Score while training goes on, in a second process or on a second CUDA stream."""
