"""A language model of bytes: causal attention over a short window, and logits of the next byte."""

import torch
from torch import Tensor, nn

from selective_backprop_lab.nets.vision_transformer import Block, Patches
from selective_backprop_lab.shapes import Float, Int64

Windows = Int64[Tensor, "candidate token"]


class ByteLM(nn.Module):
    """A transformer that predicts each byte of a window from the bytes before it.

    It has learned positions, `depth` blocks with heads of 36 features, and a separate output layer.
    A net of width 144 has 1.1 million parameters.
    """

    def __init__(
        self, channels_in: int, classes: int, image_size: int, *, width: int = 144, depth: int = 4
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _Embedding(classes, channels_in * image_size**2, width),
            *(Block(width, width // 36, causal=True) for _ in range(depth)),
            nn.LayerNorm(width),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, windows: Windows) -> Float[Tensor, "candidate class token"]:
        """Return the logits of the byte after each byte."""
        return self.head(self.body(windows)).transpose(1, 2)


class _Embedding(nn.Module):
    def __init__(self, classes: int, context: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(classes, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.places = nn.Parameter(nn.init.normal_(torch.empty(context, width), std=0.02))

    def forward(self, windows: Windows) -> Patches:
        return self.embed(windows) + self.places
