"""The shard caches that this process has open: one object per directory and options."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from . import _core
from .errors import Unsupported

# The directory, the budget, and the options that differ from their defaults.
Name = tuple[Any, ...]

_lock = threading.Lock()
_caches: weakref.WeakValueDictionary[Name, _core.ShardCache] = weakref.WeakValueDictionary()
_DEFAULTS = {
    "bypass_large": False,
    "allow_pipe": False,
    "read_only": False,
    "group_shared": False,
    "http_headers": (),
    "bearer_token_file": "",
    "bearer_token_loopback": False,
    "netrc_file": "",
    "ca_file": "",
    "host_connections": 0,
    "shard_connections": 4,
    "retry_for": 900.0,
    "no_sign_request": False,
    "url_base": (),
}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def cache_at(*name: Any) -> _core.ShardCache:
    """The cache that remember() registered under this name. Opens the cache if this process has not
    opened it."""
    directory, budget_bytes, *given = name
    with _lock:
        cache = _caches.get(name)
        if cache is None:
            options = dict(given)
            if "url_base" in options:
                options["url_base"] = dict(options["url_base"])
            cache = _core.ShardCache(directory, budget_bytes, **options)
            _caches[name] = cache
        return cache


def reference(cache: _core.ShardCache) -> tuple[Any, ...]:
    """The form in which a cache pickles: all references to it in one process share one cache."""
    name = remember(cache)
    if name is None:
        raise Unsupported(
            "a ShardCache with resolve= cannot be pickled, because the function stays in its "
            "process; make the cache in the other process"
        )
    return cache_at, name


def remember(cache: _core.ShardCache) -> Name | None:
    """Registers the cache and returns its name. With this name, cache_at() opens the same cache,
    here and in other processes, so that unpickled objects share it. Returns None for a cache with
    resolve=."""
    if cache.options is None:
        return None
    given = (
        (option, os.path.abspath(value) if option.endswith("_file") else value)
        for option, value in cache.options
        if value != _DEFAULTS[option]
    )
    name = (os.path.abspath(cache.directory), cache.budget_bytes, *given)
    with _lock:
        _caches.setdefault(name, cache)
    return name
