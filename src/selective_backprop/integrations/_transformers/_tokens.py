"""The Trainer with `TokenLoss` as its loss, which trains on chosen tokens with logits in chunks."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer

from selective_backprop._core.errors import ConfigurationError
from selective_backprop._core.options import check_rate
from selective_backprop._step.token_loss import TokenLoss
from selective_backprop._step.tokens import TokenSelection
from selective_backprop.integrations._transformers._checks import DATA_PARALLEL
from selective_backprop.integrations._transformers._model_losses import IGNORED, Target, find_target
from selective_backprop.integrations._transformers._trainer import SelectiveTrainer


class TokenLossTrainer(Trainer):
    """Train a causal language model on a share of each batch's tokens, with logits in chunks.

    It takes the Trainer's arguments and the options below. To use it with another Trainer, derive
    from both: `class Mine(TokenLossTrainer, SFTTrainer)`. TRL's training metrics (entropy,
    accuracy, number of tokens) are then left out.

    With a rate of 1, the loss equals the Trainer's up to rounding. With a lower rate, it is the
    mean of the kept tokens' losses. A batch's weight in an update is proportional to its number of
    labelled tokens, kept or not. Evaluation uses the Trainer's own loss.

    Args:
        args: positional arguments of the Trainer.
        rate: share of the labelled tokens in each batch to train on, in (0, 1]. The tokens with the
            highest losses are kept.
        entropy: keep the tokens whose predictions have the highest entropy, not the highest loss.
        chunk: number of tokens whose logits are held at once, as for `TokenLoss`.
        options: keyword arguments of the Trainer.

    Raises:
        ConfigurationError: if the model is not a causal language model with a plain head, an option
            is out of its range, the Trainer's loss is not the plain cross-entropy of tokens, or the
            Trainer would use DataParallel. At the first batch: if the head's input is not found, or
            the model changes its logits after its head.
    """

    def __init__(
        self,
        *args: Any,
        rate: float = 1.0,
        entropy: bool = False,
        chunk: int | None = None,
        **options: Any,
    ) -> None:
        rate = check_rate("rate", rate)
        super().__init__(*args, **options)
        self._make_loss = partial(
            TokenLoss,
            selection=TokenSelection(rate, ignored=IGNORED),
            shift=True,
            entropy=entropy,
            chunk=chunk,
        )
        self._look_at_model()

    def _look_at_model(self) -> None:
        model: Any = self.model
        inside = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._check(inside)
        self._seen, self._body = model, inside.base_model
        self._token_loss = self._make_loss(inside.get_output_embeddings())
        self._compared = False

    def _check(self, inside: Any) -> None:
        if find_target(inside) is not Target.NEXT_TOKENS or inside.base_model is inside:
            raise ConfigurationError(
                f"{type(inside).__name__} is not a causal language model with a separate head"
            )
        if self.args.n_gpu > 1:
            raise ConfigurationError(DATA_PARALLEL)
        config = inside.config
        for found, told in (
            (isinstance(self, SelectiveTrainer), "SelectiveTrainer selects whole examples"),
            (self.label_smoother is not None, "label_smoothing_factor is set"),
            (self.compute_loss_func is not None, "compute_loss_func is given"),
            (getattr(self.args, "loss_type", "nll") != "nll", "loss_type is not 'nll'"),
            (
                getattr(self, "aux_loss_enabled", False)
                or getattr(config, "output_router_logits", False),
                "the router has its own loss",
            ),
        ):
            if found:
                raise ConfigurationError(
                    f"{told}, but TokenLossTrainer needs the plain cross-entropy of tokens"
                )

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of the kept tokens; in evaluation, the Trainer's own loss."""
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if self.model is not self._seen:  # model_init= makes a new one for each training
            self._look_at_model()
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        found: list[Any] = []
        hook = self._body.register_forward_hook(lambda *of: found.append(of[-1]))
        try:  # the model's head computes logits for the last token only
            outputs = model(**inputs | {"use_cache": False, "logits_to_keep": 1})
        finally:
            hook.remove()
        if not found:
            raise ConfigurationError(
                "the head's input is not found: the model does not call its "
                f"{type(self._body).__name__}, only parts of it. Compute the loss with TokenLoss "
                "in your own compute_loss."
            )
        hidden = found[0].last_hidden_state
        if not self._compared:
            self._compare(hidden, outputs.logits)
            self._compared = True
        with self.accelerator.autocast():  # the Trainer's own autocast covers only the model
            loss = self._token_loss(hidden, labels).loss
        self.loss_is_scaled_for_ga = num_items_in_batch is not None  # else it is a batch's mean
        if num_items_in_batch is not None:
            counted = (labels[:, 1:] != IGNORED).sum().to(loss.device)
            loss = loss * counted / num_items_in_batch
            if self.args.average_tokens_across_devices:
                # it counts the tokens of all processes, and gradients are averaged over processes
                loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def _compare(self, hidden: Tensor, logits: Tensor) -> None:
        """Refuse a model that changes its logits after its head."""
        with torch.no_grad():
            head = self._token_loss.head
            expected = head(hidden[:, -1].to(head.weight.dtype)).float()
            apart = (logits[:, -1].float() - expected).abs().max()
        if apart > 0.02 * max(1.0, float(expected.abs().max())):
            raise ConfigurationError(
                "the model changes the logits after its head (it caps or scales them), but "
                "TokenLoss computes only the head. Use the Trainer's own loss."
            )
