"""shardwise's samplers in torch's DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.data

import shardwise
from shardwise.torch import BatchSampler, DistributedChunkedSampler

from .base import BATCH, SEED, WORKERS, Peer, Ranks


class InDataLoader(Peer):
    package = "shardwise"
    settings = "shardwise.torch's samplers, DataLoader, 2 processes"
    needs_group = True

    @classmethod
    def version(cls) -> str:
        return shardwise.__version__

    def rows(self, batch: Any) -> list[Any]:
        return list(batch[self.corpus.field])

    def tally(self, batch: Any) -> tuple[int, int]:
        return super().tally(batch[self.corpus.field])

    def _epochs(self, batch_size: int) -> Callable[[], Iterator[Any]]:
        data = shardwise.open(self.corpus.tars)
        sampler = DistributedChunkedSampler(data, seed=SEED)
        loader = torch.utils.data.DataLoader(
            data,
            batch_sampler=BatchSampler(sampler, batch_size),
            num_workers=WORKERS,
            persistent_workers=True,
        )
        number = iter(range(1 << 30))

        def epoch() -> Iterator[Any]:
            sampler.set_epoch(next(number))
            return iter(loader)

        return epoch

    def epoch(self) -> Callable[[], Iterator[Any]]:
        return self._epochs(BATCH)

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        epoch = self._epochs(batch_size)
        return (epoch() for _ in range(2))
