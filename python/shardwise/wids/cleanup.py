"""Keeping a folder below a size. A shard cache needs none of this: it has a budget."""

from __future__ import annotations

import glob
import os


def keep_most_recent_files(
    pattern: str, maxsize: int = int(1e12), maxfiles: int = 1000, debug: bool = False
) -> None:
    """Removes all files of a pattern but those that were written last.

    What is kept takes ``maxsize`` bytes at most, in ``maxfiles`` files at most.
    """
    found = []
    for name in glob.glob(pattern):
        try:
            state = os.stat(name)
        except FileNotFoundError:
            continue
        found.append((state.st_mtime_ns, name, state.st_size))
    size = 0
    for count, (_, name, bytes_) in enumerate(sorted(found, reverse=True)):
        size += bytes_
        if size <= maxsize and count < maxfiles:
            continue
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass


__all__ = ["keep_most_recent_files"]
