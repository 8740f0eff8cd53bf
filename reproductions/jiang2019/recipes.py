"""The training of the Selective-Backprop paper: every number of its section 5.1, with source.

Sources, by the names used below:

- *paper*: Jiang et al. 2019, arXiv:1910.00762.
- *cutout*: DeVries and Taylor 2017, arXiv:1708.04552, whose setup the paper says it uses.
- *code*: the authors' published runs, github.com/angelajiang/Cutout (`train.py` and
  `scripts/py/run_experiment_cutout.py`), and their schedules,
  `data/config/sysml20/*/lr_sched_*` of their fork of pytorch-cifar.

Batches of 128 and weight decay 5e-4 are the paper's (section 5.1); momentum 0.9, Nesterov's, is the
code's. The learning rate follows the candidates seen, trained on or not (code: `--forwardlr`), as
it does here, wherever epochs are a run's length. The code goes on for 200 epochs, or 160 on SVHN;
the paper ends training by the clock. Its selectivities are rounded: β = 2 is 33 %.

Where they disagree, and what is used here:

- The paper's second schedule for SVHN falls at epochs 48 and 96 in section 5.1 and at 60 and 120 in
  appendix A.3, where the first schedule falls too. 48 and 96 are four fifths of the first, as for
  the other data sets, and are in the code (`lr_sched_svhn_wideresnet_0.8x`): they are used.
- cutout falls by 5 at epochs 60, 120 and 160 on CIFAR-100 as on CIFAR-10, and on SVHN begins at
  0.01 and falls by 10 at 80 and 120. The paper and the code fall by 10 at 60 and 120 on both and
  begin at 0.1: theirs are used.
- cutout and the code shift and flip CIFAR's images, but not SVHN's. The paper says "data
  augmentation" of all three: SVHN's stay where they are.
- Both normalise by fixed means and deviations (CIFAR-10's for CIFAR-100 too). The lab uses those of
  the training images.
- The setup of other nets (appendix A.3) is Kuang's pytorch-cifar: no cutout, and a momentum that is
  not Nesterov's (`main.py` of the authors' fork, which also says which DenseNet it was). How long
  they were trained is said nowhere; here it is as long as on CIFAR-10 otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from selective_backprop_lab.data.augment import Augmentation, Border
from selective_backprop_lab.recipe import Rates, Recipe


@dataclass(frozen=True)
class Experiment:
    """One data set of the paper, and how it was trained on."""

    recipe: Recipe  # with the first schedule, for the epochs of the authors' code
    accelerated: tuple[float, ...]  # shares of the run at which the accelerated schedule falls
    rate: float  # selectivity of SB and Stale-SB
    kath18_rate: float


def _recipe(
    data: str,
    model: str,
    epochs: int,
    falls: tuple[int, ...],
    decay: float,
    augmentation: Augmentation,
) -> Recipe:
    """Return a recipe whose learning rate is multiplied by `decay` at the epochs `falls`."""
    return Recipe(
        data,
        model,
        epochs=epochs,
        batch_size=128,
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=5e-4,
        rates=Rates.STEPS,
        augmentation=augmentation,
        steps=tuple(fall / epochs for fall in falls),
        decay=decay,
    )


# Images are padded by 4 pixels, cropped, and flipped every other time: cutout and code.
_MOVED = Augmentation(shift=4, flip=True, border=Border.BLACK)
_CIFAR10 = _recipe(
    "cifar10",
    "wide_resnet_28_10",  # cutout and code; the paper says Wide Resnet
    200,
    (60, 120, 160),
    0.2,
    replace(_MOVED, cutout=16),
)
_CIFAR100 = _recipe("cifar100", _CIFAR10.model, 200, (60, 120), 0.1, replace(_MOVED, cutout=8))
# It has 604,388 training examples.
_SVHN = _recipe("svhn-extra", "wide_resnet_16_8", 160, (60, 120), 0.1, Augmentation(cutout=20))
EXPERIMENTS: Mapping[str, Experiment] = {
    "cifar10": Experiment(_CIFAR10, (48 / 200, 96 / 200, 128 / 200), 1 / 3, 1 / 3),
    "cifar100": Experiment(_CIFAR100, (48 / 200, 96 / 200), 0.5, 0.5),
    "svhn": Experiment(_SVHN, (48 / 160, 96 / 160), 0.25, 1 / 3),
}
"""Section 5.1 of the paper, by data set."""

OTHER_NETS: Mapping[str, Recipe] = {
    model: replace(_CIFAR10, model=model, augmentation=_MOVED, nesterov=False, rates=Rates.CONSTANT)
    for model in ("resnet18", "densenet_121", "mobilenet_v2")
}
"""Appendix A.3 of the paper: other nets on CIFAR-10, with a learning rate that stays at 0.1."""
