"""Shared buffers in which a loader's workers send large arrays to the main process.

torch makes a new shared memory file for each tensor, whose pages the system must clear and map.
Here each worker keeps a few buffers, its slots, and reuses them:

    worker, as it pickles an item            main process, as it unpickles the item
    acquire the semaphore of a free slot
    copy the arrays into the slot's buffer
    send the rest of the item, and places    copy the arrays into private memory
                                             release the semaphore

The program gets private copies, so it may keep them; views of one array become arrays of their own.
The semaphores order the accesses: a slot is written again only after its arrays were copied. A
buffer itself is sent with the first item that uses it. If no slot is free, or shared memory is
scarce, torch sends the item. The buffers end with their iterator, so a killed worker leaves no slot
occupied for the next one.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, Self

import numpy
import torch
from torch.utils.data import get_worker_info

MIN_BYTES = 1 << 20
"""torch sends smaller arrays."""
_ALIGNMENT = 64
_MAX_DEPTH, _MAX_WIDTH = 4, 1024  # of nested items that are searched for arrays
_SHARED_MEMORY = "/dev/shm"
_SPARE = 4  # the required free shared memory, as a multiple of all buffers of a worker

_tokens = itertools.count()
_receivers: weakref.WeakValueDictionary[int, SharedBuffers] = weakref.WeakValueDictionary()


class _Layout(NamedTuple):
    """An array in a buffer."""

    begin: int
    num_bytes: int
    shape: tuple[int, ...]
    dtype: Any
    is_tensor: bool


class SharedBuffers:
    """The slots of the workers of one iterator. The main process and each worker have a copy.

    num_slots: of each worker. Raises OSError if the system has no semaphores.
    """

    def __init__(self, context: Any, num_workers: int, num_slots: int) -> None:
        self._token = next(_tokens)
        self._free = [[context.Semaphore(1) for _ in range(num_slots)] for _ in range(num_workers)]
        self._buffers: dict[tuple[int, int], Any] = {}  # of this process, by worker and slot
        _receivers[self._token] = self

    @classmethod
    def of(cls, loader: Any) -> Self | None:
        """Returns buffers for the next iterator of a DataLoader, or None."""
        if loader.num_workers == 0:
            return None
        context = loader.multiprocessing_context or torch.multiprocessing
        try:
            return cls(context, loader.num_workers, loader.prefetch_factor + 1)
        except (ImportError, OSError):
            return None

    def packed(self, item: Any) -> Any:
        """Returns the item, which sends its large arrays in a buffer when it is pickled."""
        arrays: dict[int, Any] = {}
        _add_large(item, arrays, _MAX_DEPTH)
        return _Packed(self, item, arrays) if arrays else item

    def send(self, item: Any, arrays: dict[int, Any]) -> tuple[Any, ...] | None:
        """Copies arrays into a buffer. Returns how to unpickle the item; None means that torch
        pickles it as usual."""
        info = get_worker_info()
        if info is None:
            return None
        free = self._free[info.id]
        slot = next((i for i, one in enumerate(free) if one.acquire(block=False)), None)
        if slot is None:
            return None
        stream = io.BytesIO()
        try:
            if self._write(stream, item, arrays, (info.id, slot), len(free)):
                return _received, (self._token, info.id, slot, stream.getvalue())
        except BaseException:
            self._buffers.pop((info.id, slot), None)  # the main process may not have this buffer
            free[slot].release()
            raise
        free[slot].release()
        return None

    def _write(
        self, stream: Any, item: Any, arrays: dict[int, Any], place: tuple[int, int], num_slots: int
    ) -> bool:
        """Fills a slot's buffer, and pickles the buffer if it is new, then the item. Returns False
        if there is no memory for a buffer."""
        layouts, size = _laid_out(arrays)
        old = self._buffers.get(place)
        buffer = old if old is not None and len(old) >= size else _new_buffer(size, num_slots)
        if buffer is None:
            return False
        self._buffers[place] = buffer
        memory = buffer.numpy()
        for name, layout in layouts.items():
            memory[layout.begin :][: layout.num_bytes] = _bytes_of(arrays[name])
        ForkingPickler(stream).dump(None if buffer is old else buffer)
        _Pickler(stream, layouts).dump(item)
        return True

    def receive(self, worker: int, slot: int, data: bytes) -> Any:
        """Returns a sent item, and frees its slot."""
        stream = io.BytesIO(data)
        try:
            buffer = pickle.load(stream)
            if buffer is not None:
                self._buffers[worker, slot] = buffer
            return _Unpickler(stream, self._buffers[worker, slot].numpy()).load()
        finally:
            self._free[worker][slot].release()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_buffers": {}}


class _Packed:
    """A worker's item with large arrays. Unpickling it gives the original item."""

    def __init__(self, buffers: SharedBuffers, item: Any, arrays: dict[int, Any]) -> None:
        self.buffers, self.item, self.arrays = buffers, item, arrays

    def __reduce__(self) -> tuple[Any, ...]:
        return self.buffers.send(self.item, self.arrays) or (_first, (self.item,))


