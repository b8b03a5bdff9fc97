"""Lists shards, selects from the lists, and opens the shards."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any
from urllib.parse import urlparse

from .. import _core
from ..braces import expand_braces
from ..building import index as build_index
from ..errors import InvalidArgument, Unsupported
from ..mixing import MixedDataset
from ..opening import open as open_dataset
from ..wids.shards import needs_cache, require_own
from .base import Items, base_seed_of_worker, pytorch_worker_info

_BUDGET_BYTES = 64 << 30
MAX_URLS = 1_000_000


def _named(found: re.Match[str]) -> str:
    name = f"WDS_{found[1]}"
    if name not in os.environ:
        raise InvalidArgument(
            f"a URL contains ${{{found[1]}}}, but the environment variable {name} is not set; "
            f"set {name}"
        )
    return os.environ[name]


def expand_urls(urls: str) -> list[str]:
    """The URLs of a text: several with ``::`` between them, with braces, and with ``${x}`` for the
    environment variable WDS_x."""
    expanded = []
    for url in urls.split("::"):
        expanded.extend(expand_braces(re.sub(r"\$\{(\w+)\}", _named, url)))
    return expanded


def urls_of(urls: Any) -> list[str]:
    """Returns the shards' URLs from the argument of WebDataset(). Raises InvalidArgument,
    Unsupported."""
    if isinstance(urls, os.PathLike):
        urls = os.fspath(urls)
    if isinstance(urls, dict) or (isinstance(urls, str) and urls.endswith((".yaml", ".yml"))):
        raise Unsupported(
            "YAML lists of data sets are not supported; use wds.RandomMix([...]) or "
            "shardwise.mix([...], weights)"
        )
    if isinstance(urls, str):
        if urlparse(urls).path.endswith("/"):
            return _shards_in(urls)
        listed = expand_urls(urls)
    elif isinstance(urls, Iterable) and not isinstance(urls, bytes):
        listed = [os.fspath(url) for url in urls]
    else:
        raise InvalidArgument(
            f"the shards of a WebDataset are {urls!r:.60}; give a str or a list of str"
        )
    if not listed:
        raise InvalidArgument("the list of URLs is empty; give a WebDataset at least one shard")
    return listed


def _shards_in(folder: str) -> list[str]:
    if "://" in folder and not folder.startswith("file:"):
        raise Unsupported(
            f"a remote folder cannot be listed: {folder!r}; give the URLs of the shards"
        )
    path = urlparse(folder).path
    names = sorted(name for name in os.listdir(path) if name.endswith((".tar", ".tgz", ".tar.gz")))
    if not names:
        raise InvalidArgument(f"the folder has no shard: {folder!r}; check the path")
    return [os.path.join(path, name) for name in names]


class SimpleShardList(Items):
    """The shards of a pipeline, as they are listed; with ``seed`` they are shuffled in each
    pass."""

    def __init__(self, urls: Any, seed: int | bool | None = None) -> None:
        super().__init__()
        self.urls = urls_of(urls)
        self.seed = seed

    def __len__(self) -> int:
        return len(self.urls)

    def __iter__(self) -> Iterator[dict[str, str]]:
        urls = list(self.urls)
        if self.seed is not None:
            random.Random(self.seed).shuffle(urls)
        for url in urls:
            yield {"url": url}


class ResampledShards(Items):
    """Draws from a list of shards with replacement, without end.

    Each rank, worker and pass has its own draws. The draws follow from seed
    and from torch's base seed, which torch.manual_seed() fixes. With deterministic=True they follow
    from seed alone.
    """

    def __init__(
        self,
        urls: Any,
        nshards: int | None = None,
        seed: int = 0,
        worker_seed: Callable[[], int] | None = None,
        deterministic: bool = False,
        max_urls: int = MAX_URLS,
        empty_check: bool = True,
    ) -> None:
        super().__init__()
        if nshards is not None or worker_seed is not None:
            raise Unsupported(
                "ResampledShards has no nshards and no worker_seed, because each rank and "
                "worker draws endlessly; leave out both, and limit a pass by "
                ".with_epoch(samples)"
            )
        self.urls = urls_of(urls)
        self.seed, self.deterministic = seed, deterministic
        self._passes = 0

    def __iter__(self) -> Iterator[dict[str, str]]:
        rank, _, worker, _ = pytorch_worker_info()
        base = 0 if self.deterministic else base_seed_of_worker()
        rng = random.Random(f"{self.seed} {self._passes} {rank} {worker} {base}")
        self._passes += 1
        while True:
            yield {"url": rng.choice(self.urls)}


def split_by_node(src: Iterable[Any], group: Any = None) -> Iterator[Any]:
    """For nodesplitter=, or as a stage: gives each sample of a pass to one rank. Called with an
    iterator, yields every world_size-th item, beginning with item ``rank``."""
    rank, world_size, _, _ = pytorch_worker_info(group)
    yield from islice(src, rank, None, world_size)


def split_by_worker(src: Iterable[Any]) -> Iterator[Any]:
    """For workersplitter=, or as a stage: gives each sample of a rank to one worker. Called with an
    iterator, yields every num_workers-th item, beginning with item ``worker``."""
    _, _, worker, num_workers = pytorch_worker_info()
    yield from islice(src, worker, None, num_workers)


def single_node_only(src: Iterable[Any], group: Any = None) -> Iterator[Any]:
    """The default of nodesplitter=. With several ranks, it equals split_by_node()."""
    yield from split_by_node(src, group)


def non_empty(src: Iterable[Any]) -> Iterator[Any]:
    """A stage that raises ValueError if it gets no item."""
    is_empty = True
    for item in src:
        is_empty = False
        yield item
    if is_empty:
        raise ValueError("a stage of the pipeline got no item; check the stages before it")


def shardspec(spec: str) -> SimpleShardList:
    """SimpleShardList(spec)."""
    return SimpleShardList(spec)


def _source_of(url: str) -> str:
    """Returns the source that a URL means. Raises Unsupported for a command if WDS_SECURE is
    set."""
    if url.startswith("pipe:"):
        if os.environ.get("WDS_SECURE", "0") != "0":
            raise Unsupported(
                f"WDS_SECURE is set, so commands are not run: {url!r}; unset WDS_SECURE, or give "
                "the URL of a file"
            )
        return "pipe:sh -c " + shlex.quote(url[len("pipe:") :].strip())
    if url.startswith("file:"):
        return os.path.abspath(urlparse(url).path)
    return url if "://" in url else os.path.abspath(url)


def default_cache_dir() -> str:
    """Returns the folder for shards that cannot be read in place, if no cache_dir is given: one of
    this user in the temporary folder."""
    folder = os.path.join(tempfile.gettempdir(), f"_shardwise_webdataset_{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)  # first: another user cannot make it after the check
    require_own(folder)
    return folder


def _rounds(sources: list[str]) -> list[list[str]]:
    """Returns lists without duplicates: a file that is listed n times is in n of the lists, even
    under several names."""
    rounds: list[dict[Any, str]] = []
    for source in sources:
        file = _identity(source)
        chosen = next((one for one in rounds if file not in one), None)
        if chosen is None:
            rounds.append(chosen := {})
        chosen[file] = source
    return [list(one.values()) for one in rounds]


def _identity(source: str) -> Any:
    try:
        status = os.stat(source)
    except OSError:  # missing or remote
        return source
    return status.st_dev, status.st_ino


def _open_what_is_there(sources: list[str], *, cache: _core.ShardCache | None) -> _core.Dataset:
    """Opens shards. The index omits missing shards and damaged samples."""
    folder = os.path.join(default_cache_dir(), "indexes")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = hashlib.sha256("\n".join(sources).encode()).hexdigest()[:32]
    path = os.path.join(folder, f"{name}.idx")
    build_index(path, sources, on_bad="skip", drop_missing=True, cache=cache)
    return open_dataset(path, cache=cache)


class OpenShards:
    """Opened shards. Has their samples by number, and the URL of each sample's shard, as the caller
    spelled it."""

    def __init__(
        self, urls: list[str], cache_dir: str | None, cache_size: int, is_lenient: bool = False
    ) -> None:
        sources = {url: _source_of(url) for url in dict.fromkeys(urls)}
        for url, source in sources.items():
            if "{" in source and not source.startswith("pipe:"):
                raise InvalidArgument(f"the name of a shard has a brace: {url!r}; rename the shard")
        given = {source: url for url, source in sources.items()}
        cache = None
        if any(needs_cache(source) for source in given):
            cache = self._cache(cache_dir, cache_size)
        rounds = _rounds([sources[url] for url in urls])
        open_one = _open_what_is_there if is_lenient else open_dataset
        datasets: list[_core.Dataset] = [open_one(some, cache=cache) for some in rounds]
        if cache is None and any(s.compression != "none" for d in datasets for s in d.shards):
            # No shard's name showed that it needs a cache.
            cache = self._cache(cache_dir, cache_size)
            datasets = [open_one(some, cache=cache) for some in rounds]
        self.needs_cache = cache is not None
        self.url_of: dict[str, str] = {}
        self.shard_sizes: list[int] = []
        for some, dataset in zip(rounds, datasets, strict=True):
            shards = dataset.shards
            is_whole = len(shards) == len(some)
            for shard, source in zip(shards, some if is_whole else [s.path for s in shards]):
                self.url_of[shard.path] = given.get(source, source)
                self.shard_sizes.append(shard.num_samples)
        self.data: _core.Dataset | MixedDataset | None = None
        if datasets:
            self.data = datasets[0] if len(datasets) == 1 else MixedDataset(datasets)

    @staticmethod
    def _cache(cache_dir: str | None, cache_size: int) -> _core.ShardCache:
        folder = default_cache_dir() if cache_dir is None else cache_dir
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return _core.ShardCache(
            os.path.join(folder, "shardwise"),
            cache_size if cache_size > 0 else _BUDGET_BYTES,
            bypass_large=True,
            allow_pipe=True,
        )

    def samples(self, numbers: list[int]) -> Iterator[_core.Sample]:
        """The samples with these numbers, one after another. After an error, continues with the
        next sample."""
        data = self.data
        assert data is not None
        if isinstance(data, MixedDataset):
            return map(data.__getitem__, numbers)
        return data.samples(numbers)

    def fields_of(self, sample: _core.Sample) -> dict[str, Any]:
        """Returns a sample in the form that pipelines use: a dict with its key, URL and fields."""
        path = sample.shard_path
        own = {"__key__": sample.key, "__url__": self.url_of[path]}
        if path[0] == "/":
            own["__local_path__"] = path
        return {**own, **sample.copy(), **own}  # own entries replace fields of the same names


__all__ = [
    "ResampledShards",
    "SimpleShardList",
    "expand_urls",
    "non_empty",
    "shardspec",
    "single_node_only",
    "split_by_node",
    "split_by_worker",
]
