"""Documents of packed rows: selected one by one, and packed again before each pass of the model.

A collator without padding joins the examples of a batch into one row, and a data set may be packed
into such rows beforehand. Documents do not attend to one another, so documents that are not
selected can be left out of the row.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.data_loader import SeedableRandomSampler
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils import data
from torch.utils.data import DataLoader, DistributedSampler
from transformers import DataCollatorWithFlattening

from selective_backprop import BatchError, ConfigurationError, Selection
from selective_backprop.integrations._kit import drawing, join_rows, kept_random_streams, move_batch
from selective_backprop.integrations._transformers._model_losses import LENGTHS

Lengths: TypeAlias = list[Sequence[int]]  # for each row, the lengths of its documents in tokens
Selected: TypeAlias = tuple[dict[str, Tensor], Selection]  # padded documents
PADDING: Mapping[str, float] = {"input_ids": 0, "labels": -100}
BOUNDS = ("position_ids", "cu_seq_lens_q")
SAMPLERS = (data.RandomSampler, SeedableRandomSampler, data.SequentialSampler, DistributedSampler)


class Documents(data.Dataset[dict[str, Tensor]]):
    """The documents of a data set's rows of `input_ids`, and of `labels` if they differ."""

    def __init__(self, rows: Any, lengths: Lengths | None) -> None:
        self._rows, self._lengths = rows, lengths  # without lengths, each row is one document
        counts = np.array([1] * len(rows) if lengths is None else [len(row) for row in lengths])
        self._row = np.repeat(np.arange(len(rows)), counts)
        self._first = counts.cumsum() - counts  # number of each row's first document

    def __len__(self) -> int:
        return len(self._row)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        number = int(self._row[index])
        row, place = self._rows[number], index - self._first[number]
        tokens = torch.as_tensor(row["input_ids"])
        labels = torch.as_tensor(row.get("labels", tokens))
        lengths = [len(tokens)] if self._lengths is None else list(self._lengths[number])
        if sum(lengths) != len(tokens):
            raise BatchError(
                f"the documents of row {number} have {sum(lengths)} tokens together, but the row "
                f"has {len(tokens)}; seq_lengths or position_ids must cover the whole row"
            )
        columns = {"input_ids": tokens, "labels": labels}
        return {key: column.split(lengths)[place] for key, column in columns.items()}


