"""Meeting needs, one after the other or several at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reproductions.jiang2019.needs import Need, Tell
from selective_backprop.lab.runner.run_store import RunStore as Place
from selective_backprop.lab.runner.worker_pool import run_jobs as carry_out

Watch = Callable[[Need, str | None], None]
"""Told of each step of a need, in words, and of None when it is met."""


@dataclass(frozen=True, eq=False)
class Meeting:
    """The work that meets a need.

    Attributes:
        need: that is not met yet.
        place: where to.
    """

    need: Need
    place: Place

    @property
    def words(self) -> str:
        """Those of the need."""
        return self.need.words

    def carry_out(self, tell: Tell) -> None:
        """Meet it."""
        self.need.meet(self.place, tell)


def meet_all(needs: Sequence[Need], place: Place, *, jobs: int, threads: int, watch: Watch) -> None:
    """Meet needs that are not met yet, as `carry_out` carries out tasks.

    Args:
        needs: in the order in which to begin them.
        place: where to.
        jobs: how many at a time; from 2, each in a process of its own.
        threads: CPU threads of each.
        watch: told of what happens.

    Raises:
        SelectiveBackpropError: what a need raised.
    """
    carry_out(
        [Meeting(need, place) for need in needs],
        jobs=jobs,
        threads=threads,
        watch=lambda task, words: watch(task.need, words),
    )
