"""shardwise.open()."""

from __future__ import annotations

import os

from . import _core
from .arguments import columns_of, path_of, suggests, threads_of, whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _absolute(source: str) -> str:
    """Makes a local path absolute. Keeps URLs, lists and standard input."""
    if source == "-" or "://" in source or source.startswith(("pipe:", "file:", "/")):
        return source
    if source.startswith("@"):
        return "@" + os.path.join(os.getcwd(), path_of(source[1:]))
    return os.path.join(os.getcwd(), source)


# Arguments of open() that a reference omits: they do not change which data is opened, or the
# reference applies them afterwards.
_NOT_KEPT = ("cache_bytes", "where", "threads")


def _defaults() -> dict[str, Any]:
    """The options that a reference contains, and their defaults in open()."""
    in_signature: dict[str, Any] = open.__kwdefaults__ or {}
    return {name: value for name, value in in_signature.items() if name not in _NOT_KEPT}


def open_as(
    opening: tuple[Any, ...],
    cache: _core.ShardCache | None = None,
    threads: int | None = None,
    fingerprint: bytes | None = None,
) -> _core.Dataset:
    """Opens the dataset that ``opening`` describes: its sources, and a (name, value) pair for each
    option that differs from its default. If the index is at a URL, and the local copy has this
    fingerprint, the copy is used without asking the server."""
    sources, *given = opening
    options = _defaults() | dict(given)
    named_cache = options.pop("cache")
    if cache is None and named_cache is not None:
        from .caches import cache_at

        cache = cache_at(*named_cache)
    columns = list(options.pop("columns"))
    again = opening if cache is None or named_cache is not None else None
    wanted = fingerprint and (int(fingerprint[:16], 16), int(fingerprint[16:], 16))
    return _core.open_dataset(
        sources,
        cache=cache,
        columns=columns,
        threads=threads,
        fingerprint=wanted,
        opening=again,
        **options,
    )


@suggests
def open(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    cache: str | os.PathLike[str] | _core.ShardCache | None = None,
    cache_bytes: int = 64 << 30,
    access: str = "map",
    where: str | None = None,
    columns: Sequence[str] = (),
    root: str | os.PathLike[str] = "",
    accept_times: bool = False,
    allow_part: bool = False,
    max_open_shards: int = 4096,
    build: bool = True,
    lazily: bool = False,
    index_directory: str | os.PathLike[str] = "",
    offline: bool = False,
    threads: int | None = None,
) -> _core.Dataset:
    """Opens a dataset.

    source: an index that index() made: its path, or its URL, which ends in ".idx". Or shards: a
        directory, a pattern ("train-{000..146}.tar", "*.tar"), a tar, a URL, a wids descriptor
        (.json), "@list.txt", or a list of these. For shards an index is built at first use and kept
        in index_directory ($XDG_CACHE_HOME/shardwise), unless build=False. An index at a URL is
        fetched into the same folder, and again when the server has another version. If the server
        cannot be reached, a warning says so, and the last copy is used.
    offline: for an index at a URL, use this machine's copy, without asking the server.
    cache: a directory for shards that cannot be read in place (remote or compressed), with a budget
        of cache_bytes; or a ShardCache, which also says how URLs are fetched.
    access: "map" (samples are views of mapped shards), "read" (samples hold copies: for shards that
        may change during a run), or "range" (like "read"; of remote shards only the requested
        samples are fetched).
    where: an SQL condition; the dataset is then a view of the samples for which it holds.
    columns: metadata that a newly built index takes from fields: "cls", "json:$.width". Raises
        NotFound if an existing index lacks one of them.
    lazily: for a wids descriptor with remote shards: build no index. The descriptor's nsamples
        number the samples. When a sample of a shard is first requested, the shard is fetched into
        the cache, scanned, and checked against the descriptor. Keys, where(), sizes() and columns
        are then Unsupported.
    root: a folder in which all shards are looked up.
    accept_times: accept copies of shards although their modification times differ.
    allow_part: accept an index that is one part of several.
    max_open_shards: maximum number of mapped shards.
    threads: number of threads that build an index; by default one per core.

    Cost: an index is mapped, so opening does not depend on its size; a shard is opened when it is
    first used. Raises NotFound, CorruptIndex, VersionMismatch, InvalidArgument, and for shards what
    index() raises.

    >>> len(shardwise.open("train.idx")), len(shardwise.open("train.idx", where="cls < 2"))
    (400, 80)
    >>> shardwise.open("train-{000000..000001}.tar", index_directory="kept")
    <shardwise.Dataset: 200 samples of '...', fields 'cls', 'jpg', 'txt'>
    >>> shardwise.open("no-such.idx")
    Traceback (most recent call last):
    ...
    shardwise.errors.NotFound: ...
    """
    sources = [source] if isinstance(source, (str, bytes, os.PathLike)) else source
    paths = [_absolute(path_of(path)) for path in sources]
    named_cache: tuple[Any, ...] | None = None
    if isinstance(cache, _core.ShardCache):
        from .caches import remember

        named_cache = remember(cache)
    elif cache is not None:
        named_cache = (os.path.abspath(path_of(cache)), cache_bytes)
        from .caches import cache_at

        cache = cache_at(*named_cache)
    options = {
        "access": access,
        "cache": named_cache,
        "max_open_shards": whole_number("max_open_shards", max_open_shards),
        "root": os.path.abspath(path_of(root)) if root else "",
        "accept_times": accept_times,
        "allow_part": allow_part,
        "build": build,
        "lazily": lazily,
        "index_directory": os.path.abspath(path_of(index_directory)) if index_directory else "",
        "columns": tuple(columns_of(columns)),
        "offline": offline,
    }
    defaults = _defaults()
    given = ((name, value) for name, value in options.items() if value != defaults[name])
    data = open_as((tuple(paths), *given), cache, threads_of(threads))
    return data if where is None else data.where(where)
