"""DivBS: train on rows of a window whose gradients together stand for those of all its rows."""

from dataclasses import dataclass, replace
from typing import final

from torch import cat, multinomial, nn, ones_like

import selective_backprop as sb


@final
@dataclass(frozen=True)
class LastLayerGradients(sb.scorers.AbstractScorer):
    """Score by the error norm; features are gradients of the last linear layer's weights."""

    needs = replace(sb.scorers.Forward(features=True).needs, outputs=True)

    def start(self, context):
        def both(model, batch):
            last, seen = [each for each in model.modules() if isinstance(each, nn.Linear)][-1], []
            with last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
                logits, targets = context.outputs(model, batch)
            errors = logits.float().softmax(1) - nn.functional.one_hot(targets, logits.shape[1])
            return errors.norm(dim=1), (errors.unsqueeze(2) * seen[0].unsqueeze(1)).flatten(1)

        return sb.scorers.Forward(features=True).start(replace(context, losses=both))


@final
@dataclass(frozen=True)
class Diversified(sb.selectors.AbstractSelector):
    """Draw rows one by one, by how well each stands for what those before it leave of the sum."""

    rate: float
    terms = property(lambda self: sb.selectors.Terms(self.rate, features=True))

    def start(self, context):
        def draw(scores, history, stream, features):
            rows, new = features.nan_to_num(0.0, 0.0, 0.0), ones_like(scores)
            rows = rows / rows.abs().mean().clamp(min=1e-30)  # no product overflows
            left, known = rows.sum(0), rows[:0]  # of the sum, outside the span of the rows drawn
            for _ in range(context.quota(len(scores))):  # by chance alone once nothing is left
                row = multinomial(((rows @ left).abs() + 1e-30) * new, 1, generator=stream)
                unit = nn.functional.normalize(rows[row] - rows[row] @ known.T @ known)
                known, new[row] = cat([known, unit]), 0.0
                left = left - left @ unit.T @ unit
            return sb.selectors.Choice((new == 0.0).nonzero().flatten())

        return sb.selectors.Stateless(draw)


def divbs(ratio: float = 0.1) -> sb.Strategy:
    """Train on a share `ratio` of each window. Each candidate is scored by a forward pass.

    Source:
        Hong et al. 2024, ICML, arXiv:2406.04872, abstract: "can efficiently select diverse and
        representative samples". Gradients, draws and "ratio: 0.1" are those of the authors' code.
    """
    return sb.Strategy("divbs", LastLayerGradients(), Diversified(ratio))
