"""The packages that side_by_side.py measures, each in a separate module.

Each is imported only in the process that works with it; see child.py.
"""

from __future__ import annotations

import importlib

from .base import Peer

_PEERS = {
    "shardwise": "shardwise_:Loader",
    "shardwise-torch": "shardwise_torch_:InDataLoader",
    "shardwise-view": "shardwise_:View",
    "shardwise-wids": "wids_:Successor",
    "wids": "wids_:Wids",
    "webdataset": "webdataset_:WebDataset",
    "webdataset-resampled": "webdataset_:Resampled",
    "streaming": "streaming_:Streaming",
    "litdata": "litdata_:LitData",
    "grain": "grain_:Threads",
    "grain-processes": "grain_:Processes",
    "spdl": "spdl_:Spdl",
    "torch": "torch_:Files",
    "torchdata": "torch_:Stateful",
}
NAMES = list(_PEERS)


def peer_class(name: str) -> type[Peer]:
    """Returns the peer of this name. Raises ImportError if its package is not installed."""
    module, made = _PEERS[name].split(":")
    found: type[Peer] = getattr(importlib.import_module(f"{__name__}.{module}"), made)
    return found
