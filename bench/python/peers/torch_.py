"""torch's DataLoader over files, and torchdata's stateful one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.data

from .base import BATCH, WORKERS, Peer, Ranks, Resumable, picture
from .files import path_of, read_file, write_files


class _Dataset(torch.utils.data.Dataset[Any]):
    """One file per sample. Items are the file's bytes, or a picture."""

    def __init__(self, folder: str, count: int, side: int | None = None) -> None:
        self._folder = folder
        self._count = count
        self._side = side

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        data = read_file(path_of(self._folder, number))
        return data if self._side is None else picture(data, self._side)


def loader_of(dataset: Any, batch_size: int, **options: Any) -> Any:
    return torch.utils.data.DataLoader(
        dataset, batch_size=batch_size, num_workers=WORKERS, **options
    )


def two_epochs(loader: Any, sampler: Any) -> Iterator[Iterator[Any]]:
    for number in range(2):
        sampler.set_epoch(number)
        yield iter(loader)


class Files(Peer):
    package = "torch"
    settings = "one file a sample, DataLoader, 2 processes"
    format = "files"
    needs_group = True
    without = {"resume": "its DataLoader has no state; torchdata's has"}

    def write(self) -> None:
        write_files(self.corpus, self.folder)

    def _dataset(self, side: int | None = None) -> _Dataset:
        return _Dataset(self.folder, self.corpus.num_samples, side)

    def _epochs(self, side: int | None = None, **options: Any) -> Callable[[], Iterator[Any]]:
        loader = loader_of(
            self._dataset(side), BATCH, shuffle=True, persistent_workers=True, **options
        )
        return loader.__iter__

    def epoch(self) -> Callable[[], Iterator[Any]]:
        return self._epochs(collate_fn=list)

    def pictures(self, side: int) -> Callable[[], Iterator[Any]]:
        return self._epochs(side)

    def item(self) -> Callable[[int], Any]:
        return self._dataset().__getitem__

    def deliver(self, ranks: Ranks, batch_size: int) -> Iterator[Iterator[Any]]:
        dataset = self._dataset()
        sampler = torch.utils.data.DistributedSampler(dataset)
        return two_epochs(loader_of(dataset, batch_size, sampler=sampler, collate_fn=list), sampler)


class Stateful(Peer):
    package = "torchdata"
    settings = "StatefulDataLoader over the same files, 2 processes"
    format = "files"

    def write(self) -> None:
        write_files(self.corpus, self.folder)

    def resumable(self) -> Resumable:
        from torchdata.stateful_dataloader import StatefulDataLoader

        dataset = _Dataset(self.folder, self.corpus.num_samples)
        return Resumable(
            lambda: StatefulDataLoader(
                dataset, batch_size=BATCH, shuffle=True, num_workers=WORKERS, collate_fn=list
            )
        )
