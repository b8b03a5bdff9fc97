"""Indexed random access to WebDataset tar shards, with exact epochs.

    import shardwise

    shardwise.index("train.idx", "train-{000000..001281}.tar")
    ds = shardwise.open("train.idx")
    sample = ds[42]
    jpg = sample["jpg"]                  # a memoryview into the mapped shard: no copy
    label = sample.integer("cls")

    for i in shardwise.Sampler(ds, shardwise.Order(seed=17), rank=0, world_size=8):
        use(ds[i])

shardwise.torch has samplers for torch's DataLoader, and shardwise.wids is the package wids over
this engine. Neither torch nor NumPy is imported before it is needed.
"""

from collections.abc import Mapping as _Mapping

from . import errors
from ._core import Audit, Dataset, Order, Sample, Sampler, SamplerIterator, ShardCache
from ._core import version as __version__
from .building import index, merge, query, update, verify
from .errors import Error
from .opening import open
from .writing import ShardWriter, TarWriter, pack

_Mapping.register(Sample)

__all__ = [
    "Audit",
    "Dataset",
    "Error",
    "Order",
    "Sample",
    "Sampler",
    "SamplerIterator",
    "ShardCache",
    "ShardWriter",
    "TarWriter",
    "__version__",
    "errors",
    "index",
    "merge",
    "open",
    "pack",
    "query",
    "update",
    "verify",
]
