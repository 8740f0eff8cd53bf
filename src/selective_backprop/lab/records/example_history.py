"""What became of each training example of a run: one file beside the run's record.

Of the record `<name>.jsonl` it is `<name>.examples.npz`: NumPy arrays,
compressed, none of them pickled, written when the run ends. Its arrays are `version`, the format's,
and the fields of `ExampleHistory`; one whose value is None is missing. The i-th entry of an array
along `example` is of the data set's i-th example.

An example is seen when the model in training passes it forward, for training (in training mode)
or to score it (in eval mode), with the augmentation of that moment. No pass is made for this file.
A pass of another model, such as a small proxy, counts as scoring and shows nothing. The lives are
those of a few examples that are the same in all runs of a data set, and of those that this run
selected most, selected least, or found hardest.
"""

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import selective_backprop as sb
from selective_backprop._core.types import Float32, Int32, Int64, UInt8
from selective_backprop.lab.records.files import replacing

VERSION = 1
SUFFIX = ".examples.npz"
EXTREMES = 18  # examples that are shown as the most selected, and as many as the least
_WHAT_DAMAGE_RAISES = (
    *(OSError, EOFError, ValueError, KeyError, TypeError),
    *(zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleHistory:
    """What became of each example of one run; its annotations are the format of the file."""

    passes: float  # how often an example came up for training, in the mean over those not pruned
    class_name: tuple[str, ...]  # in order of the labels
    label: Int64[np.ndarray, " example"]  # as trained on
    prediction: Int64[np.ndarray, " example"]  # the class last seen as likeliest; -1 if never seen
    confidence: Float32[np.ndarray, " example"]  # its probability; NaN if never seen
    selected: Int32[np.ndarray, " example"]  # how often it was trained on
    scored: Int32[np.ndarray, " example"]  # how often it was scored by a forward pass
    loss_last: Float32[np.ndarray, " example"]  # the loss last seen; NaN if never
    loss_mean: Float32[np.ndarray, " example"]  # over all that were seen; NaN if never
    loss_max: Float32[np.ndarray, " example"]  # the highest seen; NaN if never
    epoch_last: Int32[np.ndarray, " example"]  # in which it was last seen, from 0; -1 if never
    looks: Int32[np.ndarray, " example"]  # how often it was seen with finite outputs
    # Of the probability of the label and of the likeliest other class, the other's share minus the
    # label's: the mean over all looks, the k-th of which weighs k; NaN if never seen.
    doubt: Float32[np.ndarray, " example"]
    cdf_progress: Float32[np.ndarray, " evaluation"]  # share of the run done, at each evaluation
    cdf_known: Int64[np.ndarray, " evaluation"]  # how many examples had been seen by then
    cdf_level: Float32[np.ndarray, " level"]  # from 0 to 1
    cdf_loss: Float32[np.ndarray, "evaluation level"]  # quantiles of what `loss_last` was then
    life_index: Int64[np.ndarray, " life"]  # the examples whose lives follow
    life_epoch: Int32[np.ndarray, " epoch"]  # from 0
    life_loss: Float32[np.ndarray, "life epoch"]  # last seen in that epoch; NaN if not seen in it
    life_probability: Float32[np.ndarray, "life epoch"]  # that the model gave the label then
    life_selected: Int32[np.ndarray, "life epoch"]  # how often it was trained on in that epoch
    portrait_index: Int64[np.ndarray, " portrait"]  # the examples that are shown
    # At most 32 pixels a side; missing where examples are no images.
    portrait_image: UInt8[np.ndarray, "portrait height width channel"] | None = None
    portrait_text: tuple[str, ...] | None = None  # in words; missing where they are images
    label_clean: Int64[np.ndarray, " example"] | None = None  # before labels were flipped, if any

    def __len__(self) -> int:
        """Return the number of training examples."""
        return len(self.label)


_TEXTS = ("class_name", "portrait_text")


def extremes(
    selected: np.ndarray, loss_mean: np.ndarray
) -> dict[str, Int64[np.ndarray, " example"]]:
    """Return all examples in three orders: "most" and "least" selected first, and "hardest".

    Of examples that were selected equally often, the harder one counts as selected more. One that
    was never seen, with a mean loss of NaN, comes last.
    """
    return {
        "most": np.lexsort((-loss_mean, -selected)),
        "least": np.lexsort((loss_mean, selected)),
        "hardest": np.argsort(-loss_mean, kind="stable"),
    }


def examples_path(record: str | Path) -> Path:
    """Return the file that lies beside a record."""
    return Path(record).with_suffix(SUFFIX)


def write_examples(history: ExampleHistory, record: str | Path) -> Path:
    """Write what became of a run's examples beside its record, whole or not at all.

    Raises:
        OSError: if it cannot be written.
    """
    arrays = {name: value for name, value in vars(history).items() if value is not None}
    path = examples_path(record)
    with replacing(path) as file:
        np.savez_compressed(file, version=np.int64(VERSION), **arrays)
    return path


def read_examples(record: str | Path) -> ExampleHistory | None:
    """Return what became of a run's examples; None where nothing was written of them.

    Raises:
        RecordError: if the file is damaged, or of another version.
    """
    path = examples_path(record)
    if not path.exists():
        return None
    try:
        # NumPy does not close what it cannot read.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found: dict[str, Any] = {name: file[name] for name in file.files}
        version = found.pop("version").item()
        if version == VERSION:
            found["passes"] = found["passes"].item()
            for name in found.keys() & _TEXTS:
                found[name] = tuple(found[name].tolist())
            return ExampleHistory(**found)
    except _WHAT_DAMAGE_RAISES as error:
        raise sb.RecordError(f"{path}: damaged, or no file of examples ({error}).") from error
    raise sb.RecordError(
        f"{path}: version {version}, this code reads version {VERSION}. Read it with the version "
        "that wrote it."
    )
