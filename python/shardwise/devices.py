"""Batches on a device of torch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._core import Batch
from .arguments import suggests
from .errors import NotFound, Unsupported

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

__all__ = ["DeviceBatch", "DeviceCopier", "torch_memory"]


class DeviceBatch:
    """A Batch whose columns are torch tensors on a device, as Batch.to() makes it. It has the
    methods of a Batch, and keeps the batch while it lives.

    >>> loader = shardwise.Loader(ds, columns=[columns.integer("cls"), columns.text("txt")])
    >>> batch = loader.next().to("cpu")
    >>> batch["cls"].shape, batch["txt"].values.dtype, len(batch), len(batch.text("txt"))
    (torch.Size([32]), torch.uint8, 32, 32)
    """

    def __new__(cls, columns: Any) -> Any:
        """Frameworks rebuild a mapping by its type, ``type(batch)({...})``: they get a dict."""
        return dict(columns)

    batch: Batch
    """The batch that was moved."""
    _columns: dict[str, Any]

    @classmethod
    def _made(cls, batch: Batch, columns: dict[str, Any]) -> DeviceBatch:
        made: DeviceBatch = object.__new__(cls)
        made.batch, made._columns = batch, columns
        return made

    def __reduce__(self) -> Any:
        return DeviceBatch._made, (self.batch, self._columns)

    def _each(self, change: Callable[[Any], Any]) -> DeviceBatch:
        changed = {name: change(column) for name, column in self._columns.items()}
        return self._made(self.batch, changed)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.batch)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Any:
        """A column: a tensor [N, ...], or a Ragged of tensors. Raises NotFound."""
        if name not in self._columns:
            raise NotFound(
                f"the batch has no column {name!r}; choose one of {', '.join(self._columns)}"
            )
        return self._columns[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A column; ``default`` if it has none of that name."""
        return self._columns.get(name, default)

    def keys(self) -> list[str]:
        """Names of its columns."""
        return list(self._columns)

    def values(self) -> list[Any]:
        """Its columns."""
        return list(self._columns.values())

    def items(self) -> list[tuple[str, Any]]:
        """Names and columns."""
        return list(self._columns.items())

    _ipython_key_completions_ = keys

    def tensors(self) -> dict[str, Any]:
        """All columns."""
        return dict(self._columns)

    def torch(self, name: str) -> Any:
        """A column. Raises NotFound."""
        return self[name]

    def text(self, name: str) -> list[str]:
        """See Batch."""
        return self.batch.text(name)

    def bytes(self, name: str) -> list[bytes]:
        """See Batch."""
        return self.batch.bytes(name)

    def json(self, name: str) -> list[Any]:
        """See Batch."""
        return self.batch.json(name)

    @property
    def samples(self) -> NDArray[numpy.int64]:
        """See Batch."""
        return self.batch.samples

    @property
    def positions(self) -> NDArray[numpy.int64]:
        """See Batch."""
        return self.batch.positions

    @property
    def group(self) -> str:
        """See Batch."""
        return self.batch.group

    def to(self, device: Any, *, non_blocking: bool = False) -> DeviceBatch:
        """The same batch on another device. With non_blocking=True the batch is kept until its
        copies are done."""
        made = self._each(lambda column: column.to(device, non_blocking=non_blocking))
        if non_blocking and self._columns:
            _keep(self.batch, next(iter(made._columns.values())).device)
        return made

    def pin_memory(self) -> DeviceBatch:
        """The same batch with copies of its columns in page-locked memory."""
        return self._each(lambda column: column.pin_memory())

    def record_stream(self, stream: Any) -> None:
        """Like that of a torch tensor: the memory stays until ``stream`` has used it."""
        for column in self._columns.values():
            column.record_stream(stream)

    def __repr__(self) -> str:
        devices = {str(column.device) for column in self._columns.values()}
        return f"<shardwise.DeviceBatch on {', '.join(sorted(devices))} of {self.batch!r}>"


Mapping.register(DeviceBatch)


class _Copies:
    """Keeps batches that a device may still read, each until its copies are done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: deque[tuple[Any, Batch]] = deque()

    def keep(self, done: Any, batch: Batch) -> None:
        """Keeps a batch until the event ``done`` has occurred. Frees earlier batches whose copies
        are done."""
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


def _keep(batch: Batch, device: Any) -> None:
    """Keeps a batch until the device has finished all copies that were begun before this call."""
    streams = _streams(device)
    if streams is not None:
        done = streams.Event()
        done.record(streams.current_stream(device))
        _copies.setdefault(device, _Copies()).keep(done, batch)


def pinned(batch: Batch) -> DeviceBatch:
    """See Batch.pin_memory()."""
    return DeviceBatch._made(batch, batch.tensors()).pin_memory()


def moved(batch: Batch, device: Any, non_blocking: bool) -> DeviceBatch:
    """See Batch.to()."""
    import torch

    batch_here = DeviceBatch._made(batch, batch.tensors())
    return batch_here.to(torch.device(device), non_blocking=non_blocking)


@suggests
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
                f"a DeviceCopier needs a device with streams: {self.device} has no streams; use "
                "Batch.to() instead"
            )

    def copy(self, batch: Batch) -> DeviceBatch:
        """The batch on the device; see Batch.to()."""
        if self._stream is None:
            return moved(batch, self.device, non_blocking=False)
        streams = self._streams
        computing = streams.current_stream(self.device)
        done = streams.Event()
        with streams.stream(self._stream):
            here = DeviceBatch._made(batch, batch.tensors())
            copied = here._each(lambda column: column.to(self.device, non_blocking=True))
            done.record(self._stream)
        computing.wait_event(done)
        copied.record_stream(computing)  # its memory belongs to the other stream
        self._copies.keep(done, batch)
        return copied

    def wait(self) -> None:
        """Waits for the copies in flight."""
        self._copies.wait()


def torch_memory(pinned: bool = False) -> Callable[[int], Any]:
    """Memory allocated by torch, for Loader(memory=); page-locked for copies to a GPU if
    ``pinned``.

    A copy with non_blocking=True reads the batch after the call returns. Keep the batch, or its
    tensor, until the copy is done (``torch.cuda.current_stream().synchronize()``, or an event): a
    dropped batch gives its memory to the next one.
    """
    import torch

    def allocate(num_bytes: int) -> Any:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=pinned)

    return allocate
