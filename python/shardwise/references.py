"""Pickled datasets and samples: references to an index, opened again where they arrive.

A process opens an index once for all references to it that are alive, and again after the index was
updated. The four used last stay open, so that samples that arrive one by one do not each open it.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import weakref
from collections import OrderedDict
from typing import Any, Union

from . import _core
from .errors import Mismatch

_KEPT = 4

_lock = threading.Lock()
_opened: weakref.WeakValueDictionary[Any, _core.Dataset] = weakref.WeakValueDictionary()
_states: weakref.WeakKeyDictionary[_core.Dataset, Any] = weakref.WeakKeyDictionary()
_kept: OrderedDict[Any, _core.Dataset] = OrderedDict()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _state(path: str) -> tuple[int, ...] | None:
    """Returns what changes if the index or its side tables are replaced: first the time of the
    latest change. None if the index is missing."""
    files = []
    for file in (path, path + ".side"):
        try:
            files.append(os.stat(file))
        except OSError:
            if file == path:
                return None
    state: tuple[int, ...] = (max(found.st_ctime_ns for found in files),)
    for found in files:
        state += found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return state


def _open(
    opening: tuple[Any, ...], fingerprint: bytes
) -> tuple[_core.Dataset, tuple[int, ...] | None]:
    """Opens a dataset, if possible with this fingerprint. Returns the state of its files, or an
    older state."""
    from . import opening as opener

    start = time.time_ns()
    data = opener.open_as(opening, fingerprint=fingerprint)
    state = _state(data.path)
    if state is not None and state[0] > start - 2_000_000_000:
        # Perhaps it was replaced before _state(): open it again.
        data = opener.open_as(opening, fingerprint=fingerprint)
    return data, state


def _base(opening: tuple[Any, ...], fingerprint: bytes) -> _core.Dataset:
    """Returns the dataset that `opening` opens. Its index must have this fingerprint."""
    key = (opening, fingerprint)
    with _lock:
        data = _opened.get(key)
        state = _states.get(data) if data is not None else None
    if data is None or _state(data.path) not in (None, state):
        fresh, state = _open(opening, fingerprint)
        found = fresh.fingerprint.encode()
        if found == fingerprint:
            data = fresh
        elif data is None:
            raise Mismatch(
                f"the index changed since it was pickled: {fresh.path!r} has the fingerprint "
                f"{found.decode()}, the pickle {fingerprint.decode()}; restore the earlier "
                "index, or pickle again"
            )
    with _lock:
        other = _opened.get(key)  # another thread may have opened it
        if other is not None and _states.get(other) == state:
            data = other
        _opened[key], _states[data] = data, state
        _kept[key] = data
        _kept.move_to_end(key)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return data


def forget() -> None:
    """Later references open their indexes again."""
    with _lock:
        _opened.clear()
        _kept.clear()


def teach_torch() -> None:
    """If torch is loaded, registers collate() for batches of Samples with its default_collate;
    needed also in a worker that a DataLoader spawned."""
    if "torch.utils.data" in sys.modules:
        from . import torch  # noqa: F401


def packed_steps(steps: tuple[Any, ...], protocol: int) -> tuple[Any, ...]:
    """The steps of a view; numbers out of band if the protocol allows it."""
    if protocol < 5:
        return steps
    return tuple(
        (step[0], pickle.PickleBuffer(step[1])) if step[0] == "numbers" else step for step in steps
    )


def _taken(data: _core.Dataset, step: tuple[Any, ...]) -> _core.Dataset:
    kind, *arguments = step
    if kind == "where":
        return data.where(*arguments)
    if kind == "slice":
        start, stop, stride = arguments
        return data[start:stop:stride]
    return data.select(memoryview(arguments[0]).cast("B").cast("Q"))


def open_again(
    opening: tuple[Any, ...],
    fingerprint: bytes,
    steps: tuple[Any, ...],
    view_fingerprint: bytes,
) -> _core.Dataset:
    """The dataset that was pickled. Raises Mismatch if another index is at its path now."""
    teach_torch()
    data = _base(opening, fingerprint)
    for step in steps:
        data = _taken(data, step)
    if data.fingerprint.encode() != view_fingerprint:
        raise Mismatch(
            f"the view of {data.path!r} has other samples than the pickled view; make the view "
            "again, and pickle the new view"
        )
    return data


def sample_again(
    opening: tuple[Any, ...], fingerprint: bytes, number: int, taken_by: Union[int, None] = None
) -> _core.Sample:
    """The sample that was pickled, by its number in the index; `taken_by` is its number in a view
    or mixture."""
    sample: Any = _base(opening, fingerprint)[number]
    made: _core.Sample = sample if taken_by is None else sample._numbered(taken_by)
    return made
