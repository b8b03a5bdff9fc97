"""mosaicml-streaming: its MDS shards, on this machine's disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import streaming

from .base import BATCH, SEED, Ranks, Resumable, picture
from .streams import Streams


class _Pictures(streaming.StreamingDataset):  # type: ignore[misc]
    side = 0

    def __getitem__(self, at: Any) -> Any:
        return picture(super().__getitem__(at)["data"], self.side)


def _together(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Collates to a dict: for a list, the loader would take the first item's size as the batch
    size."""
    return {"data": [sample["data"] for sample in samples]}


class Streaming(Streams):
    package = "mosaicml-streaming"
    settings = "MDS of 64 MB, local, StreamingDataLoader, 2 processes, py1e"
    format = "mds"
    needs_group = True
    loader_type = streaming.StreamingDataLoader
    pictures_type = _Pictures
    together = staticmethod(_together)

    def write(self) -> None:
        with streaming.MDSWriter(out=self.folder, columns={"data": "bytes"}) as out:
            for data in self.corpus.samples():
                out.write({"data": data})

    def rows(self, batch: Any) -> list[Any]:
        return list(batch["data"] if isinstance(batch, dict) else batch)

    def tally(self, batch: Any) -> tuple[int, int]:
        return super().tally(batch["data"])

    def _dataset(self, of: Any = None, batch_size: int = BATCH) -> Any:
        return (of or streaming.StreamingDataset)(
            local=self.folder, shuffle=True, shuffle_seed=SEED, batch_size=batch_size
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
