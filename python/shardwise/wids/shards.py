"""The shards of a list: where they are read from, and which are kept open."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlparse

from .. import _core
from ..arguments import path_of
from ..errors import InvalidArgument, OutOfRange
from .sample import Sample
from .specs import is_remote, local_path

COMPRESSED = (".tgz", ".gz", ".zst", ".xz", ".bz2", ".lz4")


def own_cache_dir() -> str:
    """The default folder. Other users can guess its name, so require_own() checks it."""
    import tempfile

    return os.path.join(tempfile.gettempdir(), f"_wids_cache_{os.getuid()}")


def isown_cache_dir(folder: str) -> bool:
    """True for the default folder; see own_cache_dir()."""
    return folder == own_cache_dir()


def require_own(folder: str) -> None:
    """Raises InvalidArgument if the folder exists, and its owner is neither this user nor root, or
    others may write to it: they could change the bytes that are read."""
    if not os.path.lexists(folder):
        return
    status = os.lstat(folder)
    is_trusted = status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022
    if not stat.S_ISDIR(status.st_mode) or not is_trusted:
        raise InvalidArgument(
            f"other users can write to the folder for shards: {folder!r}; remove the folder, or "
            "name another folder by cache_dir= or WIDS_CACHE"
        )


def default_cache_dir() -> str:
    """The default folder for remote shards: WIDS_CACHE, else own_cache_dir()."""
    named = os.environ.get("WIDS_CACHE")
    if named:
        return path_of(named)
    require_own(own_cache_dir())
    return own_cache_dir()


class DefaultLocalname:
    """Maps a URL to the path of its local file. Different URLs get different files."""

    def __init__(self, dldir: str | os.PathLike[str] | None = None) -> None:
        self._dldir = path_of(dldir) if dldir is not None else default_cache_dir()

    def __call__(self, shard: str) -> str:
        return os.path.join(self._dldir, quote(shard, safe="+-"))


class CacheLocalname:
    """Maps a URL to the path of its local file, which has the last part of the URL's path as its
    name."""

    def __init__(self, cachedir: str | os.PathLike[str]) -> None:
        self._cachedir = path_of(cachedir)

    def __call__(self, shard: str) -> str:
        return os.path.join(self._cachedir, os.path.basename(urlparse(shard).path))


default_localname = DefaultLocalname
"""The name of DefaultLocalname in the last wids that was part of webdataset."""


class ShardPlace(NamedTuple):
    """The place of a listed shard's samples in the dataset."""

    source: str
    """The path or URL to read."""
    first: int
    """Number of its first sample in the dataset."""
    num_samples: int
    """Number of its listed samples."""
    size_bytes: int
    """Size of the file."""


def source_of(url: str, localname: Callable[[str], str] | None) -> str:
    """The path or URL to read for a shard: the copy that localname names if it exists, else the
    shard."""
    if localname is not None:
        local = os.fspath(localname(url))
        if os.path.exists(local):
            return os.path.abspath(local)
    return url if is_remote(url) else os.path.abspath(local_path(url))


def needs_cache(source: str) -> bool:
    """True if a shard cannot be read in place because it is remote or compressed."""
    return is_remote(source) or source.lower().endswith(COMPRESSED)


def check_sources(sources: list[str], allow_pipe: bool) -> None:
    """Raises InvalidArgument if a shard is a command, or its name is a pattern."""
    for source in sources:
        is_command = source.startswith("pipe:")
        if is_command and not allow_pipe:
            raise InvalidArgument(
                f"the shard {source!r} is a command, and commands are not run; if you wrote the "
                "list yourself, set allow_pipe=True"
            )
        if "{" in source:
            remedy = "put the command into a script" if is_command else "rename the shard"
            raise InvalidArgument(
                f"the shard {source!r} has a brace in its name, which means a pattern; list the "
                f"shards one by one, or {remedy}"
            )


class ShardSamples:
    """The samples of one shard of a dataset, by their number in it: dicts of BytesIO."""

    def __init__(self, data: _core.Dataset, place: ShardPlace) -> None:
        self.path = place.source
        """The path of the shard, or its URL."""
        self._data = data
        self._first, self._size = place.first, place.num_samples

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, idx: int) -> dict[str, Any]:
        number = idx + self._size if idx < 0 else idx
        if not 0 <= number < self._size:
            raise OutOfRange(
                f"no sample {idx} in the shard {self.path!r}; give a number below "
                f"{self._size}, its number of samples"
            )
        found = self._data[self._first + int(number)]
        sample = Sample({"." + name: io.BytesIO(data) for name, data in found.copy().items()})
        sample["__key__"] = found.key
        return sample

    def close(self) -> None:
        """Does nothing: the dataset closes shards."""

    def __repr__(self) -> str:
        return f"<ShardSamples {self.path}>"


class RecentShards(Mapping[str, ShardSamples]):
    """The shards of a dataset that were used last, by URL, the latest at the end. A dataset shows
    it as ``cache`` and ``cache.lru``."""

    def __init__(
        self,
        data: _core.Dataset,
        reader: _core.WidsReader,
        urls: list[str],
        places: list[ShardPlace],
    ) -> None:
        self._data, self._reader, self._urls, self._places = data, reader, urls, places

    @property
    def lru(self) -> RecentShards:
        """This object."""
        return self

    @property
    def capacity(self) -> int:
        """The maximum number of open shards."""
        return self._reader.capacity

    def get_shard(self, url: str) -> ShardSamples:
        """The shard with this URL, used or not. Raises InvalidArgument if the dataset lacks it."""
        if url not in self._urls:
            raise InvalidArgument(
                f"the data set has no shard {url!r}; give the URL of a shard of its list"
            )
        return ShardSamples(self._data, self._places[self._urls.index(url)])

    def __getitem__(self, url: str) -> ShardSamples:
        if url not in self._recent():
            raise KeyError(url)
        return self.get_shard(url)

    def _recent(self) -> dict[str, None]:
        return dict.fromkeys(self._urls[number] for number in self._reader.recent())

    def __iter__(self) -> Iterator[str]:
        return iter(self._recent())

    def __len__(self) -> int:
        return len(self._recent())

    def clear(self) -> None:
        """Forgets which shards were used."""
        self._reader.clear()


__all__ = [
    "CacheLocalname",
    "DefaultLocalname",
    "RecentShards",
    "ShardSamples",
    "default_localname",
]
