"""A scale so small that every figure can be drawn from real runs in a moment."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from selective_backprop.lab.augment import Augmentation
from selective_backprop.lab.papers.command import Order
from selective_backprop.lab.papers.settings import Scale, Setting
from selective_backprop.lab.recipes import Rates, Recipe


def fixture_setting(
    title: str = "CIFAR-10",
    *,
    data: str = "digits",
    model: str = "fixture_lab:small_net",
    epochs: int = 2,
    limit: int = 192,
    evaluations: int = 2,
    learning_rate: float = 0.1,
) -> Setting:
    recipe = Recipe(
        data,
        model,
        epochs=epochs,
        batch_size=32,
        learning_rate=learning_rate,
        rates=Rates.STEPS,
        augmentation=Augmentation(shift=1),
    )
    return Setting(
        title=title,
        recipe=recipe,
        accelerated=replace(recipe, steps=(0.24, 0.48, 0.64)),
        rate=1 / 3,
        kath18_rate=1 / 2,
        paper_data=title,
        limit=limit,
        evaluations=evaluations,
    )


def fixture_scale(*settings: Setting) -> Scale:
    """All figures on the same few settings; one on digits where none is given."""
    main = settings or (fixture_setting(),)
    return Scale(
        name="tiny",
        main=main,
        redundant=main[-1],
        noisy=main[0],
        swept=main[:1],
        sweep=(1 / 3, 1 / 2),
        nets=main[:1],
        poster=main[:1],
        timed=(main[0].recipe,),
        pruned=main[0],
        scored=(young("tiny_cnn"), young("fixture_lab:small_net")),
    )


def young(model: str) -> Setting:
    """A setting of one evaluation, on the examples that the others have."""
    return fixture_setting(f"digits, young {model}", model=model, evaluations=1)


def fixture_order(out: Path, scale: Scale | None = None, **changes: object) -> Order:
    fields: dict[str, object] = {
        "scale": scale or fixture_scale(),
        "seeds": 2,
        "device": "cpu",
        "threads": 1,
        "jobs": 1,
        "root": None,
        "out": out,
        "command": "selective-backprop reproduce",
    }
    return Order(**fields | changes)


class Screen(Console):
    """A console whose words can be read."""

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), width=160, markup=False, emoji=False)

    @property
    def text(self) -> str:
        assert isinstance(self.file, io.StringIO)
        return self.file.getvalue()
