"""The handwritten digits that scikit-learn carries: real data without a download."""

import numpy as np
import torch
from sklearn.datasets import load_digits

from selective_backprop.lab.data.splits import Splits

_FULL_INK = 16  # scikit-learn counts inked pixels in blocks of 4 x 4


def read_digits() -> Splits:
    """Return the 1,797 digits of 8 x 8 pixels, 1,437 to train on and 360 to test on.

    The split is fixed and uses no random numbers: of the examples sorted by class, and by their
    place in the data set within a class, every fifth from the first on is a test example. Each
    class gives a fifth of its examples, to within one. Writers are in both splits. Levels of 0 to
    16 are rescaled to 0 to 255.

    Source:
        Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (its test set), UCI
        Machine Learning Repository, doi:10.24432/C50P49.
    """
    digits = load_digits()
    levels = np.rint(digits.images * (255 / _FULL_INK)).astype(np.uint8)
    images = torch.from_numpy(levels).unsqueeze(1)
    labels = torch.from_numpy(digits.target).to(torch.int64)
    testing = torch.zeros(len(labels), dtype=torch.bool)
    testing[labels.argsort(stable=True)[::5]] = True
    return Splits(
        train_images=images[~testing],
        train_labels=labels[~testing],
        test_images=images[testing],
        test_labels=labels[testing],
        class_names=tuple(str(name) for name in digits.target_names),
    )