class _Pickler(ForkingPickler):
    """Pickles arrays as their places in a buffer."""

    def __init__(self, stream: Any, layouts: dict[int, _Layout]) -> None:
        super().__init__(stream)
        self.layouts = layouts

    def persistent_id(self, obj: Any) -> Any:
        """Called for each object. Returns None if it is pickled as usual."""
        layout = self.layouts.get(id(obj))
        return None if layout is None else tuple(layout)


class _Unpickler(pickle.Unpickler):
    """Unpickles the places of arrays as copies of the arrays."""

    def __init__(self, stream: Any, memory: Any) -> None:
        super().__init__(stream)
        self.memory = memory
        self.copies: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        """Called for each place; one array may be in an item several times."""
        begin, num_bytes, shape, dtype, is_tensor = pid
        if begin not in self.copies:
            array = torch.empty(shape, dtype=dtype) if is_tensor else numpy.empty(shape, dtype)
            _bytes_of(array)[:] = self.memory[begin : begin + num_bytes]
            self.copies[begin] = array
        return self.copies[begin]


def _first(item: Any) -> Any:
    return item


def _received(token: int, worker: int, slot: int, data: bytes) -> Any:
    return _receivers[token].receive(worker, slot, data)


def _new_buffer(size: int, num_slots: int) -> Any:
    """Returns shared bytes; None if memory is scarce."""
    try:
        space = os.statvfs(_SHARED_MEMORY)
        if space.f_bavail * space.f_frsize < _SPARE * num_slots * size:
            return None
        buffer: Any = torch.empty(size, dtype=torch.uint8)
        return buffer.share_memory_()
    except (OSError, RuntimeError):
        return None


def _add_large(item: Any, arrays: dict[int, Any], depth: int) -> None:
    """Adds the large arrays of nested tuples, lists and dicts, by id."""
    kind = type(item)
    if kind is dict:
        item = item.values()
    elif kind is not tuple and kind is not list:
        if _is_large(item):
            arrays[id(item)] = item
        return
    if depth and len(item) <= _MAX_WIDTH:
        for one in item:
            _add_large(one, arrays, depth - 1)


def _is_large(item: Any) -> bool:
    """True for large arrays that are plain bytes in private memory of this process."""
    if type(item) is numpy.ndarray:
        return bool(
            item.nbytes >= MIN_BYTES and item.flags.c_contiguous and not item.dtype.hasobject
        )
    kind: Any = type(item)
    return bool(
        kind is torch.Tensor
        and item.device.type == "cpu"
        and item.layout is torch.strided
        and item.nbytes >= MIN_BYTES
        and item.is_contiguous()
        and not (item.requires_grad or item.is_shared() or item.is_quantized)
        and not (item.is_conj() or item.is_neg())
    )


def _bytes_of(array: Any) -> Any:
    """Returns the bytes of a contiguous array, in place."""
    if isinstance(array, numpy.ndarray):
        return array.reshape(-1).view(numpy.uint8)
    return array.view(-1).view(torch.uint8).numpy()


def _laid_out(arrays: dict[int, Any]) -> tuple[dict[int, _Layout], int]:
    """Returns the places of arrays in a buffer, and its size."""
    layouts, size = {}, 0
    for name, array in arrays.items():
        is_tensor = isinstance(array, torch.Tensor)
        layouts[name] = _Layout(size, array.nbytes, tuple(array.shape), array.dtype, is_tensor)
        size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return layouts, size


__all__ = ["MIN_BYTES", "SharedBuffers"]
