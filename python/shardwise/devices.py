"""Batches on a device of torch."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from ._core import Batch
from .errors import Unsupported

__all__ = ["DeviceCopier"]


class _Copies:
    """Batches that a device may still read: each stays until its copies are done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: deque[tuple[Any, Batch]] = deque()

    def keep(self, done: Any, batch: Batch) -> None:
        """Keeps a batch until the event ``done`` has come. Lets go of earlier ones."""
        with self._lock:
            while self._in_flight and self._in_flight[0][0].query():
                self._in_flight.popleft()
            self._in_flight.append((done, batch))

    def wait(self) -> None:
        """Waits for all copies."""
        with self._lock:
            while self._in_flight:
                self._in_flight[0][0].synchronize()
                self._in_flight.popleft()


def _streams(device: Any) -> Any:
    """The module of torch with the streams of a device, e.g. torch.cuda; None if it has none."""
    import torch

    module = None if device.type == "cpu" else getattr(torch, device.type, None)
    return module if hasattr(module, "Event") and hasattr(module, "current_stream") else None


_copies: dict[Any, _Copies] = {}  # by device


def moved(batch: Batch, device: Any, non_blocking: bool) -> dict[str, Any]:
    """The columns of a batch as tensors on a device; see Batch.to()."""
    import torch

    device = torch.device(device)
    tensors = {
        name: tensor.to(device, non_blocking=non_blocking)
        for name, tensor in batch.tensors().items()
    }
    streams = _streams(device) if non_blocking else None
    if streams is not None:
        done = streams.Event()
        done.record(streams.current_stream(device))
        _copies.setdefault(device, _Copies()).keep(done, batch)
    return tensors


class DeviceCopier:
    """Copies batches to a device on a stream of its own, while the device computes.

    >>> loader = shardwise.Loader(ds, columns=[columns.image("jpg")], batch_size=64)
    >>> copier = shardwise.DeviceCopier("cpu")  # or "cuda"
    >>> for batch in loader:
    ...     images = copier.copy(batch)["jpg"]  # returns at once
    >>> images.shape
    torch.Size([16, 3, 12, 16])

    The copy of a batch overlaps with the computation of the step before. Later computations on the
    current stream wait for it. The batch is kept until its copy has ended. Give the loader
    ``memory=torch_memory(pinned=True)``: copies from other memory do not overlap.

    device: as torch takes it. On the CPU nothing is copied: tensors share the batch's memory.
    Threads: one.

    Raises Unsupported for a device without streams.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self.device = torch.device(device)
        self._streams = _streams(self.device)
        self._stream = None if self._streams is None else self._streams.Stream(self.device)
        self._copies = _Copies()
        if self._stream is None and self.device.type not in ("cpu", "meta"):
            raise Unsupported(
                f"batches cannot be copied on a stream: the device {self.device} has none; use "
                "Batch.to()"
            )

    def copy(self, batch: Batch) -> dict[str, Any]:
        """The columns of a batch as tensors on the device; see Batch.to()."""
        if self._stream is None:
            return moved(batch, self.device, non_blocking=False)
        streams = self._streams
        computing = streams.current_stream(self.device)
        done = streams.Event()
        with streams.stream(self._stream):
            copied = {
                name: tensor.to(self.device, non_blocking=True)
                for name, tensor in batch.tensors().items()
            }
            done.record(self._stream)
        computing.wait_event(done)
        for tensor in copied.values():
            tensor.record_stream(computing)  # its memory belongs to the other stream
        self._copies.keep(done, batch)
        return copied

    def wait(self) -> None:
        """Waits for the copies in flight."""
        self._copies.wait()
