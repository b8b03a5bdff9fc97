"""wids, and its replacement shardwise.wids."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any

from .base import BATCH, Peer, Ranks, picture
from .torch_ import loader_of, two_epochs


def _itself(url: str) -> str:
    return url


class _Chosen:
    """Converts a sample to its bytes, or to a picture. A class, so that workers can unpickle it."""

    def __init__(self, field: str, side: int | None = None) -> None:
        self._field = "." + field
        self._side = side

    def __call__(self, sample: dict[str, Any]) -> Any:
        data = sample[self._field].read()
        return data if self._side is None else picture(data, self._side)


class Wids(Peer):
    package = "wids"
    settings = "DataLoader, 2 processes, no decoding by wids"
    needs_group = True
    without = {"resume": "its samplers have no state"}
    module = "wids"

    def _dataset(self, chosen: _Chosen) -> Any:
        with contextlib.redirect_stderr(io.StringIO()):
            wids = importlib.import_module(self.module)
        shards = [
            {"url": path, "nsamples": length}
            for path, length in zip(self.corpus.tars, self.corpus.lengths)
        ]
        dataset = wids.ShardListDataset(
            shards, lru_size=len(shards), localname=_itself, transformations=[]
        )
        return wids, dataset.add_transform(chosen)

    def _epochs(self, chosen: _Chosen, **options: Any) -> Callable[[], Iterator[Any]]:
        wids, dataset = self._dataset(chosen)
        sampler = wids.ChunkedSampler(dataset, shuffle=True)
        loader = loader_of(dataset, BATCH, sampler=sampler, persistent_workers=True, **options)
        return loader.__iter__

    def epoch(self) -> Callable[[], Iterator[Any]]:
        return self._epochs(_Chosen(self.corpus.field), collate_fn=list)

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        return self._epochs(_Chosen(self.corpus.field, side))

    def item(self) -> Callable[[int], Any]:
        _, dataset = self._dataset(_Chosen(self.corpus.field))
        get: Callable[[int], Any] = dataset.__getitem__
        return get

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        wids, dataset = self._dataset(_Chosen(self.corpus.field))
        sampler = wids.DistributedChunkedSampler(dataset, shuffle=True)
        return two_epochs(loader_of(dataset, batch_size, sampler=sampler, collate_fn=list), sampler)


class Successor(Wids):
    package = "shardwise"
    settings = "shardwise.wids in place of wids"
    module = "shardwise.wids"

    @classmethod
    def version(cls) -> str:
        import shardwise

        return shardwise.__version__
