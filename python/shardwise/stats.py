"""The statistics of a Loader."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Forgiven", "LoaderStats"]


class Forgiven(NamedTuple):
    """Forgiven damage of images, of one kind; see ImageDecoding.strict."""

    kind: str
    """Kind of the damage."""
    images: int
    """Number of images with it."""
    first_sample: str
    """Key and shard of the first of them."""


class LoaderStats(NamedTuple):
    """Work of a run so far, over all its epochs, and where its time went.

    Times are in seconds; times of threads are sums over all threads.
    """

    batches: int
    """Batches given out."""
    samples: int
    """Samples in them."""
    bad_samples: int
    """Bad samples left out."""
    bytes_made: int
    """Bytes of the batches' arrays."""
    bytes_read: int
    """Bytes of the fields that columns read, including those read ahead. Reads by columns'
    functions are not counted."""
    planning: float
    """Time of planning the order and the batches."""
    opening: float
    """Time of opening shards: fetching, expanding, mapping and checking."""
    reading: float
    """Time of reading fields."""
    decoding: float
    """Time of decoding fields."""
    transforming: float
    """Time of transforming images."""
    functions: float
    """Time of columns' functions, including waits for the GIL."""
    collating: float
    """Time of putting rows into batches."""
    idle: float
    """Time in which threads had no work."""
    elapsed: float
    """Time of the consumer, from its first batch to its last in each epoch."""
    waited: float
    """Part of elapsed in which the consumer waited for a batch."""
    batches_ready: int
    """Batches that the consumer did not wait for."""
    mean_ready: float
    """Mean number of batches that were ready when one was requested."""
    sample_times: list[int]
    """Number of samples by duration: [0] below 1 us, [k] from 2^(k - 1) us to 2^k us."""
    slowest_time: float
    """Duration of the slowest sample."""
    slowest_sample: str
    """Key and shard of the slowest sample."""
    forgiven: list[Forgiven]
    """Forgiven damage of images, by kind."""
    threads: int
    """Loading threads."""
    fetch_threads: int
    """Shards fetched ahead at the same time."""
    prefetch: int
    """Maximum batches in flight."""
    cores: int
    """Cores that this process may use."""
