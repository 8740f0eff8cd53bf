"""What became of each training example of a run: one file beside the run's record.

Of the record `<arm>-seed<k>-<key>.jsonl` it is `<arm>-seed<k>-<key>.examples.npz`: NumPy arrays,
compressed, none of them pickled, written when the run ends. `n` counts the training examples, and
the i-th entry of an array of that length is of the data set's i-th example:

    version           int64         of this format
    passes            float64       how often an example came up for training, in the mean over
                                    those that were not pruned
    class_name        text [c]      the classes, in order of the labels
    label             int64 [n]     as trained on
    label_clean       int64 [n]     before labels were flipped on purpose; missing where none were
    prediction        int64 [n]     the class last seen as the likeliest; -1 if never seen
    confidence        float32 [n]   the probability of that prediction; NaN if never seen
    selected          int32 [n]     how often it was trained on
    scored            int32 [n]     how often it was scored by a forward pass
    loss_last         float32 [n]   the loss last seen; NaN if never
    loss_mean         float32 [n]   over all that were seen; NaN if never
    loss_max          float32 [n]   the highest seen; NaN if never
    epoch_last        int32 [n]     the epoch in which it was last seen, from 0; -1 if never
    looks             int32 [n]     how often it was seen with finite outputs
    doubt             float32 [n]   of the probability of the label and of the likeliest other
                                    class, the other's share minus the label's: the mean over all
                                    looks, the k-th of which weighs k; NaN if never seen
    cdf_progress      float32 [t]   the share of the run that was done, at each evaluation
    cdf_known         int64 [t]     how many examples had been seen by then
    cdf_level         float32 [q]   from 0 to 1
    cdf_loss          float32 [t,q] the quantiles of what `loss_last` was then
    life_index        int64 [k]     the examples whose lives follow
    life_epoch        int32 [e]     epochs, from 0
    life_loss         float32 [k,e] the loss last seen in that epoch; NaN if not seen in it
    life_probability  float32 [k,e] the probability that the model gave the label then
    life_selected     int32 [k,e]   how often it was trained on in that epoch
    portrait_index    int64 [p]     the examples that are shown
    portrait_image    uint8 [p,height,width,channel], at most 32 pixels a side; missing where
                                    examples are no images
    portrait_text     text [p]      what they are in words; missing where they are images

An example is seen when the model in training passes it forward, for training (in training mode)
or to score it (in eval mode), with the augmentation of that moment. No pass is made for this file.
A pass of another model, such as a small proxy, counts as scoring and shows nothing. The lives are
those of a few examples that are the same in all runs of a data set, and of those that this run
selected most, selected least, or found hardest.
"""

import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int32, Int64, UInt8

import selective_backprop as sb
from selective_backprop.lab.records.files import forced_to_disk, sync_folder

VERSION = 1
SUFFIX = ".examples.npz"


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleHistory:
    """What became of each example of one run; the fields are the arrays of the file."""

    passes: float
    class_name: tuple[str, ...]
    label: Int64[np.ndarray, " example"]
    prediction: Int64[np.ndarray, " example"]
    confidence: Float32[np.ndarray, " example"]
    selected: Int32[np.ndarray, " example"]
    scored: Int32[np.ndarray, " example"]
    loss_last: Float32[np.ndarray, " example"]
    loss_mean: Float32[np.ndarray, " example"]
    loss_max: Float32[np.ndarray, " example"]
    epoch_last: Int32[np.ndarray, " example"]
    looks: Int32[np.ndarray, " example"]
    doubt: Float32[np.ndarray, " example"]
    cdf_progress: Float32[np.ndarray, " evaluation"]
    cdf_known: Int64[np.ndarray, " evaluation"]
    cdf_level: Float32[np.ndarray, " level"]
    cdf_loss: Float32[np.ndarray, "evaluation level"]
    life_index: Int64[np.ndarray, " life"]
    life_epoch: Int32[np.ndarray, " epoch"]
    life_loss: Float32[np.ndarray, "life epoch"]
    life_probability: Float32[np.ndarray, "life epoch"]
    life_selected: Int32[np.ndarray, "life epoch"]
    portrait_index: Int64[np.ndarray, " portrait"]
    portrait_image: UInt8[np.ndarray, "portrait height width channel"] | None = None
    portrait_text: tuple[str, ...] | None = None
    label_clean: Int64[np.ndarray, " example"] | None = None

    def __len__(self) -> int:
        """Return the number of training examples."""
        return len(self.label)


