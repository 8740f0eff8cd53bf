"""Transformers of pre-norm blocks: one for small images, and a language model of bytes."""

import torch
from torch import Tensor, nn
from torch.nn import functional

import selective_backprop as sb
from selective_backprop_lab.nets.published import Images
from selective_backprop_lab.shapes import Float, Int64

Patches = Float[Tensor, "candidate patch feature"]
Windows = Int64[Tensor, "candidate token"]


def vision_transformer(
    channels_in: int,
    classes: int,
    image_size: int = 32,
    *,
    width: int = 384,
    depth: int = 12,
    heads: int = 6,
    patch: int = 4,
) -> nn.Module:
    """Make a net that attends to the patches of an image, without BatchNorm and dropout.

    It has `depth` blocks of attention and a perceptron. Each patch has `patch` x `patch` pixels,
    where `patch` must divide the image's side, and `width` features, a multiple of `heads`.

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929; the mean over patches in place of a class token
        as in Beyer et al. 2022, arXiv:2205.01580, but with learned positions.
    """
    if image_size % patch or not image_size:
        raise sb.ConfigurationError(
            f"images of {image_size} pixels a side cannot be cut into patches of {patch} pixels; "
            f"use images whose side is a multiple of {patch}, or another model"
        )
    return nn.Sequential(
        _Patches(channels_in, width, patch, (image_size // patch) ** 2),
        *(Block(width, heads) for _ in range(depth)),
        nn.LayerNorm(width),
        _Mean(),
        nn.Linear(width, classes),
    )


class _Patches(nn.Module):
    def __init__(self, channels_in: int, width: int, patch: int, count: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels_in, width, patch, stride=patch)
        self.places = nn.Parameter(nn.init.trunc_normal_(torch.empty(count, width), std=0.02))

    def forward(self, images: Images) -> Patches:
        return self.embed(images).flatten(2).transpose(1, 2) + self.places


class Block(nn.Module):
    """Attention and a perceptron; with `causal`, positions attend only to earlier ones."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before_attention = nn.LayerNorm(width)
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, patches: Patches) -> Patches:
        """Return the features of all positions after the block."""
        patches = patches + self._attended(self.before_attention(patches))
        return patches + self.perceptron(patches)

    def _attended(self, patches: Patches) -> Patches:
        parts = self.inward(patches).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*parts.unbind(), is_causal=self.causal)
        return self.outward(found.transpose(1, 2).flatten(2))


class _Mean(nn.Module):
    def forward(self, patches: Patches) -> Float[Tensor, "candidate feature"]:
        return patches.mean(dim=1)


class ByteLM(nn.Module):
    """A transformer that predicts each byte of a window from the bytes before it.

    It has learned positions, `depth` blocks with heads of 36 features, and a separate output layer.
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
