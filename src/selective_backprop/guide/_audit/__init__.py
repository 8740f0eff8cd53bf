"""Find training examples that look mislabelled, from what training computed anyway."""
