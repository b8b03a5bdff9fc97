"""Time lines of a Loader."""

from __future__ import annotations

import os

from . import _core

_MAX_EVENTS = 100_000  # about 10 MB


class Trace:
    """The result of Loader.trace(): a context manager. At the end of its ``with`` block, a time
    line is written to a file."""

    def __init__(self, core: _core.Loader, path: str | os.PathLike[str]) -> None:
        self._core = core
        self._path = os.fspath(path)

    def __enter__(self) -> Trace:
        self._core.keep_events(_MAX_EVENTS)
        return self

    def __exit__(self, *_: object) -> None:
        text = self._core.trace_text()
        self._core.keep_events(0)
        with open(self._path, "w") as file:
            file.write(text)
