"""Numbers by counter: SplitMix64 as published, and nothing but seed, epoch and index."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from selective_backprop_lab.data.random_bits import random_bits

WORD = (1 << 64) - 1


def splitmix64(seed: int, count: int) -> list[int]:
    """Return the generator's first outputs, written from the paper with Python's own integers."""
    outputs = []
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & WORD
        word = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
        outputs.append(word ^ (word >> 31))
    return outputs


def test_the_reference_gives_the_published_outputs_for_seed_1234567():
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(key=st.integers(0, WORD), draws=st.integers(1, 5))
def test_bits_are_the_upper_half_of_splitmix64_started_at_the_key(key, draws):
    bits = random_bits(key, torch.arange(6), draws=draws)
    expected = torch.tensor([word >> 32 for word in splitmix64(key, 6 * draws)])
    assert torch.equal(bits.T.reshape(-1), expected)
