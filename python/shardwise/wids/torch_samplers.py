"""Samplers that derive from torch's classes. Imported only if torch is loaded."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DistributedSampler  # type: ignore[import-not-found, unused-ignore]

from .samplers import ChunkedSampler


class RankSampler(ChunkedSampler, DistributedSampler):  # type: ignore[misc,type-arg,unused-ignore]
    """A ChunkedSampler for one rank of several, which Lightning and others recognise as such.

    It uses only the name of DistributedSampler: the samples are those of ChunkedSampler.
    """

    def __init__(self, dataset: Any, **options: Any) -> None:
        ChunkedSampler.__init__(self, dataset, **options)
