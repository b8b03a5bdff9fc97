"""install(): what programs import as webdataset."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from .stages import StageMaker

# The modules of webdataset, and those here that have what is in them.
_MODULES = {
    "autodecode": ("decoding",),
    "compat": ("pipeline", "loading"),
    "dataset": ("pipeline",),
    "extradatasets": ("utilities",),
    "filters": ("stages", "handlers"),
    "handlers": ("handlers",),
    "mix": ("mixing",),
    "pipeline": ("pipeline",),
    "pytorch": ("base",),
    "shardlists": ("shards",),
    "tariterators": ("tars", "stages", "shards"),
    "utils": ("utilities", "stages", "base"),
    "writer": ("writing",),
}


def install() -> None:
    """Makes ``import webdataset`` mean shardwise.webdataset, with ``webdataset.filters``,
    ``webdataset.handlers`` and so on.

    A package webdataset that is installed is not touched, and is not seen any more by this process
    and by workers that it spawns. Does nothing the second time. Raises InvalidArgument if a program
    has imported that package already.
    """
    here = sys.modules[__package__]
    present = sys.modules.get("webdataset")
    if present is here:
        return
    if present is not None and getattr(present, "__shardwise__", None) is None:
        from ..errors import InvalidArgument

        raise InvalidArgument(
            f"webdataset is imported already, from {getattr(present, '__file__', None)!r}: call "
            "shardwise.webdataset.install() before"
        )
    # Workers that are spawned begin with this process's path, and find the package there, which
    # calls this again.
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "alias")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    for name, sources in _MODULES.items():
        found = [importlib.import_module(f"{__package__}.{source}") for source in sources]
        module = ModuleType(f"webdataset.{name}", f"{', '.join(sources)} of this package.")
        for source in found:
            for public in source.__all__:
                value = getattr(source, public)
                setattr(module, public, value)
                if isinstance(value, StageMaker):  # programs take the functions themselves, too
                    setattr(module, value.f.__name__, value.f)
        sys.modules[f"webdataset.{name}"] = module
        if not isinstance(getattr(here, name, None), ModuleType):
            setattr(here, name, module)
    sys.modules["webdataset"] = here


__all__ = ["install"]
