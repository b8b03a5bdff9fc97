"""Plain records that functions of shardwise return."""

from __future__ import annotations

from typing import Any, NamedTuple


class Shard(NamedTuple):
    """One shard of an index."""

    number: int
    path: str
    """The path or URL from which the shard is read. A URL has no secrets, unless the dataset was
    opened with URLs that contain them."""
    size_bytes: int
    first_sample: int
    num_samples: int
    num_members: int
    compression: str = "none"
    """The compression, determined from the content: "none", "gzip", "zstd", "xz", "bzip2",
    "lz4"."""


class Field(NamedTuple):
    """A field that samples of an index have."""

    name: str
    num_members: int
    """Number of samples that have the field."""
    size_bytes: int
    """Sum of the sizes of these members."""


class Info(NamedTuple):
    """A summary of an index."""

    path: str
    num_shards: int
    num_samples: int
    num_members: int
    shard_bytes: int
    fields: list[Field]
    url_base: str = ""
    """The folder that the URLs of all remote shards have in common; "" if there is none."""


class Progress(NamedTuple):
    """Progress of a long operation. Numbers that an operation does not count are 0."""

    bytes_done: int
    num_bytes: int
    shards_done: int
    num_shards: int
    samples: int


class BuildReport(NamedTuple):
    """Work of an index build, and the contents of the index."""

    num_shards: int
    num_samples: int
    num_members: int
    fingerprint: str
    shards_scanned: int
    shards_reused: int
    """Shards that were not scanned again, because they have not changed since they were scanned."""
    shards_moved: int
    shards_resumed: int
    dropped: list[str]
    """Paths of missing shards that were left out."""
    gone: list[str]
    """Paths of shards in the old index that are not in the new list."""
    num_skipped: int
    """Number of members that a policy left out."""
    without_end_marker: list[str]
    without_value: dict[str, int]
    """For each column, the number of samples whose value is null."""
    shards_cut_short: int
    """Number of shards whose rest, after damage, was left out. Samples in these rests do not count
    in num_skipped."""
    bytes_cut_off: int
    """Bytes of these rests."""


class PackReport(NamedTuple):
    """The result of packing files."""

    paths: list[str]
    """Paths of the shards."""
    num_samples: int
    classes: list[str]
    """Names of the classes, by number; empty if the samples have no classes."""
    left_out: list[str]
    """Paths of files that are not part of a sample."""


class CacheCounts(NamedTuple):
    """The work of shard caches in an epoch."""

    uses: int
    """Number of uses of shards. A use is a stretch of the order in which a node reads one shard."""
    fetches: int
    """Uses that were cache misses."""
    bytes_fetched: int
    evictions: int
    bypasses: int
    """Fetches whose shard found no room and was not cached."""
    peak_bytes: int
    """The largest size of a cache's content, on the node that needs the most bytes."""


class EpochFetches(NamedTuple):
    """Fetches of all nodes in an epoch; shards and bytes are those of the node that needs most."""

    epoch: int
    shards: int
    bytes: int
    lru: CacheCounts
    """Counts if a full cache evicts the least recently used shard."""
    next_use: CacheCounts
    """Counts if a full cache evicts the shard whose next use is farthest away, as it does in a run
    whose order is known in advance."""


class FetchPlan(NamedTuple):
    """Predicted fetches of the shard caches of a run's nodes."""

    num_shards: int
    total_bytes: int
    bytes_in_use: int
    """The peak of the bytes of shards in use at one time."""
    bytes_for_once_an_epoch: int
    """The smallest cache with which each shard is fetched once per epoch."""
    bytes_for_once: int
    """The smallest cache with which no shard is fetched twice in all epochs."""
    epochs: list[EpochFetches]


class Finding(NamedTuple):
    """A difference between a shard and the index."""

    shard: int
    text: str


class Rows(NamedTuple):
    """The result of a query."""

    columns: list[str]
    rows: list[tuple[object, ...]]

    def arrow(self) -> Any:
        """The rows as a pyarrow.Table, which needs pyarrow."""
        import pyarrow

        values = zip(*self.rows) if self.rows else ([] for _ in self.columns)
        return pyarrow.table(dict(zip(self.columns, map(list, values), strict=True)))
