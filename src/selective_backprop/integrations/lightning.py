"""Selection under Lightning: a loader for `train_dataloader()`, and a callback.

    import selective_backprop as sb
    from selective_backprop.integrations.lightning import LightningLoader, SelectionCallback

    class Digits(LightningModule):
        def train_dataloader(self):
            loader = DataLoader(...)
            strategy = sb.selective_backprop(rate=1 / 3)
            return LightningLoader(loader, self, self.loss_fn, strategy)

    Trainer(max_epochs=8, callbacks=[SelectionCallback()]).fit(Digits())

The callback logs what is selected, and keeps the state of selection in checkpoints.
"""

from selective_backprop.integrations._lightning._callback import SelectionCallback
from selective_backprop.integrations._lightning._loader import LightningLoader, selected_loss

__all__ = ["LightningLoader", "SelectionCallback", "selected_loss"]
