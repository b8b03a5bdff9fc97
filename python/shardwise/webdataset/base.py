"""Base classes of pipelines, the rank and worker of this process, and counters of passes."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..ranks import present_ranks

try:
    from torch.utils.data import DataLoader, IterableDataset
except ModuleNotFoundError:  # pipelines work without torch, but WebLoader does not
    DataLoader = None  # type: ignore[assignment, misc, unused-ignore]

    class IterableDataset:  # type: ignore[no-redef, unused-ignore]
        """Replaces torch's class if torch is not installed."""


class Items(IterableDataset):  # type: ignore[type-arg, misc, unused-ignore]
    """An iterable for a DataLoader or another stage: torch's IterableDataset."""


class PipelineStage:
    """A step of a pipeline with a method run(source), which returns an iterator."""

    def run(self, *sources: Any) -> Any:
        """Returns an iterator over the results for the items of ``sources``."""
        raise NotImplementedError


def pytorch_worker_info(group: Any = None) -> tuple[int, int, int, int]:
    """Returns (rank, world size, worker, number of workers) of this process.

    Ranks: from torch.distributed, else from the environment of torchrun, mpirun or srun, else 0
    of 1. Workers: WORKER and NUM_WORKERS of the environment, else those of a DataLoader.
    """
    rank, world_size = _ranks_of(group)
    worker, num_workers = 0, 1
    if "WORKER" in os.environ and "NUM_WORKERS" in os.environ:
        worker, num_workers = int(os.environ["WORKER"]), int(os.environ["NUM_WORKERS"])
    elif (info := _info_of_torch()) is not None:
        worker, num_workers = info.id, info.num_workers
    return rank, world_size, worker, num_workers


def _ranks_of(group: Any) -> tuple[int, int]:
    if group is None:
        return present_ranks()
    distributed = sys.modules["torch.distributed"]
    return distributed.get_rank(group=group), distributed.get_world_size(group=group)


def _info_of_torch() -> Any:
    """Returns get_worker_info() of torch: None outside of a DataLoader's workers."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def is_worker() -> bool:
    """True in a worker of a DataLoader."""
    return _info_of_torch() is not None


def base_seed_of_worker() -> int:
    """The seed that a DataLoader drew for this pass and worker; 0 outside of a worker."""
    info = _info_of_torch()
    return 0 if info is None else int(info.seed)


_MAX_WORKERS = 1024


class Passes:
    """Counts the passes through a pipeline, in memory shared with the workers of a DataLoader,
    whether they are forked or spawned, persistent or not. A pass is one iter(), and an epoch of
    the order.

    Each worker counts its own passes. A DataLoader starts each worker once a pass, so all
    workers and all ranks agree on the number.
    """

    _NEXT, _CHOSEN, _WORKERS = 0, 1, 2

    def __init__(self, first: int = 0) -> None:
        self._cells = self._shared([first, -1] + [0] * _MAX_WORKERS)

    @staticmethod
    def _shared(values: list[int]) -> Any:
        if DataLoader is None:
            return values
        import torch

        cells: Any = torch.tensor(values, dtype=torch.int64)
        return cells.share_memory_()

    def set(self, number: int) -> None:
        """Sets the number of the next pass."""
        self._cells[self._NEXT] = number
        for worker in range(self._WORKERS, len(self._cells)):
            self._cells[worker] = 0

    def set_worker(self, worker: int, number: int) -> None:
        """Sets the number of one worker's next pass. Other workers may have begun this pass
        already."""
        self._cells[self._WORKERS + worker % _MAX_WORKERS] = number - int(self._cells[self._NEXT])

    def choose(self, number: int) -> None:
        """Makes all passes have this number until another number is chosen. A WebLoader calls this
        for its workers."""
        self._cells[self._CHOSEN] = number

    def begin(self, worker: int) -> int:
        """Begins a pass in this worker, and returns its number."""
        chosen = int(self._cells[self._CHOSEN])
        if chosen >= 0:
            return chosen
        cell = self._WORKERS + worker % _MAX_WORKERS
        begun = int(self._cells[cell])
        self._cells[cell] = begun + 1
        return int(self._cells[self._NEXT]) + begun

    @property
    def next(self) -> int:
        """The number of the pass that begins next in this process."""
        return int(self._cells[self._NEXT]) + int(self._cells[self._WORKERS])

    @property
    def has_begun(self) -> bool:
        """True if a pass began in any process since set()."""
        if int(self._cells[self._CHOSEN]) >= 0:
            return True
        cells = self._cells[self._WORKERS :]
        return bool(cells.any()) if hasattr(cells, "any") else any(cells)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if hasattr(self._cells, "is_shared") and not self._cells.is_shared():
            self._cells = self._cells.share_memory_()


__all__ = [
    "DataLoader",
    "IterableDataset",
    "Items",
    "Passes",
    "PipelineStage",
    "pytorch_worker_info",
]
