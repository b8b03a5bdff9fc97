"""install(): makes ``import wids`` import shardwise.wids."""

from __future__ import annotations

from ..running import take_the_place_of

# Modules of wids, and the modules here that define their names.
_MODULES = {
    "wids": ("dataset", "samplers", "shards", "decode", "specs"),
    "wids_decode": ("decode",),
    "wids_index": ("index_tool",),
    "wids_specs": ("specs",),
}


def install() -> None:
    """Makes ``import wids`` mean shardwise.wids, with ``wids.wids``, ``wids.wids_specs`` and so on.

    An installed package wids is not changed; this process and workers that it spawns do not see it
    any more. A second call does nothing. Raises InvalidArgument if that package has been imported
    already.
    """
    take_the_place_of("wids", _MODULES)


__all__ = ["install"]
