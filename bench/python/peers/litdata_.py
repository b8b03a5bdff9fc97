"""litdata: its optimized chunks, on this machine's disk."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import litdata
import litdata.streaming.downloader
from litdata.streaming.cache import Dir

from .base import BATCH, SEED, Corpus, Ranks, Source, picture
from .streams import Streams


@functools.cache
def _opened(tars: tuple[str, ...]) -> Any:
    import shardwise

    return shardwise.open(list(tars))


def _sample(corpus: Corpus, number: int) -> Any:
    record = corpus.record(_opened(tuple(corpus.tars))[number])
    return record if corpus.label else record["data"]


def _together(samples: list[Any]) -> list[bytes]:
    """Copies litdata's memoryviews to bytes, since a worker cannot send memoryviews."""
    return [bytes(sample) for sample in samples]


class _Pictures(litdata.StreamingDataset):  # type: ignore[misc]
    side = 0

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        if isinstance(sample, dict):
            return picture(bytes(sample["data"]), self.side), sample["label"]
        return picture(bytes(sample), self.side)


class LitData(Streams):
    package = "litdata"
    settings = "chunks of 64 MB, local, StreamingDataLoader, 2 processes"
    remote_settings = "chunks of 64 MB by s3, StreamingDataLoader, 2 processes"
    format = "litdata"
    needs_group = True
    loader_type = litdata.StreamingDataLoader
    pictures_type = _Pictures
    together = staticmethod(_together)

    def write(self) -> None:
        litdata.optimize(
            functools.partial(_sample, self.corpus),
            inputs=list(range(self.corpus.num_samples)),
            output_dir=self.folder,
            chunk_bytes="64MB",
            num_workers=1,
            keep_data_ordered=True,
            verbose=False,
        )

    def _dataset(self, of: Any = None, batch_size: int = BATCH) -> Any:
        return (of or litdata.StreamingDataset)(self.folder, shuffle=True, seed=SEED)

    def _remote(self, source: Source) -> Any:
        # litdata 0.2.76 gives its client obstore no way to reach an endpoint by http.
        litdata.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
        return self.pictures_type(
            Dir(path=source.cache, url=source.s3(self.format)),
            shuffle=True,
            seed=SEED,
            storage_options={
                "endpoint_url": source.server,
                "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
                "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
            },
        )

    def item(self) -> Callable[[int], Any]:
        get: Callable[[int], Any] = self._dataset().__getitem__
        return get

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        loader = self._bytes(batch_size, drop_last=False)
        return (iter(loader) for _ in range(2))