@dataclass(frozen=True)
class Packing:
    """How documents lie in the rows of a loader, and how chosen documents are packed."""

    documents: Documents
    per_batch: int  # documents in a training batch: as in the loader's batches on average
    # Tokens in a training batch, at most: as in the longest rows. None if rows are documents.
    most: int | None
    collate: Callable[[list[dict[str, Any]]], Mapping[str, Any]]  # joins documents into one row
    accelerator: Accelerator

    def is_full(self, waiting: list[Selected]) -> bool:
        """Return whether the waiting documents fill a batch, in every process."""
        if self.most is None:
            return False
        full = sum(int(batch["length"].sum()) for batch, _ in waiting) >= self.most
        if self.accelerator.num_processes == 1:
            return full
        each = torch.tensor([full], device=self.accelerator.device)
        return bool(self.accelerator.gather(each).all())

    def cut(self, waiting: list[Selected]) -> tuple[Selected, list[Selected]]:
        """Return a batch of the first documents and later ones that fit, and the documents left."""
        if self.most is None:
            return waiting[0], waiting[1:]
        room, fits, rest = self.most, [], []
        lengths = torch.cat([batch["length"] for batch, _ in waiting])
        for place, length in enumerate(lengths.tolist()):
            if length <= room:  # as is the first, since no document is longer than a row
                fits.append(place)
                room -= length
            else:
                rest.append(place)
        batch = join_rows([batch for batch, _ in waiting], PADDING)
        indices, weights = map(torch.cat, zip(*(each for _, each in waiting), strict=True))
        parts = [
            (join_rows([batch], PADDING, [rows]), Selection(indices[rows], weights[rows]))
            for rows in map(torch.tensor, (fits, rest))
            if len(rows)
        ]
        return parts[0], parts[1:]

    def pack(self, batch: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the documents of a padded batch as one row, with their lengths."""
        lengths = batch["length"].tolist()
        columns = [batch["input_ids"].tolist(), batch["labels"].tolist()]
        packed = self.collate(
            [
                {"input_ids": tokens[:length], "labels": labels[:length]}
                for tokens, labels, length in zip(*columns, lengths, strict=True)
            ]
        )
        return {**packed, LENGTHS: batch["length"]}

    def losses(self, inside: Any, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return one loss per document of a padded batch; `inside` computes those of a row."""
        device = self.accelerator.device
        packed = move_batch(self.pack(batch), device)
        with kept_random_streams(device):  # the caller keeps only the CPU's
            return inside(model, packed)

    def loader(self, rows: DataLoader[Any]) -> DataLoader[Any]:
        """Return a loader that draws padded documents as the given loader draws rows."""
        batches: Any = rows.batch_sampler
        documents: Any = self.documents
        sampler: Any = getattr(batches, "sampler", None)
        if type(batches) is not data.BatchSampler or type(sampler) not in SAMPLERS:
            kind = type(batches if sampler is None else sampler).__name__
            raise ConfigurationError(
                f"{kind} draws rows, but selection needs a sampler that can draw documents. Use "
                "train_sampling_strategy='random' or 'sequential'."
            )
        if isinstance(sampler, DistributedSampler):
            place, order = (sampler.num_replicas, sampler.rank), (sampler.shuffle, sampler.seed)
            sampler = DistributedSampler(documents, *place, *order)
        else:
            sampler = copy.copy(sampler)
            sampler.data_source = documents
        batches = data.BatchSampler(sampler, self.per_batch, batches.drop_last)
        more = {"dataset": documents, "batch_size": self.per_batch, "collate_fn": pad_documents}
        return drawing(rows, sampler, batches, **more)


def pad_documents(documents: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return documents as rows of one width, with their lengths, so that they can be cut again."""
    padded = {
        key: pad_sequence([each[key] for each in documents], True, value)
        for key, value in PADDING.items()
    }
    return {**padded, "length": torch.tensor([len(each["input_ids"]) for each in documents])}


def find_packing(
    loader: DataLoader[Any], collator: Any, accelerator: Accelerator
) -> Packing | None:
    """Return how several documents lie in a row of a loader; None if each row is one example.

    `collator` is the Trainer's own, which the loader's may wrap.
    """
    dataset: Any = loader.dataset
    if isinstance(dataset, data.IterableDataset):
        joins = isinstance(collator, DataCollatorWithFlattening)
        if joins or getattr(collator, "padding_free", False):
            raise ConfigurationError(
                "the data set is a stream, and its batches are joined into one row without "
                "padding, so the number of documents is unknown. Use a map-style data set, "
                "or pad: packing=False and padding_free=False in SFTConfig."
            )
        return None
    if loader.collate_fn is None:
        return None
    with kept_random_streams(None):  # two examples show whether the collator joins them
        batch = loader.collate_fn([dataset[0], dataset[0]])
    if not isinstance(batch, Mapping) or not isinstance(batch.get("input_ids"), Tensor):
        return None
    joins = len(batch["input_ids"]) == 1
    if joins and not any(name in batch for name in BOUNDS):
        raise ConfigurationError(
            f"the collator ({type(collator).__name__}) joins examples into one row without "
            "position_ids or cu_seq_lens_q, so examples attend to one another and cannot be told "
            "apart. Return position_ids that start at 0 with each example, or pad the examples."
        )
    lengths = find_lengths(dataset)
    if not joins and lengths is None:
        return None
    documents = Documents(dataset, lengths)
    size = getattr(loader.batch_sampler, "batch_size", 1)
    return Packing(
        documents,
        max(1, round(size * len(documents) / len(dataset))),
        None if lengths is None else size * max(map(sum, lengths)),
        loader.collate_fn if joins else DataCollatorWithFlattening(),
        accelerator,
    )


def find_lengths(dataset: Any) -> Lengths | None:
    """Return the lengths of each row's documents; None if the data set is not packed.

    They come from the rows' `seq_lengths`, or from `position_ids`, which restart at each document.
    """
    row = dataset[0]
    if not isinstance(row, Mapping) or not row.keys() & {"seq_lengths", "position_ids"}:
        return None
    if "seq_lengths" in row:
        return list(_column(dataset, "seq_lengths"))
    lengths: Lengths = []
    for positions in map(np.asarray, _column(dataset, "position_ids")):
        begins = np.flatnonzero(np.diff(positions) != 1) + 1
        lengths.append(np.diff([0, *begins, len(positions)]).tolist())
    return lengths if any(len(row) > 1 for row in lengths) else None


def _column(dataset: Any, name: str) -> Any:
    listed = name in getattr(dataset, "column_names", ())  # only Hugging Face's data sets have it
    return dataset[name] if listed else [dataset[row][name] for row in range(len(dataset))]
