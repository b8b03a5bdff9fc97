"""Indexed random access to WebDataset tar shards, with exact epochs.

    import shardwise

    shardwise.index("train.idx", "train-{000000..001281}.tar")
    ds = shardwise.open("train.idx")
    sample = ds[42]
    jpg = sample["jpg"]                  # a memoryview into the mapped shard: no copy
    label = sample.integer("cls")

    for i in shardwise.Sampler(ds, shardwise.Order(seed=17), rank=0, world_size=8):
        use(ds[i])

    loader = shardwise.Loader(ds, columns=[shardwise.columns.image("jpg"), ...], batch_size=64)
    for epoch in loader.epochs(90):      # threads, no worker processes
        for batch in epoch:
            step(batch.torch("jpg"))
        epoch.prove()                    # each sample exactly once, or an error

shardwise.torch has samplers for torch's DataLoader, and shardwise.wids is the package wids over
this engine. Neither torch nor NumPy is imported before it is needed.
"""

from collections.abc import Mapping as _Mapping

from . import columns, errors, ranks, transforms
from ._core import Audit, Batch, Dataset, Order, Sample, Sampler, SamplerIterator, ShardCache
from ._core import version as __version__
from .building import index, merge, query, update, verify
from .errors import Error
from .loader import ByLength, Epoch, Loader, LoaderStats, Mixup, torch_memory
from .mixing import MixedDataset, mix
from .opening import open
from .ragged import Ragged
from .writing import ShardWriter, TarWriter, pack

_Mapping.register(Sample)

__all__ = [
    "Audit",
    "Batch",
    "ByLength",
    "Dataset",
    "Epoch",
    "Error",
    "Loader",
    "LoaderStats",
    "MixedDataset",
    "Mixup",
    "Order",
    "Ragged",
    "Sample",
    "Sampler",
    "SamplerIterator",
    "ShardCache",
    "ShardWriter",
    "TarWriter",
    "__version__",
    "columns",
    "errors",
    "index",
    "merge",
    "mix",
    "open",
    "pack",
    "query",
    "ranks",
    "torch_memory",
    "transforms",
    "update",
    "verify",
]
