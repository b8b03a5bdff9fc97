"""Grain over ArrayRecord, with threads and with processes."""

from __future__ import annotations

import functools
import glob
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

logging.disable(logging.WARNING)  # suppress Grain's warning that JAX is missing

import grain
from array_record.python import array_record_module

from .base import BATCH, SEED, WORKERS, Peer, Ranks, Resumable, picture


class _Grain(Peer):
    package = "grain"
    format = "array_record"

    def write(self) -> None:
        samples = self.corpus.samples()
        for number in range(0, self.corpus.num_samples, 1000):
            path = os.path.join(self.folder, f"train-{number:09}.array_record")
            writer = array_record_module.ArrayRecordWriter(path, "group_size:1")
            for data in itertools.islice(samples, 1000):
                writer.write(data)
            writer.close()

    def _source(self) -> Any:
        paths = sorted(glob.glob(os.path.join(self.folder, "*.array_record")))
        return grain.sources.ArrayRecordDataSource(paths)

    def _shuffled(self, epoch: int = 0) -> Any:
        return grain.MapDataset.source(self._source()).shuffle(SEED + epoch)

    def _iterated(self, data: Any) -> Any:
        """Iterates over a MapDataset of batches, with workers."""
        raise NotImplementedError

    def _epochs(self, batched: Callable[[Any], Any]) -> Callable[[], Iterator[Any]]:
        number = iter(range(1 << 30))
        return lambda: iter(self._iterated(batched(self._shuffled(next(number)))))

    def epoch(self) -> Callable[[], Iterator[Any]]:
        return self._epochs(lambda data: data.batch(BATCH, batch_fn=list))

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        return self._epochs(
            lambda data: data.map(functools.partial(picture, side=side)).batch(BATCH)
        )

    def resumable(self) -> Resumable:
        return _State(lambda: self._iterated(self._shuffled().batch(BATCH, batch_fn=list)))

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        for number in range(2):
            mine = self._shuffled(number)[ranks.rank :: ranks.world_size]
            yield iter(self._iterated(mine.batch(batch_size, batch_fn=list)))


class Threads(_Grain):
    settings = "ArrayRecord of 1,000 records, MapDataset, 2 threads"

    def _iterated(self, data: Any) -> Any:
        how = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=4 * WORKERS)
        return data.to_iter_dataset(how)

    def item(self) -> Callable[[int], Any]:
        get: Callable[[int], Any] = self._source().__getitem__
        return get


class Processes(_Grain):
    settings = "the same with mp_prefetch(), 2 processes"

    def _iterated(self, data: Any) -> Any:
        threads = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
        workers = grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=2)
        return data.to_iter_dataset(threads).mp_prefetch(workers)


class _State(Resumable):
    """A Resumable for Grain, whose iterators hold the state."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(lambda: iter(make()))

    def state(self) -> Any:
        return self._loader.get_state()

    def resumed(self, state: Any) -> Iterator[Any]:
        iterator = self._make()
        iterator.set_state(state)
        return iter(iterator)
