"""The callback that numbers selection's epochs and adds its results to Keras's logs."""

import math
from typing import Any

from selective_backprop._core.errors import warn
from selective_backprop._core.stats import ScoreStats, Stats
from selective_backprop.integrations._keras._backend import keras
from selective_backprop.integrations._keras._feed import Feed
from selective_backprop.integrations._keras._state import Backup, pack, unpack


class Watch(keras.callbacks.Callback):
    """Number the loader's epochs, and write selection's results into the epochs' logs.

    It must be the first callback, so that others find its numbers in the logs. `earlier` is a state
    to continue from. It is used if `fit` begins with its epoch and no backup has that epoch.

    Attributes:
        epoch: number of the epoch that `fit` runs; between two epochs, number of the next one.
        first: number of the epoch that `fit` began with.
    """

    def __init__(self, feed: Feed, backup: Backup | None, earlier: dict[str, Any] | None) -> None:
        super().__init__()
        self._bar: Any = None
        self.epoch = self.first = 0
        self.feed, self._backup, self._earlier = feed, backup, earlier
        self._begun = False
        self._before = Stats()

    def beside(
        self, model: Any, others: list[Any], verbose: Any, epochs: int, steps: int | None
    ) -> Any:
        """Return all callbacks of a `fit`: this one, the user's, and the ones that Keras adds.

        If `steps` is None, epochs may differ in length, so each gives the bar a new length.
        """
        every = keras.callbacks.CallbackList(
            [self, *others],
            add_history=True,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs,
            steps=steps or foresee(self.feed.loader),
            model=model,
        )
        bars = (one for one in every.callbacks if isinstance(one, keras.callbacks.ProgbarLogger))
        self._bar = next(bars, None)
        return every

    def on_train_begin(self, logs: Any = None) -> None:
        """Tell the feed that training begins."""
        self.feed.start()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Number the epoch. In the first epoch, continue from a saved state if there is one."""
        self.epoch = epoch
        if not self._begun:
            self._begun, self.first = True, epoch
            self._go_on(epoch)
        loader = self.feed.loader
        if not self.feed.endless:
            loader.set_epoch(epoch)
            if self._bar is not None:
                self._bar.set_params({**self.params, "steps": foresee(loader)})
        self._before = loader.stats

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write the epoch's rate, mean score and cost into its logs, and save the state."""
        self.feed.end_step()
        self.epoch = epoch + 1
        loader = self.feed.loader
        if logs is not None:
            logs.update(summarise(loader.stats.since(self._before), loader.scores))
        if self._backup is not None:
            self._backup.save(self.state())

    def state(self) -> dict[str, Any]:
        """Return the state of selection, with the losses of the last training step."""
        self.feed.end_step()
        return pack(self.epoch, self.feed.loader, self.model)

    def progress(self, epochs: int, steps: int | None) -> float:
        """Return the done fraction of training, by steps if `steps` is given, else by epochs."""
        if steps is None:
            return self.epoch / epochs
        return (self.first * steps + self.feed.steps) / (epochs * steps)

    def _go_on(self, epoch: int) -> None:
        kept = None if self._backup is None else self._backup.load(epoch)
        if kept is None and self._earlier is not None and self._earlier["epoch"] == epoch:
            kept = self._earlier
        if kept is not None:
            unpack(kept, self.feed.loader, self.model)
        elif epoch:
            warn(
                f"training continues with epoch {epoch}, but no state of selection was saved for "
                "that epoch, so selection starts again. Add Keras's BackupAndRestore to the "
                "callbacks, or pass a saved state to load_state_dict().",
            )
        self._earlier = None


def foresee(loader: Any) -> int | None:
    """Return the number of batches of the coming epoch, or None if it is unknown."""
    try:
        return len(loader)
    except TypeError:
        return None


def summarise(epoch: Stats, scores: ScoreStats | None) -> dict[str, float]:
    """Return the numbers that selection adds to an epoch's logs."""
    plain = epoch.plain_cost
    return {
        "selection_rate": epoch.rate,
        "selection_score": math.nan if scores is None else scores.mean,
        "selection_cost": epoch.cost / plain if plain else math.nan,
    }
