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
import zlib
from collections import OrderedDict
from typing import Any, Union

from . import _core
from .errors import Mismatch

_KEPT = 4
# A view by a condition is pickled as its samples up to this size, and otherwise as its condition,
# which each process that gets it evaluates again.
_MAX_PACKED_SAMPLES = 1 << 27
_MAX_PACKED_BYTES = 16 << 20

_lock = threading.Lock()
_opened: weakref.WeakValueDictionary[Any, _core.Dataset] = weakref.WeakValueDictionary()
_states: weakref.WeakKeyDictionary[_core.Dataset, Any] = weakref.WeakKeyDictionary()
_kept: OrderedDict[Any, _core.Dataset] = OrderedDict()
_joins: OrderedDict[Any, tuple[_core.Dataset, ...]] = OrderedDict()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _state(path: str) -> tuple[int, ...] | None:
    """Returns what changes if the index or its side tables are replaced: first the time of the
    latest change. The result is None if the index is missing."""
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
    """Makes later references open their indexes again."""
    with _lock:
        _opened.clear()
        _kept.clear()
        _joins.clear()


def teach_torch() -> None:
    """If torch is loaded, registers collate() for batches of Samples with its default_collate;
    needed also in a worker that a DataLoader spawned."""
    if "torch.utils.data" in sys.modules:
        from . import torch  # noqa: F401


def packed_steps(
    data: _core.Dataset, steps: tuple[Any, ...], protocol: int
) -> tuple[Any, ...]:
    """The steps of the view `data`. A condition becomes the samples for which it is true, unless
    they are too many or `data` is a join. If the protocol allows it, the numbers are pickled out of
    band."""
    kinds = {step[0] for step in steps}
    if "where" in kinds and "join" not in kinds and len(data) <= _MAX_PACKED_SAMPLES:
        view: Any = data  # the stub has no private methods
        packed = zlib.compress(view._gaps(), 1)
        if len(packed) <= _MAX_PACKED_BYTES:
            return (("gaps", packed),)
    if protocol < 5:
        return steps
    return tuple(
        (step[0], pickle.PickleBuffer(step[1])) if step[0] == "numbers" else step for step in steps
    )


def _taken(data: _core.Dataset, step: tuple[Any, ...]) -> _core.Dataset:
    kind, *arguments = step
    if kind == "where":
        return data.where(*arguments)
    if kind == "join":
        other, how, suffix = arguments
        return data.join(other, how=how, suffix=suffix)
    if kind == "gaps":
        view: Any = data
        at_gaps: _core.Dataset = view._at_gaps(zlib.decompress(arguments[0]), step)
        return at_gaps
    if kind == "slice":
        start, stop, stride = arguments
        return data[start:stop:stride]
    return data.select(memoryview(arguments[0]).cast("B").cast("Q"))


def _identity(
    base: _core.Dataset, fingerprint: str, steps: tuple[Any, ...], bases: list[_core.Dataset]
) -> tuple[Any, ...]:
    """Returns a value that identifies a join of opened indexes. It is valid while all of `bases`
    live."""
    bases.append(base)
    joins = []
    for step in steps:
        if step[0] == "join":
            _, other, _, suffix = step
            base_of_other = _base(*other._reference)
            joins.append(
                (_identity(base_of_other, other.fingerprint, other._steps, bases), suffix)
            )
    return id(base), fingerprint, tuple(joins)


def open_again(
    opening: tuple[Any, ...],
    fingerprint: bytes,
    steps: tuple[Any, ...],
    view_fingerprint: bytes,
) -> _core.Dataset:
    """The dataset that was pickled. Raises Mismatch if another index is at its path now. A process
    computes a join once for all references to it; the four used last are kept."""
    teach_torch()
    data = _base(opening, fingerprint)
    bases: list[_core.Dataset] = []
    key = _identity(data, view_fingerprint.decode(), steps, bases)
    with _lock:
        if key in _joins:
            _joins.move_to_end(key)
            return _joins[key][0]
    for step in steps:
        data = _taken(data, step)
    if data.fingerprint.encode() != view_fingerprint:
        raise Mismatch(
            f"the view of {data.path!r} has other samples than the pickled view; make the view "
            "again, and pickle the new view"
        )
    if len(bases) > 1:
        with _lock:
            _joins[key] = (data, *bases)
            while len(_joins) > _KEPT:
                _joins.popitem(last=False)
    return data


def sample_again(
    opening: tuple[Any, ...], fingerprint: bytes, number: int, taken_by: Union[int, None] = None
) -> _core.Sample:
    """The sample that was pickled, by its number in the index; `taken_by` is its number in a view
    or mixture."""
    sample: Any = _base(opening, fingerprint)[number]
    made: _core.Sample = sample if taken_by is None else sample._numbered(taken_by)
    return made


def joined_sample_again(
    dataset: _core.Dataset, index: int, number: Union[int, None] = None
) -> _core.Sample:
    """The sample of a join that was pickled, by its number in the join; `number` is its number in a
    mixture."""
    sample: Any = dataset[index]
    made: _core.Sample = sample if number is None else sample._numbered(number)
    return made
