"""The parts of the adapter for Keras; importing any of them checks Keras and its backend."""
