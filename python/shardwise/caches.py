"""The shard caches that this process has open: one object for all that name a directory."""

from __future__ import annotations

import os
import threading
import weakref

from . import _core

_lock = threading.Lock()
_caches: weakref.WeakValueDictionary[tuple[str, int], _core.ShardCache] = (
    weakref.WeakValueDictionary()
)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def cache_at(directory: str, budget_bytes: int) -> _core.ShardCache:
    """The cache in a directory, with this budget."""
    with _lock:
        cache = _caches.get((directory, budget_bytes))
        if cache is None:
            cache = _core.ShardCache(directory, budget_bytes)
            _caches[directory, budget_bytes] = cache
        return cache


def remember(name: tuple[str, int], cache: _core.ShardCache) -> None:
    """Has cache_at() give this cache, so that what is unpickled shares it."""
    with _lock:
        _caches.setdefault(name, cache)
