"""Builds and inspects indexes: index(), update(), merge(), verify(), query(), plan()."""

from __future__ import annotations

import os
import warnings

from . import _core
from .arguments import columns_of, path_of, paths_of, refuse, require, threads_of, whole_number
from .errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .records import BuildReport, FetchPlan, Finding, Progress, Rows

_KINDS = ("damage", "no_field", "duplicate_field", "repeated_key", "link")


def _policies(on_bad: str | Mapping[str, str] | None) -> str | None:
    """The policies as text, as the C++ library expects them."""
    if on_bad is None or isinstance(on_bad, str):
        return on_bad
    if not hasattr(on_bad, "get"):
        raise InvalidArgument(
            f'not valid: on_bad={on_bad!r}; give "error", "skip", or a dict of '
            "such rules by kind of defect"
        )
    unknown = [kind for kind in on_bad if kind not in _KINDS]
    if unknown:
        raise InvalidArgument(
            f"on_bad names an unknown kind of bad member: {unknown[0]!r}; choose one of "
            f"{', '.join(_KINDS)}"
        )
    return ",".join(f"{kind.replace('_', '-')}={on_bad.get(kind, 'error')}" for kind in _KINDS)


def _part(part: tuple[int, int]) -> tuple[int, int]:
    """Returns the part's number, from 1, and the number of parts."""
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        refuse("part", part, "give the part's number from 1, and the number of parts: (1, 4)")
    return whole_number("part", part[0]), whole_number("part", part[1])


def index(
    output: str | os.PathLike[str],
    *sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: Sequence[str] = (),
    hashes: bool = False,
    unique_keys: bool = False,
    on_bad: str | Mapping[str, str] | None = None,
    forget: bool = False,
    drop_missing: bool = False,
    accept_times: bool = False,
    check_index: bool = False,
    threads: int | None = None,
    part: tuple[int, int] | None = None,
    progress: Callable[[Progress], object] | None = None,
    cache: _core.ShardCache | None = None,
) -> BuildReport:
    """Scans shards and makes the index `output`, or brings an existing one up to date.

    sources: shards, in the order that numbers the samples: files, directories, patterns
        ("train-{000..146}.tar"), URLs, wids descriptors (.json), "@list.txt", or lists of these.
    columns: metadata taken from fields for queries: "cls", "json:$.width", "w=json:$.size[0]". A
        column for which no sample has a value causes a warning. The report counts the samples
        without a value.
    hashes: also hash every byte, for verify(full=True).
    unique_keys: raise an error if a key occurs in two shards.
    on_bad: how to treat members that break a rule: "error" (the default) or "skip", or a dict by
        kind of defect, e.g. {"damage": "skip", "repeated_key": "keep"}. Kinds that the dict lacks
        are errors. The kinds are damage, no_field, duplicate_field, repeated_key ("keep" keeps all
        samples with the key), and link ("resolve" gives a hard link the bytes of its target).
    forget: do not keep the columns, hashes, unique_keys and on_bad that an existing index was built
        with. By default, options that are not given keep the values of the existing index. If that
        index cannot be read, these values are lost, and a warning says so.
    drop_missing: leave out shards that do not exist.
    accept_times: accept copies of shards although their modification times differ.
    check_index: read the whole existing index first, and scan all shards if any part of it is
        damaged.
    threads: number of threads that scan; by default one per core. 0 means the calling thread.
    part: (i, n), with i from 1: index only the i-th of n parts of the shards, for merge(). A part
        is not checked against a descriptor.
    progress: a function that is called repeatedly, by one thread at a time. An exception that it
        raises ends the build.
    cache: a ShardCache whose options, e.g. credentials and URL bases, are used to fetch URLs.
        The build stores no shard in the cache.

    The index appears only when it is complete. If a build is interrupted, the next call continues
    where it stopped.
    Raises NotFound, CorruptShard (shard, offset and member), Unsupported, Mismatch (shards differ
    from a descriptor), OSError; KeyboardInterrupt on Ctrl-C.

    >>> shardwise.index("new.idx", "train-{000000..000003}.tar", columns=["cls"]).num_samples
    400
    >>> shardwise.index("new.idx", "train-*.tar", "gone.tar")
    Traceback (most recent call last):
    ...
    shardwise.errors.NotFound: ...
    """
    output, shards = path_of(output), paths_of(sources)
    if shards and shards[-1].endswith(".idx") and not output.endswith(".idx"):
        refuse("output", output, f"name the index first: index({shards[-1]!r}, ...)")
    report = _core.index(
        output,
        shards,
        columns=columns_of(columns),
        hashes=hashes,
        unique_keys=unique_keys,
        policies=_policies(on_bad),
        forget=forget,
        drop_missing=drop_missing,
        accept_times=accept_times,
        check_index=check_index,
        threads=threads_of(threads),
        part=None if part is None else _part(part),
        progress=progress,
        cache=cache,
    )
    return report if part is not None else _warned(report)


