"""Which training examples look mislabelled, by what training computed anyway."""
