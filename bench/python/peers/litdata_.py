"""litdata: its optimized chunks, on this machine's disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import litdata

from .base import BATCH, SEED, WORKERS, Corpus, Peer, Ranks, Resumable, picture


@functools.cache
def _opened(tars: tuple[str, ...]) -> Any:
    import shardwise

    return shardwise.open(list(tars))


def _sample(corpus: Corpus, number: int) -> bytes:
    data: bytes = _opened(tuple(corpus.tars))[number].bytes(corpus.field)
    return data


def _together(samples: list[Any]) -> list[bytes]:
    """Its bytes are memoryviews, which a worker cannot send."""
    return [bytes(sample) for sample in samples]


class _Pictures(litdata.StreamingDataset):  # type: ignore[misc]
    side = 0

    def __getitem__(self, at: Any) -> Any:
        return picture(bytes(super().__getitem__(at)), self.side)


class LitData(Peer):
    package = "litdata"
    settings = "chunks of 64 MB, local, StreamingDataLoader, 2 processes"
    format = "litdata"
    needs_group = True

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

    def _dataset(self, of: Any = litdata.StreamingDataset) -> Any:
        return of(self.folder, shuffle=True, seed=SEED)

    def _loader(self, dataset: Any, batch_size: int = BATCH, **options: Any) -> Any:
        return litdata.StreamingDataLoader(
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
        get: Callable[[int], Any] = self._dataset().__getitem__
        return get

    def resumable(self) -> Resumable:
        return _State(lambda: self._loader(self._dataset(), collate_fn=_together))

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        loader = self._loader(self._dataset(), batch_size, collate_fn=_together, drop_last=False)
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

    def resumed(self, state: Any) -> Iterator[Any]:
        loader = self._make()
        loader.load_state_dict(state)
        return iter(loader)