def warn_of_empty(columns: Sequence[str], stacklevel: int) -> None:
    """Warns of columns for which no sample has a value, e.g. because a field was mistyped."""
    if columns:
        warnings.warn(
            f"no sample has a value for the columns {', '.join(map(repr, columns))}, so these "
            'columns are null; check their fields against shardwise.query(index, "SELECT * FROM '
            'fields")',
            stacklevel=stacklevel + 1,
        )


def warn_of_lost_options(path: str) -> None:
    """Warns of an index that was rebuilt, and whose options could not be kept."""
    warnings.warn(
        f"the earlier index could not be read: {path!r}; its options columns, hashes, "
        "unique_keys and on_bad were lost; if you need these options, give them to "
        "shardwise.index()",
        stacklevel=3,
    )


def warn_of_cut_shards(shards: Sequence[str], stacklevel: int) -> None:
    """Warns of shards that may lack samples, because they lack the end of a tar archive."""
    if shards:
        more = f" and {len(shards) - 3} more" if len(shards) > 3 else ""
        warnings.warn(
            "shards without an end-of-archive marker may be truncated between two members: "
            f"{', '.join(map(repr, shards[:3]))}{more}; compare their sizes with the originals",
            stacklevel=stacklevel + 1,
        )


def _warned(report: BuildReport) -> BuildReport:
    warn_of_cut_shards(report.without_end_marker, 3)
    counts = report.without_value.items()
    warn_of_empty([name for name, count in counts if 0 < count == report.num_samples], 3)
    return report


def update(
    path: str | os.PathLike[str],
    *,
    drop_missing: bool = False,
    accept_times: bool = False,
    check_index: bool = False,
    threads: int | None = None,
    progress: Callable[[Progress], object] | None = None,
    cache: _core.ShardCache | None = None,
) -> BuildReport:
    """Brings an index up to date with the sources that it was built from. The options are those of
    index()."""
    report = _core.update(
        path_of(path),
        drop_missing=drop_missing,
        accept_times=accept_times,
        check_index=check_index,
        threads=threads_of(threads),
        progress=progress,
        cache=cache,
    )
    return _warned(report)


def merge(
    output: str | os.PathLike[str],
    *parts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> BuildReport:
    """Joins all parts of an index, given in any order. Raises Mismatch if the parts do not fit
    together.

    index(part=(i, n)), or ``shardwise index --part I/N``, makes the parts on N machines.

    >>> for i in (1, 2):
    ...     part = shardwise.index(f"part-{i}.idx", "train-{000000..000003}.tar", part=(i, 2))
    >>> shardwise.merge("whole.idx", "part-2.idx", "part-1.idx").num_samples
    400
    """
    return _warned(_core.merge(path_of(output), paths_of(parts)))


def verify(
    path: str | os.PathLike[str],
    *,
    full: bool = False,
    threads: int | None = None,
    progress: Callable[[Progress], object] | None = None,
    cache: _core.ShardCache | None = None,
) -> list[Finding]:
    """Checks every shard against the index and returns the differences, by shard; empty if there
    are no differences. The text of a shard that could not be read begins with "not verified: ".

    full: compare every byte with the hashes that the index was built with.
    threads: number of threads. 0 means the calling thread only. None means one per core, or up to
        16 for remote shards.
    progress, cache: as for index().

    >>> shardwise.verify("train.idx")
    []
    """
    from .records import Finding

    found = _core.verify(
        path_of(path), full=full, threads=threads_of(threads), progress=progress, cache=cache
    )
    return [Finding(*finding) for finding in found]


def query(path: str | os.PathLike[str], sql: str) -> Rows:
    """The rows of an SQL SELECT over an index. Its tables are samples, members, shards, fields and
    skipped.

    >>> shardwise.query("train.idx", "SELECT cls, count(*) FROM samples GROUP BY cls").rows[:2]
    [(0, 40), (1, 40)]
    """
    from .records import Rows

    return Rows(*_core.query(path_of(path), sql))


def plan(
    data: _core.Dataset,
    order: _core.Order | None = None,
    *,
    nodes: int,
    cache_bytes: int,
    world_size: int,
    batch_size: int = 1,
    epochs: int = 3,
    first_epoch: int = 0,
) -> FetchPlan:
    """Predicts, before a run, what the shard cache of each node will fetch. No shard is read.

    nodes: number of nodes. Each node has an equal block of the world_size ranks, and a cache of
        cache_bytes, which is empty at first.
    epochs: number of epochs to plan, from first_epoch on.

    Raises InvalidArgument (nodes does not divide world_size); Unsupported (the order's future is
    unknown).

    >>> ds = shardwise.open("train.idx")
    >>> plan = shardwise.plan(ds, nodes=2, cache_bytes=1 << 20, world_size=4, epochs=1)
    >>> plan.num_shards, plan.epochs[0].shards
    (4, 4)
    """
    require("data", data, _core.Dataset, "give a shardwise.Dataset")
    return _core.plan(
        data,
        order=order if order is not None else _core.Order(),
        world_size=world_size,
        batch_size=batch_size,
        nodes=nodes,
        cache_bytes=cache_bytes,
        epochs=epochs,
        first_epoch=first_epoch,
    )
