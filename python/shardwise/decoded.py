"""Samples as decoded values, one by one: Sample.decode() and Dataset.decoded()."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Union

from . import _core
from .arguments import refuse, whole_number
from .mixing import MixedDataset


def _listed(columns: Any) -> Union[list[_core.Column], None]:
    if columns is None:
        return None
    if isinstance(columns, (_core.Column, str)) or not isinstance(columns, Iterable):
        refuse("columns", columns, "give a list of columns, or None for all fields")
    listed = list(columns)
    for column in listed:
        if not isinstance(column, _core.Column):
            refuse("columns", columns, "make each by a function of shardwise.columns")
    names = [column.name for column in listed]
    if len(set(names)) < len(names):
        refuse("columns", names, "two have the same name; give one another with named()")
    return listed


def source_of(data: Any) -> Any:
    """The dataset of a DecodedDataset; anything else unchanged."""
    return data.data if isinstance(data, DecodedDataset) else data


def decode(sample: _core.Sample, columns: Any, seed: int, epoch: int) -> dict[str, Any]:
    """Implements Sample.decode()."""
    rows = _core.decode_samples(sample.dataset, _listed(columns), [sample], seed, epoch)
    return rows[0]


class DecodedDataset:
    """The samples of a Dataset or mix(), decoded: ``data.decoded(columns)`` makes it.

    An item is a dict with one value for each column, as Sample.decode() gives it. Without columns,
    it has one value for each field of the sample. A DataLoader takes the dataset with any sampler,
    in any kind of worker. Its default collation makes tensors of numbers and of arrays of equal
    shapes, and lists of str.

    seed: seed of the random steps of transforms and functions. These steps also depend on the
        sample and on the epoch of set_epoch(), but not on worker or batch. Workers copy seed and
        epoch when they start: leave out persistent_workers=True if the epoch changes.

    A bad sample raises BadField or NotFound. A Loader makes the same rows faster, and can leave bad
    samples out.
    Pickling: a pickle has a reference to the dataset, and the columns.
    Threads: any thread may use it.

    >>> decoded = ds.decoded([shardwise.columns.integer("cls"), shardwise.columns.text("txt")])
    >>> decoded[42]
    {'cls': 2, 'txt': 'no. 42'}
    """

    def __init__(
        self,
        data: Union[_core.Dataset, MixedDataset],
        columns: Union[Iterable[_core.Column], None] = None,
        *,
        seed: int = 0,
    ) -> None:
        if not isinstance(data, (_core.Dataset, MixedDataset)):
            refuse("data", data, "give a shardwise.Dataset or a mix()")
        self.data = data
        self.columns = _listed(columns)
        self.seed = whole_number("seed", seed)
        self.epoch = 0
        self._decoded([])  # raises errors of the columns here, not in a worker

    def _decoded(self, samples: list[_core.Sample]) -> list[dict[str, Any]]:
        return _core.decode_samples(self.data, self.columns, samples, self.seed, self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch for which random steps draw."""
        self.epoch = whole_number("epoch", epoch)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._decoded([self.data[_core.index_of(number)]])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The items of a batch; called by torch's DataLoader."""
        if isinstance(self.data, MixedDataset):
            return self._decoded([self.data[number] for number in numbers])
        return self._decoded(list(self.data.samples(numbers)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(len(self)):
            yield self[number]

    def __repr__(self) -> str:
        names = "all fields" if self.columns is None else [one.name for one in self.columns]
        return f"<shardwise.DecodedDataset of {self.data!r}: {names}>"
