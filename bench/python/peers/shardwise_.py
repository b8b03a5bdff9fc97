"""shardwise: its Loader, and a view of a sample."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import shardwise
from shardwise import columns
from shardwise.transforms import ImageTransform, RandomResizedCrop

from .base import BATCH, SEED, SIDE, WORKERS, Peer, Ranks, Resumable, Source


INDEX = "train.idx"


class Loader(Peer):
    package = "shardwise"
    settings = "shardwise.Loader, 2 threads"
    remote_settings = "an index and tars by http, a shard cache, Loader, 2 threads"
    needs_group = True  # the ranks agree where to resume

    @classmethod
    def version(cls) -> str:
        return shardwise.__version__

    def prepare(self) -> None:
        """Stores the index of labelled tars beside them, as for a data set that is one URL."""
        if self.corpus.label:
            folder = os.path.dirname(self.corpus.tars[0])
            shardwise.index(os.path.join(folder, INDEX), self.corpus.tars, hashes=True)

    def _loader(
        self, *made: Any, batch_size: int = BATCH, data: Any = None, **options: Any
    ) -> shardwise.Loader:
        return shardwise.Loader(
            shardwise.open(self.corpus.tars) if data is None else data,
            columns=list(made),
            order=shardwise.Order(seed=SEED),
            batch_size=batch_size,
            threads=WORKERS,
            **options,
        )

    def _bytes(self, **options: Any) -> shardwise.Loader:
        return self._loader(columns.bytes(self.corpus.field).named("data"), **options)

    def rows(self, batch: Any) -> list[Any]:
        data = batch["data"]
        return list(data) if hasattr(data, "dtype") else batch.bytes("data")

    def tally(self, batch: Any) -> tuple[int, int]:
        return len(batch), batch["data"].values.nbytes

    def epoch(self) -> Callable[[], Iterator[Any]]:
        return self._bytes().__iter__

    def _picture(self, side: int) -> Any:
        crop = RandomResizedCrop(SIDE) if side else None
        how = ImageTransform(random_resized_crop=crop, layout="channels_last")
        return columns.image(self.corpus.field, how).named("data")

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        return self._loader(self._picture(side)).__iter__

    def remote(self, source: Source) -> Callable[[], Iterator[Any]]:
        data = shardwise.open(
            source.http(f"shards/{INDEX}"),
            cache=os.path.join(source.cache, "shards"),
            index_directory=os.path.join(source.cache, "indexes"),
        )
        label = columns.integer(self.corpus.label).named("label")
        return self._loader(self._picture(SIDE), label, data=data).__iter__

    def labels(self, batch: Any) -> list[int]:
        labels: list[int] = batch["label"].tolist()
        return labels

    def item(self) -> Callable[[int], Any]:
        data, field = shardwise.open(self.corpus.tars), self.corpus.field
        return lambda i: data[i].bytes(field)

    def resumable(self) -> Resumable:
        return Resumable(self._bytes)

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        loader = self._bytes(batch_size=batch_size, ranks=shardwise.ranks.torch_ranks())
        return (iter(epoch) for epoch in loader.epochs(2))


class View(Peer):
    package = "shardwise"
    settings = "ds[i][field], a memoryview: not copied"

    version = Loader.version

    def item(self) -> Callable[[int], Any]:
        data, field = shardwise.open(self.corpus.tars), self.corpus.field
        return lambda i: data[i][field]
