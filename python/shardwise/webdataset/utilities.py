"""Small datasets and functions that programs use together with pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from .base import Items, PipelineStage, pytorch_worker_info


class MockDataset(Items):
    """Yields one sample ``length`` times."""

    def __init__(self, sample: Any, length: int) -> None:
        super().__init__()
        self.sample, self.length = sample, length

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.length):
            yield self.sample


class with_length(Items, PipelineStage):
    """The items of a dataset, with the given len()."""

    def __init__(self, dataset: Iterable[Any], length: int) -> None:
        super().__init__()
        self.dataset, self.length = dataset, length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)

    def __len__(self) -> int:
        return self.length


class with_epoch(Items):
    """Passes of ``length`` items over a dataset. Each pass continues where the last one ended."""

    def __init__(self, dataset: Iterable[Any], length: int) -> None:
        super().__init__()
        self.dataset, self.length = dataset, length
        self._items: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        given = 0
        while given < self.length:
            items = iter(self.dataset) if self._items is None else self._items
            self._items = items
            before = given
            for item in islice(items, self.length - given):
                given += 1
                yield item
            if given < self.length:
                self._items = None
                if before == given:
                    return

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_items": None}


def _size(batch: Any) -> int:
    return len(batch[0])


def repeatedly(
    source: Iterable[Any],
    nepochs: int | None = None,
    nbatches: int | None = None,
    nsamples: int | None = None,
    batchsize: Callable[[Any], int] = _size,
) -> Iterator[Any]:
    """Yields the items of a dataset repeatedly, up to the given number of passes, batches or
    samples."""
    passes = batches = samples = 0
    while nepochs is None or passes < nepochs:
        for item in source:
            yield item
            batches += 1
            if nbatches is not None and batches >= nbatches:
                return
            if nsamples is not None:
                samples += batchsize(item)
                if samples >= nsamples:
                    return
        passes += 1


def pytorch_worker_seed(group: Any = None) -> int:
    """Returns a number that differs for each worker of each rank."""
    rank, _, worker, _ = pytorch_worker_info(group)
    return rank * 1000 + worker


__all__ = [
    "MockDataset",
    "pytorch_worker_info",
    "pytorch_worker_seed",
    "repeatedly",
    "with_epoch",
    "with_length",
]
