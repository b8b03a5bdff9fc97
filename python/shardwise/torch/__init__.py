"""Samplers for torch's DataLoader, whose epochs are exact over all ranks.

    from torch.utils.data import DataLoader
    from shardwise.torch import DistributedChunkedSampler

    sampler = DistributedChunkedSampler(ds, seed=17)
    loader = DataLoader(ds, batch_size=64, sampler=sampler, num_workers=4)
    for epoch in range(90):
        sampler.set_epoch(epoch)
        for batch in loader: ...

Each sampler is a torch.utils.data.DistributedSampler, so Lightning does not wrap it in another
sampler. Importing this module registers collate() for batches of Samples with torch's
default_collate. docs/python-torch.md has details, including the behaviour of Accelerate and
Lightning.
"""

from __future__ import annotations

from torch.utils.data._utils.collate import default_collate_fn_map

from .._core import Sample
from .batches import BatchSampler, prove
from .collating import collate
from .evaluating import evaluate
from .gradients import average_gradients, loss_scale
from .samplers import (
    ChunkedSampler,
    DistributedChunkedSampler,
    DistributedSampler,
    ResampledSampler,
    SequentialSampler,
    ShardedSampler,
)

__all__ = [
    "BatchSampler",
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "DistributedSampler",
    "ResampledSampler",
    "SequentialSampler",
    "ShardedSampler",
    "average_gradients",
    "collate",
    "evaluate",
    "loss_scale",
    "prove",
]

default_collate_fn_map[Sample] = collate
