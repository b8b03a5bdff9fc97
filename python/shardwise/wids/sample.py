"""The dict that a dataset of shardwise.wids returns for a sample."""

from __future__ import annotations

from typing import Any


class Sample(dict[str, Any]):
    """A sample: fields by their names with a leading dot, and the extras of wids.

    An index has the names of fields in lower case. A name in upper case finds the one in lower
    case, so that programs written for shards with ``.JPG`` work.
    """

    __slots__ = ()

    def __missing__(self, key: str) -> Any:
        lower = key.lower() if isinstance(key, str) else key
        if lower == key or not dict.__contains__(self, lower):
            raise KeyError(key)
        return dict.__getitem__(self, lower)

    def __contains__(self, key: object) -> bool:
        if dict.__contains__(self, key):
            return True
        return isinstance(key, str) and dict.__contains__(self, key.lower())

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a field, or ``default`` if there is no such field."""
        try:
            return self[key]
        except KeyError:
            return default

    def copy(self) -> Sample:
        """A Sample with the same values."""
        return Sample(self)
