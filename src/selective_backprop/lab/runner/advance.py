"""How far each arm of a comparison is, what it saved, and how long the rest will take."""

from collections import Counter, deque
from collections.abc import Sequence
from statistics import fmean, median

from selective_backprop.lab.budget import Length
from selective_backprop.lab.records.schema import Point
from selective_backprop.lab.training.run_config import Plan


class Advance:
    """How far one arm is, over all its runs.

    Args:
        name: of the arm.
        plans: its runs, in any order.

    Attributes:
        name: as given.
        plan: the run that was heard of last; None before the first.
        point: what was heard; None before the first, and of a run that was recorded already.
        evaluations: how many there will be.
        done: how many of them there were.
    """

    def __init__(self, name: str, plans: Sequence[Plan]) -> None:
        self.name = name
        self.plan: Plan | None = None
        self.point: Point | None = None
        self.evaluations = sum(plan.evaluations for plan in plans)
        self.done = 0
        self._plans = list(plans)
        self._evaluated: Counter[Plan] = Counter()
        self._seconds: dict[Plan, float] = {}
        self._spent: list[float] = []

    def hear(self, plan: Plan, point: Point | None, seconds: float) -> None:
        """Take in an evaluation, or None for a run that is recorded already.

        Args:
            plan: of the run.
            point: what is known of it now.
            seconds: that passed since anything was heard of the runs that it takes turns with.
        """
        self.plan, self.point = plan, point
        if point is None:
            self.done += plan.evaluations
            return
        self.done += 1
        self._evaluated[plan] += 1
        trained = point.seconds - self._seconds.get(plan, 0.0)
        self._seconds[plan] = point.seconds
        # What an interrupted run had come to before is told at once, and says nothing of the pace.
        if seconds >= trained:
            self._spent.append(seconds)

    @property
    def whole(self) -> bool:
        """Whether the run that was heard of last is at its end."""
        return self.plan is not None and self._evaluated[self.plan] == self.plan.evaluations

    @property
    def waits(self) -> bool:
        """Whether nothing was heard yet."""
        return self.plan is None

    @property
    def seeds(self) -> str:
        """Which of its seeds the arm is at, such as `2 of 3`."""
        if self.plan is None:
            return ""
        seeds = sorted({plan.seed for plan in self._plans})
        return f"{1 + seeds.index(self.plan.seed)} of {len(seeds)}"

    @property
    def rate(self) -> float | None:
        """The share of the run's candidates that it trained on so far."""
        if self.point is None or not self.point.candidates:
            return None
        return self.point.trained / self.point.candidates

    @property
    def saved(self) -> float | None:
        """The share of its cost that the run saves so far, at most 1; below 0 if it costs more.

        Held against training on every example for as many epochs. A run of a given cost has no
        such number; there it is for as many candidates as came up.
        """
        if self.plan is None or self.point is None:
            return None
        in_epochs = self.plan.length.unit == "epochs"
        full = self.point.progress * self.plan.length.value if in_epochs else self.point.epoch
        return 1.0 - self.point.cost / full if full else None

    @property
    def pace(self) -> float | None:
        """Usual seconds from one evaluation to the next; None if not known yet."""
        return median(self._spent) if self._spent else None

    @property
    def left(self) -> float | None:
        """Seconds that the rest of the arm's runs takes; None if its pace is not known yet."""
        if self.done >= self.evaluations:
            return 0.0
        return None if self.pace is None else self.pace * (self.evaluations - self.done)


class Turns:
    """When the runs that take turns were heard of last: those of one seed and length.

    Args:
        plans: all that will run.
        jobs: how many seeds and lengths at a time.
        now: seconds at which the first begin.
    """

    def __init__(self, plans: Sequence[Plan], jobs: int, now: float) -> None:
        self._jobs = jobs
        self._missing: Counter[tuple[int, Length]] = Counter()
        for plan in plans:
            self._missing[plan.seed, plan.length] += plan.evaluations
        self._heard: dict[tuple[int, Length], float] = {}
        self._free = deque([now] * jobs)

    def hear(self, plan: Plan, point: Point | None, now: float) -> float:
        """Take in an evaluation, or None for a run that is recorded already.

        Returns:
            The seconds since anything was heard of those that the run takes turns with, or since
            they began.
        """
        turn = plan.seed, plan.length
        if point is None:
            self._missing[turn] -= plan.evaluations
            return 0.0
        if turn not in self._heard:  # it began where another one ended first
            self._heard[turn] = self._free.popleft() if self._free else now
        seconds, self._heard[turn] = now - self._heard[turn], now
        self._missing[turn] -= 1
        if not self._missing[turn]:
            self._free.append(now)
        return seconds

    @property
    def beside(self) -> int:
        """How many run at a time, now."""
        return max(1, min(self._jobs, sum(left > 0 for left in self._missing.values())))


def seconds_left(arms: Sequence[Advance]) -> float | None:
    """Return how long all that is missing takes, one arm after the other.

    An arm that was not heard of is taken to be as fast as the others; None if none was.
    """
    paces = [arm.pace for arm in arms if arm.pace is not None]
    missing = [arm for arm in arms if arm.done < arm.evaluations]
    if missing and not paces:
        return None
    return sum(
        (fmean(paces) if arm.pace is None else arm.pace) * (arm.evaluations - arm.done)
        for arm in missing
    )
