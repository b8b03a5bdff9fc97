"""install(): makes ``import webdataset`` import shardwise.webdataset."""

from __future__ import annotations

from typing import Any

from ..running import take_the_place_of
from .stages import StageMaker

# Modules of webdataset, and the modules here that define their names.
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


def _names_of(name: str, value: Any) -> dict[str, Any]:
    """Includes the functions of stages, which programs import directly."""
    return {name: value, **({value.f.__name__: value.f} if isinstance(value, StageMaker) else {})}


def install() -> None:
    """Makes ``import webdataset`` mean shardwise.webdataset, with ``webdataset.filters``,
    ``webdataset.handlers`` and so on.

    An installed package webdataset is not changed; this process and workers that it spawns do not
    see it any more. A second call does nothing. Raises InvalidArgument if that package has been
    imported already.
    """
    take_the_place_of("webdataset", _MODULES, _names_of)


__all__ = ["install"]
