"""Plain records that functions of shardwise return."""

from __future__ import annotations

from typing import Any, NamedTuple


class Proof(str):
    """The text of a proof: "epoch 3: 20000 samples, each exactly once: proven"."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        import html

        return f'<span style="color: green">&#10003;</span> {html.escape(self)}'


class Shard(NamedTuple):
    """One shard of an index."""

    number: int
    path: str
    """Where its bytes are looked for: of a remote shard its URL, without what is secret unless the
    dataset was opened by URLs that hold it."""
    size_bytes: int
    first_sample: int
    num_samples: int
    num_members: int
    compression: str = "none"
    """How the file is compressed, by its content: "none", "gzip", "zstd", "xz", "bzip2", "lz4"."""


class Field(NamedTuple):
    """A field that samples of an index have."""

    name: str
    num_members: int
    """Samples that have it."""
    size_bytes: int
    """Of all of them together."""


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
    """Taken over from the index that was there: unchanged since they were scanned."""
    shards_moved: int
    shards_resumed: int
    dropped: list[str]
    """Paths of missing shards that were left out."""
    gone: list[str]
    """Paths of shards that the index had, and were not named again."""
    num_skipped: int
    """Members that a policy left out."""
    without_end_marker: list[str]
    without_value: dict[str, int]
    """For each column the samples that have no value for it: null."""
    shards_cut_short: int
    """Of which the rest was left out behind damage: samples of it are not among num_skipped."""
    bytes_cut_off: int
    """Of these rests."""


class PackReport(NamedTuple):
    """The result of packing files."""

    paths: list[str]
    """Of the shards."""
    num_samples: int
    classes: list[str]
    """Names of the classes, by number; empty if there are none."""
    left_out: list[str]
    """Paths of files that make no sample."""


class CacheCounts(NamedTuple):
    """The work of shard caches in an epoch."""

    uses: int
    """Of shards: stretches of the order in which a node reads one."""
    fetches: int
    """Uses whose shard was not there."""
    bytes_fetched: int
    evictions: int
    bypasses: int
    """Fetches that found no room, and were not kept."""
    peak_bytes: int
    """The most that was cached, on the node that needs most."""


class EpochFetches(NamedTuple):
    """Fetches of all nodes in an epoch; shards and bytes are those of the node that needs most."""

    epoch: int
    shards: int
    bytes: int
    lru: CacheCounts
    """If the shard that was read least recently leaves a full cache."""
    next_use: CacheCounts
    """If the one whose next use is farthest away leaves, as in a run whose order is known ahead."""


class FetchPlan(NamedTuple):
    """Predicted fetches of the shard caches of a run's nodes."""

    num_shards: int
    total_bytes: int
    bytes_in_use: int
    """Of shards at one time, at most."""
    bytes_for_once_an_epoch: int
    """The cache from which each shard is fetched once an epoch."""
    bytes_for_once: int
    """The cache from which nothing is fetched twice in all the epochs."""
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
