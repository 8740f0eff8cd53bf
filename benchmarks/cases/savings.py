"""Gates of what makes selection cheaper: remembered scores."""

from collections.abc import Iterator
from functools import partial

import selective_backprop as sb
from benchmarks.case import Rounds, case
from benchmarks.images import RATE, WINDOW, Net, Shuffled, gate, loader_of


@case("src/selective_backprop/_loader", "src/selective_backprop/scorers")
def cycle(*, epochs: int = 3) -> Iterator[Rounds]:
    """A cycle of Stale-SB, its selection pass included, against as many traditional epochs."""
    ours, bare, images = Net(), Net(), Shuffled(2 * WINDOW)
    loader = ours.selecting(loader_of(images), sb.stale_sb(RATE, epochs=epochs))
    plain = loader_of(images)
    ours.epoch(loader)  # the first keeps everything
    yield gate(
        "cycle",
        f"a mean epoch of Stale-SB over {epochs} epochs at rate 1/3, against a traditional one",
        0.45,
        "stale",
        "traditional",
        stale=partial(ours.epoch, loader, epochs),
        traditional=partial(bare.epoch, plain, epochs),
    )
