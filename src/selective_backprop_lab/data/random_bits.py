"""Random numbers from a counter: the same seed, epoch and example always give the same numbers."""

import torch
from torch import Tensor

from selective_backprop_lab.shapes import Int64

_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_WORD = (1 << 64) - 1


def key_of(*numbers: int) -> int:
    """Combine integers, modulo 2**64, into one key of 64 bits; their order matters."""
    key = 0
    for number in numbers:
        key = _mix(key + _STEP + _mix(number + _STEP))
    return key


def random_bits(
    key: int, indices: Int64[Tensor, " example"], *, draws: int
) -> Int64[Tensor, "draw example"]:
    """Return 32 random bits, as an integer in [0, 2**32), per draw and example.

    All numbers change if `draws` does.

    Source:
        SplitMix64: Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195, used as a hash of a
        counter. Int64 arithmetic wraps, which is arithmetic modulo 2**64.
    """
    offsets = torch.arange(1, draws + 1, device=indices.device).unsqueeze(1)
    counters = indices * draws + offsets
    bits = counters * _signed(_STEP) + _signed(key)
    bits = (bits ^ _shifted(bits, 30)) * _signed(_FIRST)
    bits = (bits ^ _shifted(bits, 27)) * _signed(_SECOND)
    # After the last xor, with bits >> 31, the upper half is kept: its bits are the most random.
    return _shifted(bits ^ _shifted(bits, 31), 32)


def drawn_order(key: int, count: int) -> Int64[Tensor, " example"]:
    """Return the numbers from 0 to `count` - 1 in a random order."""
    return random_bits(key, torch.arange(count), draws=1)[0].argsort(stable=True)


def below(bits: Int64[Tensor, " example"], bound: int) -> Int64[Tensor, " example"]:
    """Turn results of `random_bits` into integers in [0, bound), for a bound below 2**31."""
    return (bits * bound) >> 32


def _mix(word: int) -> int:
    word &= _WORD
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)


def _shifted(words: Int64[Tensor, "draw example"], by: int) -> Int64[Tensor, "draw example"]:
    # torch shifts int64 arithmetically; the mask removes the copies of the sign.
    return (words >> by) & ((1 << (64 - by)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
