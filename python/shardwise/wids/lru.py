"""A dict that holds what was used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """Holds ``capacity`` values at most, those that were used last.

    release_handler: is called with key and value of what has to go.
    """

    def __init__(
        self, capacity: int, release_handler: Callable[[K, V], object] | None = None
    ) -> None:
        self.capacity = capacity
        self.release_handler = release_handler
        self.cache: OrderedDict[K, V] = OrderedDict()

    def __getitem__(self, key: K) -> V | None:
        if key not in self.cache:
            return None
        self.cache.move_to_end(key)
        return self.cache[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.cache[key] = value
        self.cache.move_to_end(key)
        while len(self.cache) > self.capacity:
            self._release(*self.cache.popitem(last=False))

    def __delitem__(self, key: K) -> None:
        if key in self.cache:
            self._release(key, self.cache.pop(key))

    def _release(self, key: K, value: V) -> None:
        if self.release_handler is not None:
            self.release_handler(key, value)

    def __len__(self) -> int:
        return len(self.cache)

    def __contains__(self, key: object) -> bool:
        return key in self.cache

    def keys(self) -> KeysView[K]:
        """What is held, the one used last at the end."""
        return self.cache.keys()

    def values(self) -> ValuesView[V]:
        """The same, the values."""
        return self.cache.values()

    def items(self) -> ItemsView[K, V]:
        """The same, both."""
        return self.cache.items()

    def clear(self) -> None:
        """Releases all."""
        while self.cache:
            self._release(*self.cache.popitem(last=False))


__all__ = ["LRUCache"]
