"""webdataset: 2 worker processes read tars from beginning to end."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import webdataset as wds
from torch.utils.data import default_collate

from .base import BATCH, SEED, SIDE, WORKERS, Peer, Ranks, Source, picture


def _first(sample: tuple[Any, ...]) -> Any:
    return sample[0]


class WebDataset(Peer):
    package = "webdataset"
    settings = "WebLoader, 2 processes, shards and 1,000 samples shuffled, split_by_node"
    remote_settings = "tars by http, cache_dir, WebLoader, 2 processes, shards and samples shuffled"
    needs_group = True
    without = {
        "item": "reads shards from their beginning",
        "resume": "an epoch begins at its beginning",
    }

    def _shuffled(self, tars: list[str], **options: Any) -> Any:
        how = {"shardshuffle": 100, "nodesplitter": wds.split_by_node, "seed": SEED} | options
        return wds.WebDataset(tars, **how).shuffle(1000)

    def _samples(self) -> Any:
        return self._shuffled(self.corpus.tars).to_tuple(self.corpus.field).map(_first)

    def _loader(self, samples: Any) -> Any:
        return wds.WebLoader(samples, batch_size=None, num_workers=WORKERS, persistent_workers=True)

    def epoch(self) -> Callable[[], Iterator[Any]]:
        loader = self._loader(self._samples().batched(BATCH, collation_fn=list))
        return lambda: iter(loader)

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        samples = self._samples().map(functools.partial(picture, side=side))
        loader = self._loader(samples.batched(BATCH, collation_fn=default_collate))
        return lambda: iter(loader)

    def remote(self, source: Source) -> Callable[[], Iterator[Any]]:
        urls = [source.http(f"shards/{os.path.basename(tar)}") for tar in self.corpus.tars]
        data = self._shuffled(urls, cache_dir=source.cache)
        samples = data.to_tuple(self.corpus.field, self.corpus.label)
        samples = samples.map_tuple(functools.partial(picture, side=SIDE), int)
        loader = self._loader(samples.batched(BATCH, collation_fn=default_collate))
        return lambda: iter(loader)

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        loader = self._loader(self._samples().batched(batch_size, collation_fn=list))
        return (iter(loader) for _ in range(2))


class Resampled(Peer):
    package = "webdataset"
    settings = "the same with resampled=True and with_epoch(), for runs on several ranks"
    needs_group = True

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        data = wds.WebDataset(
            self.corpus.tars, resampled=True, shardshuffle=False, nodesplitter=wds.split_by_node
        )
        samples = data.shuffle(1000).to_tuple(self.corpus.field).map(_first)
        loader = wds.WebLoader(
            samples.batched(batch_size, collation_fn=list), batch_size=None, num_workers=WORKERS
        )
        steps = math.ceil(self.corpus.num_samples / ranks.world_size / batch_size)
        return (iter(loader.with_epoch(steps)) for _ in range(2))
