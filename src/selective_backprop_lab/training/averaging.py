"""Weight averaging: the model to evaluate has the mean of the weights over the end of a run."""

from typing import Any

from torch import nn
from torch.optim.swa_utils import AveragedModel


class Averaging:
    """Average a model's weights over all updates in the last part of a run.

    Buffers, such as the means of BatchNorm, are those of the model in training. `share` is the last
    fraction of the run, over which to average, in (0, 1].

    Source:
        Izmailov et al. 2018, arXiv:1803.05407, without its constant learning rate.
    """

    def __init__(self, model: nn.Module, share: float) -> None:
        self._trained, self._from = model, 1.0 - share
        self._mean = AveragedModel(model)

    @property
    def model(self) -> nn.Module:
        """The model to evaluate: with the mean of the weights, once there is one."""
        return self._mean if self._mean.n_averaged else self._trained

    def went_on(self, progress: float) -> None:
        """Note the run's progress after an update."""
        if progress >= self._from:
            self._mean.update_parameters(self._trained)

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` continues from."""
        return self._mean.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self._mean.load_state_dict(state)