# What each array is made of, and along which axes; axes of one letter are of one length.
_FORMAT = {
    "label": (np.int64, "n"),
    "label_clean": (np.int64, "n"),
    "prediction": (np.int64, "n"),
    "confidence": (np.float32, "n"),
    "selected": (np.int32, "n"),
    "scored": (np.int32, "n"),
    "loss_last": (np.float32, "n"),
    "loss_mean": (np.float32, "n"),
    "loss_max": (np.float32, "n"),
    "epoch_last": (np.int32, "n"),
    "looks": (np.int32, "n"),
    "doubt": (np.float32, "n"),
    "cdf_progress": (np.float32, "t"),
    "cdf_known": (np.int64, "t"),
    "cdf_level": (np.float32, "q"),
    "cdf_loss": (np.float32, "tq"),
    "life_index": (np.int64, "k"),
    "life_epoch": (np.int32, "e"),
    "life_loss": (np.float32, "ke"),
    "life_probability": (np.float32, "ke"),
    "life_selected": (np.int32, "ke"),
    "portrait_index": (np.int64, "p"),
    "portrait_image": (np.uint8, "phwd"),
}
_TEXTS = {"class_name": "c", "portrait_text": "p"}
_OPTIONAL = frozenset({"label_clean", "portrait_image", "portrait_text"})
_WHAT_DAMAGE_RAISES = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError)


def examples_path(record: str | Path) -> Path:
    """Return the file that lies beside a record."""
    return Path(record).with_suffix(SUFFIX)


def write_examples(history: ExampleHistory, record: str | Path) -> Path:
    """Write what became of a run's examples beside its record, whole or not at all.

    Raises:
        OSError: if it cannot be written.
    """
    path = examples_path(record)
    arrays = {"version": np.int64(VERSION), "passes": np.float64(history.passes)}
    for name in (*_FORMAT, *_TEXTS):
        value = getattr(history, name)
        if value is not None:
            kind = np.str_ if name in _TEXTS else _FORMAT[name][0]
            arrays[name] = np.asarray(value, dtype=kind)
    fresh = path.with_name(path.name + ".new")
    try:
        with forced_to_disk(fresh) as file:
            np.savez_compressed(file, **arrays)  # ty: ignore[invalid-argument-type]
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
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
            found = {name: file[name] for name in file.files}
    except _WHAT_DAMAGE_RAISES as error:
        raise sb.RecordError(f"{path}: damaged, or no file of arrays ({error}).") from error
    version = found.pop("version", None)
    if version is None or version.shape or version != VERSION:
        raise sb.RecordError(
            f"{path}: version {version}, this code reads version {VERSION}. Read it with the "
            "version that wrote it."
        )
    return _checked(found, path)


def _checked(found: dict[str, np.ndarray], path: Path) -> ExampleHistory:
    """Return the arrays, each of its type, and of one length along each axis."""
    values: dict[str, object] = {}
    lengths: dict[str, int] = {}
    for field in fields(ExampleHistory):
        name = field.name
        array = found.get(name)
        if array is None and name in _OPTIONAL:
            continue
        kind, axes = _FORMAT.get(name, (np.str_, _TEXTS.get(name, "")))
        if name == "passes":
            kind = np.float64
        fits = array is not None and np.issubdtype(array.dtype, kind) and array.ndim == len(axes)
        if array is None or not fits:
            shown = "missing" if array is None else f"{array.dtype} of {array.ndim} axes"
            raise sb.RecordError(
                f"{path}: {name} is {shown}, expected {np.dtype(kind).name} of {len(axes)}."
            )
        for axis, length in zip(axes, array.shape, strict=True):
            if lengths.setdefault(axis, length) != length:
                raise sb.RecordError(
                    f"{path}: {name} has length {length} where others have {lengths[axis]}."
                )
        values[name] = array if name in _FORMAT else array.tolist()
        if name in _TEXTS:
            values[name] = tuple(array.tolist())
    _check_indices(found, path)
    return ExampleHistory(**values)  # ty: ignore[invalid-argument-type]


def _check_indices(found: dict[str, np.ndarray], path: Path) -> None:
    limits = dict.fromkeys(("life_index", "portrait_index"), len(found["label"]))
    limits |= dict.fromkeys(("label", "prediction", "label_clean"), len(found["class_name"]))
    for name, limit in limits.items():
        array = found.get(name)
        lowest = -1 if name == "prediction" else 0
        if array is not None and len(array) and not lowest <= array.min() <= array.max() < limit:
            raise sb.RecordError(
                f"{path}: {name} reaches from {array.min()} to {array.max()}; {lowest} to "
                f"{limit - 1} are possible."
            )
