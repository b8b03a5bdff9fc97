"""Samplers that torch's classes know. Imported only where torch is."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DistributedSampler  # type: ignore[import-not-found, unused-ignore]

from .samplers import ChunkedSampler


class RankSampler(ChunkedSampler, DistributedSampler):  # type: ignore[misc,type-arg,unused-ignore]
    """A ChunkedSampler for one rank of several, known as such to Lightning and others.

    Nothing of DistributedSampler is used but its name: the samples are those of ChunkedSampler.
    """

    def __init__(self, dataset: Any, **options: Any) -> None:
        ChunkedSampler.__init__(self, dataset, **options)
