"""`SelectiveStep`, for training loops that make their own batches."""
