"""mosaicml-streaming: its MDS shards, on this machine's disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import streaming

from .base import BATCH, SEED, Ranks, Resumable, Source, picture
from .streams import Streams


class _Pictures(streaming.StreamingDataset):  # type: ignore[misc]
    side = 0

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        made = picture(sample["data"], self.side)
        return (made, sample["label"]) if "label" in sample else made


def _together(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Collates to a dict: for a list, the loader would take the first item's size as the batch
    size."""
    return {"data": [sample["data"] for sample in samples]}


class Streaming(Streams):
    package = "mosaicml-streaming"
    settings = "MDS of 64 MB, local, StreamingDataLoader, 2 processes, py1e"
    remote_settings = "MDS of 64 MB by s3, StreamingDataLoader, 2 processes, py1e"
    format = "mds"
    needs_group = True
    loader_type = streaming.StreamingDataLoader
    pictures_type = _Pictures
    together = staticmethod(_together)

    def write(self) -> None:
        kinds = {"data": "bytes"} | ({"label": "int"} if self.corpus.label else {})
        with streaming.MDSWriter(out=self.folder, columns=kinds) as out:
            for record in self.corpus.records():
                out.write(record)

    def rows(self, batch: Any) -> list[Any]:
        return list(batch["data"] if isinstance(batch, dict) else batch)

    def tally(self, batch: Any) -> tuple[int, int]:
        return super().tally(batch["data"])

    def _dataset(self, of: Any = None, batch_size: int = BATCH) -> Any:
        return (of or streaming.StreamingDataset)(
            local=self.folder, shuffle=True, shuffle_seed=SEED, batch_size=batch_size
        )

    def _remote(self, source: Source) -> Any:
        os.environ["S3_ENDPOINT_URL"] = source.server
        return self.pictures_type(
            remote=source.s3(self.format),
            local=source.cache,
            shuffle=True,
            shuffle_seed=SEED,
            batch_size=BATCH,
        )

    def item(self) -> Callable[[int], Any]:
        dataset = self._dataset()
        return lambda i: dataset[i]["data"]

    def resumable(self) -> Resumable:
        return _State(self._bytes)

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        loader = self._bytes(batch_size)
        return (iter(loader) for _ in range(2))


class _State(Resumable):
    def close(self) -> None:
        super().close()
        streaming.base.util.clean_stale_shared_memory()
