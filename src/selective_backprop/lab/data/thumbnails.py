"""How a training example is shown: a small image of it."""

import numpy as np
import torch
from jaxtyping import UInt8

from selective_backprop.lab.data.datasets import ImageData

SIDE = 32  # pixels; a larger image is made smaller


def portraits(
    data: ImageData, indices: np.ndarray
) -> UInt8[np.ndarray, "portrait height width channel"]:
    """Return small images of some training examples, grey or of red, green and blue.

    They have at most 32 pixels a side, each the mean of those that it stands for.
    """
    images = data.train_images[torch.as_tensor(indices, device=data.train_images.device)].cpu()
    if images.shape[1] not in (1, 3):
        images = images[:, :1]
    if max(images.shape[2:]) > SIDE:
        smaller = torch.nn.functional.adaptive_avg_pool2d(images.float(), SIDE)
        images = smaller.round().to(torch.uint8)
    return images.permute(0, 2, 3, 1).numpy()
