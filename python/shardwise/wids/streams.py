"""Streams of large fields, which are copied at the first read."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from .. import _core


class ReadStream(io.BytesIO):
    """A FieldStream that has copied its bytes, and now acts as an io.BytesIO."""

    __slots__ = ("_place", "_sample")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return io.BytesIO, (), (self.getvalue(), self.tell(), None)


class FieldStream(io.BytesIO):
    """The bytes of a field of a sample, copied at the first access.

    Until then it keeps the sample alive, and with it the sample's shard. Reading raises StaleIndex
    or OSError if the shard was truncated meanwhile. Pickled, it is an io.BytesIO.
    """

    __slots__ = ("_place", "_sample")

    _sample: _core.Sample
    _place: int

    def _fill(self) -> None:
        if type(self) is not FieldStream or self.closed:
            return  # closed, or already filled (the method was looked up before that)
        data = _core.copy_field(self._sample, self._place)
        io.BytesIO.__init__(self, data)
        del self._sample
        self.__class__ = ReadStream  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        FieldStream._fill(self)
        return ReadStream.__reduce_ex__(self, protocol)  # type: ignore[arg-type]


def _reading(name: str) -> Callable[..., Any]:
    method = getattr(io.BytesIO, name)

    def call(self: FieldStream, *arguments: Any, **named: Any) -> Any:
        FieldStream._fill(self)
        return method(self, *arguments, **named)

    call.__name__, call.__doc__ = name, method.__doc__
    return call


# Replace all methods that depend on the bytes. Methods inherited from io.BytesIO copy no bytes:
# tell() is 0 before a read, and close() ends the stream.
for _name in (
    "__iter__",
    "__next__",
    "getbuffer",
    "getvalue",
    "read",
    "read1",
    "readinto",
    "readinto1",
    "readline",
    "readlines",
    "seek",
    "truncate",
    "write",
    "writelines",
):
    setattr(FieldStream, _name, _reading(_name))

__all__ = ["FieldStream"]
