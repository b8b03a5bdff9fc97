"""install(): makes ``import wids`` import shardwise.wids."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

# The modules of wids, and the modules here that provide their names.
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
    here = sys.modules[__package__]
    present = sys.modules.get("wids")
    if present is here:
        return
    if present is not None and getattr(present, "__shardwise__", None) is None:
        from ..errors import InvalidArgument

        raise InvalidArgument(
            f"wids is imported already, from {getattr(present, '__file__', None)!r}: call "
            "shardwise.wids.install() before"
        )
    # Spawned workers inherit this process's path. They find the alias package there, which calls
    # this function again.
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "alias")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    for name, sources in _MODULES.items():
        module = ModuleType(f"wids.{name}", f"What {', '.join(sources)} of shardwise.wids have.")
        for source in sources:
            found = importlib.import_module(f"{__package__}.{source}")
            for public in found.__all__:
                setattr(module, public, getattr(found, public))
        sys.modules[f"wids.{name}"] = module
        setattr(here, name, module)
    sys.modules["wids"] = here


__all__ = ["install"]
