"""Plain records that functions of shardwise return."""

from __future__ import annotations

from typing import Any, NamedTuple, Union


class Proof(str):
    """The text of a proof: "epoch 3: 20000 samples, each exactly once: proven"."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        import html

        return f'<span style="color: green">&#10003;</span> {html.escape(self)}'


class DataProgress(NamedTuple):
    """The samples that a run has read of one data set. Samples that are left out count as read."""

    num_samples: int
    """Number of samples of the data set."""
    samples: int
    """Samples read so far, in all epochs."""
    passes: int
    """Whole passes over the data set: samples // num_samples."""
    remainder: int
    """Samples read of the next pass."""


class Shard(NamedTuple):
    """One shard of an index."""

    number: int
    """Its number in the index, from 0."""
    path: str
    """Path or URL from which it is read. Secrets of a URL are left out, unless the data set was
    opened by URLs that contain them."""
    size_bytes: int
    """Size of the file."""
    first_sample: int
    """Number of its first sample."""
    num_samples: int
    """Number of its samples."""
    num_members: int
    """Number of the members of its samples."""
    compression: str = "none"
    """Compression of the file, by its content: "none", "gzip", "zstd", "xz", "bzip2" or "lz4"."""


class Field(NamedTuple):
    """A field that samples of an index have."""

    name: str
    """Its name, without a leading dot."""
    num_members: int
    """Number of samples that have it."""
    size_bytes: int
    """Total bytes of the field in all samples."""


class JoinReport(NamedTuple):
    """The numbers of samples that Dataset.join() matched by key."""

    num_samples: int
    """Samples of the first data set."""
    num_samples_without_match: int
    """Samples of the first data set without a match. An inner join drops them."""
    num_other_samples: int
    """Samples of the other data set."""
    num_other_samples_without_match: int
    """Samples of the other data set without a match."""
    first_sample_without_match: Union[str, None]
    """Key of the first sample of the first data set without a match; None if all match."""
    first_other_sample_without_match: Union[str, None]
    """Key of the first sample of the other data set without a match; None if all match."""


class Info(NamedTuple):
    """A summary of an index."""

    path: str
    """Path of the index."""
    num_shards: int
    """Number of shards."""
    num_samples: int
    """Number of samples."""
    num_members: int
    """Number of members of all samples."""
    shard_bytes: int
    """Total size of the shards' files."""
    fields: list[Field]
    """All fields that samples have."""
    url_base: str = ""
    """Common folder of the URLs of all remote shards; "" without one."""


class Progress(NamedTuple):
    """Progress of a long operation. Numbers that an operation does not count are 0."""

    bytes_done: int
    """Bytes processed so far."""
    num_bytes: int
    """Bytes to process in total."""
    shards_done: int
    """Shards processed so far."""
    num_shards: int
    """Shards to process in total."""
    samples: int
    """Samples found so far."""


class BuildReport(NamedTuple):
    """Work of an index build, and the contents of the index."""

    num_shards: int
    """Shards in the index."""
    num_samples: int
    """Samples in the index."""
    num_members: int
    """Members of all samples."""
    fingerprint: str
    """Identifies the samples and their order: 32 hexadecimal digits."""
    shards_scanned: int
    """Shards that were read."""
    shards_reused: int
    """Unchanged shards, whose entries were copied from the earlier index."""
    shards_moved: int
    """Shards with a new path or time that were not read again."""
    shards_resumed: int
    """Shards reused from an unfinished build."""
    dropped: list[str]
    """Paths of missing shards that were left out."""
    gone: list[str]
    """Paths of shards of the earlier index that were not named again."""
    num_skipped: int
    """Number of members that a policy left out."""
    without_end_marker: list[str]
    """Paths of shards without an end-of-archive marker, which may be truncated."""
    without_value: dict[str, int]
    """For each column, the number of samples without a value (null)."""
    shards_cut_short: int
    """Shards whose rest was left out after damage. num_skipped does not count samples there."""
    bytes_cut_off: int
    """Total bytes of the rests that were left out."""


class SideTable(NamedTuple):
    """A side table of an index, and how its rows match the samples."""

    name: str
    """Its name."""
    columns: list[str]
    """Names of its columns in the index."""
    num_rows: int
    """Its rows."""
    rows_without_sample: int
    """Rows whose key no sample has."""
    num_samples: int
    """Samples in the index."""
    samples_without_row: int
    """Samples whose key no row has. They have None in the columns."""
    first_row_without_sample: str
    """Key of the first such row; empty if all rows have samples."""
    first_sample_without_row: str
    """Key of the first such sample; empty if all samples have rows."""


class PackReport(NamedTuple):
    """The result of packing files."""

    paths: list[str]
    """Paths of the shards."""
    num_samples: int
    """Samples in all shards."""
    classes: list[str]
    """Names of the classes, by number; empty without classes."""
    left_out: list[str]
    """Paths of files that belong to no sample."""


class RepackReport(NamedTuple):
    """The result of repack()."""

    shards: int
    """New shards."""
    shards_resumed: int
    """New shards that an interrupted call had written."""
    samples: int
    """Samples in all new shards."""
    shard_bytes: int
    """Bytes of all new shards."""
    path: str
    """Path of the new index."""


class CacheCounts(NamedTuple):
    """The work of shard caches in an epoch."""

    uses: int
    """Stretches of the order in which a node reads one shard."""
    fetches: int
    """Uses whose shard was not in the cache."""
    bytes_fetched: int
    """Bytes of these fetches."""
    evictions: int
    """Shards evicted to free space."""
    bypasses: int
    """Fetched shards that were not kept because the cache was full."""
    peak_bytes: int
    """Maximum bytes in the cache of a node."""


class EpochFetches(NamedTuple):
    """Fetches of all nodes in an epoch; shards and bytes are those of the node that needs most."""

    epoch: int
    """Number of the epoch."""
    shards: int
    """Different shards that the node reads."""
    bytes: int
    """Bytes of these shards."""
    lru: CacheCounts
    """Counts if a full cache evicts the least recently used shard."""
    next_use: CacheCounts
    """Counts if a full cache evicts the shard that is needed last. Runs do so if their order is
    known in advance."""


class FetchPlan(NamedTuple):
    """Predicted fetches of the shard caches of a run's nodes."""

    num_shards: int
    """Shards of the data set."""
    total_bytes: int
    """Bytes of all shards."""
    bytes_in_use: int
    """Maximum bytes of shards that a node uses at one time."""
    bytes_for_once_an_epoch: int
    """Smallest cache that fetches each shard once per epoch."""
    bytes_for_once: int
    """Smallest cache that fetches each shard once in all planned epochs."""
    epochs: list[EpochFetches]
    """Fetches of each planned epoch."""


class Finding(NamedTuple):
    """A difference between a shard and the index."""

    shard: int
    """Number of the shard."""
    text: str
    """Description of the difference."""


class Rows(NamedTuple):
    """The result of a query."""

    columns: list[str]
    """Names of the columns."""
    rows: list[tuple[object, ...]]
    """Values by row: int, float, str, bytes or None."""

    def arrow(self) -> Any:
        """The rows as a pyarrow.Table, which needs pyarrow."""
        import pyarrow

        values = zip(*self.rows) if self.rows else ([] for _ in self.columns)
        return pyarrow.table(dict(zip(self.columns, map(list, values), strict=True)))
