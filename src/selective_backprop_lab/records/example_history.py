"""The history of each training example of a run, in one file beside the run's record.

The file of the record `<name>.jsonl` is `<name>.examples.npz`: compressed NumPy arrays, which are
`version`, the version of the format, and the fields of `ExampleHistory` that are not None.

An example is seen when the model makes a forward pass on it, to train or to score, with the
augmentation of that moment. A pass of another model counts as scoring, but the example is not seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np

import selective_backprop as sb
from selective_backprop_lab.records.files import replacing
from selective_backprop_lab.records.lines import printable
from selective_backprop_lab.shapes import Int64

_LARGEST = 2**30  # bytes, unpacked: enough for 20 million examples
VERSION = 1
SUFFIX = ".examples.npz"
EXTREMES = 18  # number of most and of least selected examples to show
DOUBTED = 64  # number of examples to show whose labels were doubted most
# The types of arrays. The annotation of a field adds the names of its axes.
Float32s = Annotated[np.ndarray, np.float32]
Int32s = Annotated[np.ndarray, np.int32]
Int64s = Annotated[np.ndarray, np.int64]
UInt8s = Annotated[np.ndarray, np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class ExampleHistory:
    """The history of each example of one run. The annotations are the format of the file."""

    passes: float  # how often an unpruned example came up for training, on average
    class_name: tuple[str, ...]  # in order of the labels
    label: Annotated[Int64s, "example"]  # as trained on
    prediction: Annotated[Int64s, "example"]  # the last predicted class; -1 if never seen
    confidence: Annotated[Float32s, "example"]  # its probability; NaN if never seen
    selected: Annotated[Int32s, "example"]  # how often it was trained on
    scored: Annotated[Int32s, "example"]  # how often it was scored by a forward pass
    loss_last: Annotated[Float32s, "example"]  # the last loss seen; NaN if never seen
    loss_mean: Annotated[Float32s, "example"]  # the mean of all losses seen; NaN if never seen
    looks: Annotated[Int32s, "example"]  # how often it was seen with finite outputs
    # (q - p) / (q + p), where p is the probability of the label and q that of the likeliest other
    # class: the mean over all looks, in which the k-th look has weight k; NaN if never seen.
    doubt: Annotated[Float32s, "example"]
    portrait_index: Annotated[Int64s, "portrait"]  # the examples that are shown
    # At most 32 pixels a side; missing if examples are no images.
    portrait_image: Annotated[UInt8s, "portrait height width channel"] | None = None
    label_clean: Annotated[Int64s, "example"] | None = None  # before labels were flipped, if any

    def __post_init__(self) -> None:
        sizes = {"class": len(self.class_name)}
        for name, array, kind, axes in self._arrays():
            fits = array.dtype == kind and array.ndim == len(axes)
            if not fits or any(
                sizes.setdefault(axis, size) != size
                for axis, size in zip(axes, array.shape, strict=True)
            ):
                wanted = ", ".join(f"{axis} {sizes.get(axis, '')}".strip() for axis in axes)
                raise ValueError(
                    f"{name} is {array.dtype} of shape {array.shape}, expected {kind.__name__} of "
                    f"shape ({wanted})"
                )
        for name, least, most in (
            *((name, 0, sizes["class"] - 1) for name in ("label", "label_clean")),
            ("prediction", -1, sizes["class"] - 1),
            ("portrait_index", 0, len(self) - 1),
        ):
            array = getattr(self, name)
            if array is not None and array.size and not least <= array.min() <= array.max() <= most:
                raise ValueError(
                    f"{name} goes from {array.min()} to {array.max()}, expected {least} to {most}"
                )
        image = self.portrait_image
        if image is not None and (0 in image.shape[1:] or image.shape[3] not in (1, 3)):
            raise ValueError(f"portrait_image is of shape {image.shape}, expected 1 or 3 channels")

    def _arrays(self) -> Iterator[tuple[str, np.ndarray, type, list[str]]]:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                kind: Any = get_args(field.type)[0] if field.default is None else field.type
                _, dtype, axes = get_args(kind)
                yield field.name, value, dtype, axes.split()

    def __len__(self) -> int:
        return len(self.label)


_KNOWN = {"version", *(field.name for field in fields(ExampleHistory))}


def extremes(
    selected: np.ndarray, loss_mean: np.ndarray
) -> dict[str, Int64[np.ndarray, " example"]]:
    """Return all examples in two orders: "most" and "least" selected first, then by loss."""
    return {"most": np.lexsort((-loss_mean, -selected)), "least": np.lexsort((loss_mean, selected))}


def examples_path(record: str | Path) -> Path:
    """Return the path of the file beside a record."""
    return Path(record).with_suffix(SUFFIX)


def write_examples(history: ExampleHistory, record: str | Path) -> Path:
    """Write the history of a run's examples beside its record, whole or not at all."""
    arrays = {name: value for name, value in vars(history).items() if value is not None}
    path = examples_path(record)
    with replacing(path) as file:
        np.savez_compressed(file, version=np.int64(VERSION), **arrays)
    return path


def read_examples(record: str | Path) -> ExampleHistory | None:
    """Return the history of a run's examples; None if there is no file."""
    path = examples_path(record)
    if not path.is_file():
        return None
    try:
        # NumPy does not close a file that it cannot read.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if (size := sum(each.file_size for each in file.zip.infolist())) > _LARGEST:
                raise ValueError(f"it unpacks to {size / 2**20:,.0f} MiB")
            found: dict[str, Any] = {name: file[name] for name in _KNOWN & {*file.files}}
        version = found.pop("version").item()
        if version == VERSION:
            found["passes"] = float(found["passes"].item())
            found["class_name"] = tuple(
                printable(str(name)) for name in found["class_name"].tolist()
            )
            return ExampleHistory(**found)
    except Exception as error:  # damaged bytes may make the reader raise anything
        raise sb.RecordError(f"{path}: damaged, or no file of examples ({error}).") from error
    raise sb.RecordError(
        f"{path}: version {version}, but this code reads version {VERSION}. Read it with the "
        "version of selective-backprop that wrote it."
    )
