"""litdata and mosaicml-streaming, whose loaders accept only their own data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .base import BATCH, SIDE, WORKERS, Peer, Resumable, Source


class Streams(Peer):
    loader_type: Any
    pictures_type: Any
    """The class of a data set that yields pictures, with labels if samples have them; `side` is set
    on its objects."""
    together: Callable[[list[Any]], Any]

    def _dataset(self, of: Any = None, batch_size: int = BATCH) -> Any:
        raise NotImplementedError

    def _remote(self, source: Source) -> Any:
        """Returns a data set of pictures_type over the bucket."""
        raise NotImplementedError

    def _loader(self, dataset: Any, batch_size: int = BATCH, **options: Any) -> Any:
        return self.loader_type(
            dataset,
            batch_size=batch_size,
            num_workers=WORKERS,
            persistent_workers=True,
            **options,
        )

    def _bytes(self, batch_size: int = BATCH, **options: Any) -> Any:
        dataset = self._dataset(batch_size=batch_size)
        return self._loader(dataset, batch_size, collate_fn=self.together, **options)

    def epoch(self) -> Callable[[], Iterator[Any]]:
        return self._bytes().__iter__

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        dataset = self._dataset(self.pictures_type)
        dataset.side = side
        return self._loader(dataset).__iter__

    def remote(self, source: Source) -> Callable[[], Iterator[Any]]:
        dataset = self._remote(source)
        dataset.side = SIDE
        return self._loader(dataset).__iter__

    def resumable(self) -> Resumable:
        return Resumable(self._bytes)
