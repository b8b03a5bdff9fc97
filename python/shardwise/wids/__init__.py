"""The interface of the package wids on shardwise's engine: datasets of shards, by sample number.

    import shardwise.wids as wids                # or: shardwise.wids.install(); import wids

    dataset = wids.ShardListDataset("train.json")
    sampler = wids.DistributedChunkedSampler(dataset, chunksize=1000, shuffle=True)
    loader = torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=64, num_workers=4)

Programs written for wids run unchanged: use ``python -m shardwise.wids script.py``, or call
install() before they import it. The page docs/python-wids.md lists the differences. This package
imports torch, NumPy and Pillow only when needed.
"""

from __future__ import annotations

from .dataset import ShardListDataset, ShardListDatasetMulti
from .decode import (
    decode_all_gz,
    decode_basic,
    decode_images_to_numpy,
    decode_images_to_pil,
    default_decoder,
)
from .installing import install
from .samplers import (
    ChunkedSampler,
    DistributedChunkedSampler,
    DistributedRangedSampler,
    ShardedSampler,
    ShardListSampler,
)

__version__ = "0.1.11"
"""The version of wids that this package replaces."""

__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "DistributedRangedSampler",
    "ShardListDataset",
    "ShardListDatasetMulti",
    "ShardListSampler",
    "ShardedSampler",
    "decode_all_gz",
    "decode_basic",
    "decode_images_to_numpy",
    "decode_images_to_pil",
    "default_decoder",
    "install",
]
