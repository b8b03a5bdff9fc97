"""mosaicml-streaming: its MDS shards, on this machine's disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import streaming

from .base import BATCH, SEED, WORKERS, Peer, Ranks, Resumable, picture


class _Pictures(streaming.StreamingDataset):  # type: ignore[misc]
    side = 0

    def __getitem__(self, at: Any) -> Any:
        return picture(super().__getitem__(at)["data"], self.side)


def _together(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A dict of lists: of a list, its loader would take the first sample's size for the batch's."""
    return {"data": [sample["data"] for sample in samples]}


class Streaming(Peer):
    package = "mosaicml-streaming"
    settings = "MDS of 64 MB, local, StreamingDataLoader, 2 processes, py1e"
    format = "mds"
    needs_group = True

    def write(self) -> None:
        with streaming.MDSWriter(out=self.folder, columns={"data": "bytes"}) as out:
            for data in self.corpus.samples():
                out.write({"data": data})

    def rows(self, batch: Any) -> list[Any]:
        return list(batch["data"] if isinstance(batch, dict) else batch)

    def tally(self, batch: Any) -> tuple[int, int]:
        return super().tally(batch["data"])

    def _dataset(self, of: Any = streaming.StreamingDataset, batch_size: int = BATCH) -> Any:
        return of(local=self.folder, shuffle=True, shuffle_seed=SEED, batch_size=batch_size)

    def _loader(self, dataset: Any, batch_size: int = BATCH, **options: Any) -> Any:
        return streaming.StreamingDataLoader(
            dataset,
            batch_size=batch_size,
            num_workers=WORKERS,
            persistent_workers=True,
            **options,
        )

    def epoch(self) -> Callable[[], Iterator[Any]]:
        loader = self._loader(self._dataset(), collate_fn=_together)
        return lambda: iter(loader)

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        dataset = self._dataset(_Pictures)
        dataset.side = side
        loader = self._loader(dataset)
        return lambda: iter(loader)

    def item(self) -> Callable[[int], Any]:
        dataset = self._dataset()
        return lambda i: dataset[i]["data"]

    def resumable(self) -> Resumable:
        return _State(lambda: self._loader(self._dataset(), collate_fn=_together))

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        dataset = self._dataset(batch_size=batch_size)
        loader = self._loader(dataset, batch_size, collate_fn=_together)
        return (iter(loader) for _ in range(2))


class _State(Resumable):
    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._loader = make()

    def batches(self) -> Iterator[Any]:
        return iter(self._loader)

    def state(self) -> Any:
        return self._loader.state_dict()

    def close(self) -> None:
        del self._loader
        streaming.base.util.clean_stale_shared_memory()

    def resumed(self, state: Any) -> Iterator[Any]:
        loader = self._make()
        loader.load_state_dict(state)
        return iter(loader)
