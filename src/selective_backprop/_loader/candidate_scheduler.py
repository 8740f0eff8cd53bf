"""Step a learning-rate scheduler by candidates, so that selection does not stretch its schedule."""

from typing import Any

from selective_backprop._core.errors import ConfigurationError, warn
from selective_backprop._core.options import check_whole

ENDS = "total_steps", "T_max"  # torch's names for the number of steps of a schedule


def end_of(scheduler: Any) -> int | None:
    """Return the number of steps that a scheduler is made for; None if it has none."""
    found = (getattr(scheduler, end, None) for end in ENDS)
    return next((end for end in found if isinstance(end, int)), None)


class CandidateScheduler:
    """Step a learning-rate schedule as often as you would without selection.

    A `SelectiveLoader` yields fewer batches than your data loader. With this wrapper, a schedule
    takes one step for each batch of your data loader, even if its examples are skipped. Call
    `scheduler.step()` after each training step, as you would without the wrapper.

    Other attributes, such as `state_dict`, are those of your scheduler. If all examples of
    training's last batches are skipped, the schedule's last steps are not taken. With several
    processes, make the schedule for the steps of the shortest data loader: all take its steps.

    Args:
        scheduler: a scheduler of torch, or another object with `step()` and `last_epoch`. Make it
            for the number of batches that your data loader has in all epochs:
            `OneCycleLR(optimizer, 0.1, total_steps=epochs * len(train_loader))`.
        loader: your `SelectiveLoader` or `AcceleratedLoader`, around a data loader with a length.
        accumulation: number of batches whose gradients you accumulate for one step, at least 1.

    Raises:
        ConfigurationError: if the scheduler does not count steps (such as `ReduceLROnPlateau`), the
            data loader has no length, or the schedule's steps do not fit the loader's `epochs=`.
    """

    def __init__(self, scheduler: Any, loader: Any, *, accumulation: int = 1) -> None:
        self._accumulation = int(check_whole("accumulation", accumulation))
        name = type(scheduler).__name__
        counts = isinstance(getattr(scheduler, "last_epoch", None), int)
        if name == "ReduceLROnPlateau" or not counts:
            raise ConfigurationError(
                f"{name} does not count steps in last_epoch, as torch's schedulers do. Step it "
                "without CandidateScheduler"
            )
        if not hasattr(loader, "candidate_batches"):
            raise ConfigurationError(
                f"loader is a {type(loader).__name__}: pass the SelectiveLoader that wraps it"
            )
        if loader.candidate_batches is None:
            raise ConfigurationError(
                "the wrapped loader has no length. Give its data set a __len__, or step the "
                "schedule once an epoch"
            )
        self.scheduler, self._loader, self._warned = scheduler, loader, False
        self._end = end_of(scheduler)
        inner: Any = getattr(loader, "_loader", loader)  # of an AcceleratedLoader
        handshake, batches = inner._epochs.handshake, inner.planned_batches
        if handshake is not None:
            handshake.built["steps of the schedule"] = self._end  # with others, ranks would differ
            if not inner._source.is_shared_by(handshake.group.size):
                batches = None  # another rank's data loader may be shorter
        if self._end is not None and batches is not None:
            planned = batches // self._accumulation
            # With accumulation, loops may take a step of fewer batches at each epoch's end.
            most = planned if self._accumulation == 1 else 2 * planned - 1
            if not planned <= self._end <= most:
                raise ConfigurationError(
                    f"{name} is made for {self._end} steps, but without selection the loader's "
                    f"epochs= make {planned} steps: correct one of them, or accumulation="
                )

    def step(self) -> None:
        """Take one step for every `accumulation` batches of your data loader since the last call.

        After the schedule's last step, you are warned once.
        """
        come = self._loader.candidate_batches
        assert come is not None  # checked when this was made
        due = come // self._accumulation
        if self._end is not None and due > self._end:
            due = self._end
            if not self._warned:
                self._warned = True
                warn(
                    f"{type(self.scheduler).__name__} is made for {due} steps, but the data "
                    "loader has had more batches. The learning rate stays as it is"
                )
        while self.scheduler.last_epoch < due:
            self.scheduler.step()

    def __getattr__(self, name: str) -> Any:
        if "scheduler" not in self.__dict__:  # while it is copied
            raise AttributeError(name)
        return getattr(self.scheduler, name)
