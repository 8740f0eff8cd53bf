"""Gates of selecting alone: what it costs to draw from scores that are there."""

from collections.abc import Iterator

import reference
import torch
from gate import BATCH, Gate, Images, Training

import selective_backprop as sb


def selection_gates(width: int) -> Iterator[Gate]:
    """The cost of selecting alone: 128 candidates against 1,024 recent losses."""
    losses = torch.rand(4096).split(BATCH)
    listed = [part.tolist() for part in losses]
    for draw in sb.selectors.Draw:
        selector = sb.selectors.Percentile(beta=2, draw=draw, history=1024)
        context = sb.selectors.Context(
            batch_size=43, window=BATCH if draw is sb.selectors.Draw.EXACT else None
        )
        running, history = selector.start(context), sb.selectors.History(1024)
        plain = reference.PlainSelection(beta=2, history=1024, draw=str(draw), keep=43)
        generator = torch.Generator().manual_seed(0)
        for part in losses:  # a full history
            history.file(part)
        for part in listed:
            plain.select(part)

        def ours(
            history: sb.selectors.History = history,
            running: sb.selectors.RunningSelector = running,
            generator: torch.Generator = generator,
        ) -> None:
            for part in losses:
                history.file(part)
                running.select(part, history, generator)

        def theirs(plain: reference.PlainSelection = plain) -> None:
            for part in listed[:4]:
                plain.select(part)

        yield Gate(
            f"selection {draw}",
            "selecting 128 of 1,024 recent losses, against plain Python",
            1 / 30,
            {"selection": ours, "plain Python": theirs},
            lambda spent: (spent["selection"] / 32) / (spent["plain Python"] / 4),
        )
        training = Training(width)
        images = Images(BATCH)
        yield Gate(
            f"selection {draw} in a step",
            "selecting 128 candidates, against a traditional step at batch 128",
            0.003,
            {
                "selection": ours,
                "step": lambda training=training, images=images: training.step(
                    images.images, images.labels
                ),
            },
            lambda spent: spent["selection"] / 32 / spent["step"],
        )
