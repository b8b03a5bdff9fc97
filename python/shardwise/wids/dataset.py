"""ShardListDataset: the samples of a list of shards by number."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
import warnings
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .. import _core
from ..arguments import path_of, suggests
from ..errors import InvalidArgument, Mismatch
from ..opening import open as open_dataset
from .decode import default_decoder
from .sample import Sample
from .shards import (
    COMPRESSED,
    CacheLocalname,
    DefaultLocalname,
    RecentShards,
    ShardPlace,
    ShardSamples,
    check_sources,
    default_cache_dir,
    needs_cache,
    own_cache_dir,
    require_own,
    source_of,
)
from .specs import check_shards, is_remote, load_dsdesc_and_resolve, urldir
from .streams import FieldStream

if TYPE_CHECKING:
    import numpy

T_co = TypeVar("T_co", covariant=True)

Transform = Callable[[Any], Any]

_NO_LIMIT = 1 << 62


def interpret_transformations(transformations: Any, allow_pickle: bool = False) -> list[Transform]:
    """Converts "PIL", "numpy", a function, or a list of these into a list of functions."""
    given = transformations if isinstance(transformations, (list, tuple)) else [transformations]
    functions: list[Transform] = []
    for transformation in given:
        if transformation in ("PIL", "numpy"):
            transformation = partial(
                default_decoder, format=transformation, allow_pickle=allow_pickle
            )
        if not callable(transformation):
            raise InvalidArgument(
                f"not valid: transformations={transformation!r}; give 'PIL', 'numpy', a "
                "function, or a list of these"
            )
        functions.append(transformation)
    return functions


def hash_dataset_name(input_string: str) -> str:
    """A name of 16 letters for an unnamed data set."""
    digest = hashlib.sha256(input_string.encode()).digest()
    return base64.urlsafe_b64encode(digest)[:16].decode("ascii")


class _Opening:
    """The options that open a dataset's shards. Pickled with the dataset, which is opened again by
    them."""

    __slots__ = ("allow_pipe", "cache_bytes", "cache_dir", "lru_size")

    def __init__(self, lru_size: int, cache_dir: str, cache_bytes: int, allow_pipe: bool) -> None:
        self.lru_size, self.allow_pipe = lru_size, allow_pipe
        self.cache_dir, self.cache_bytes = cache_dir, cache_bytes

    def open(
        self,
        sources: str | Sequence[str],
        is_cached: bool,
        index_directory: str = "",
        lazily: bool = False,
    ) -> _core.Dataset:
        cache = None
        if is_cached:
            self._make_cache_dir()
            # Use a sub-folder of the wids folder: the shard cache must not touch other files in
            # that folder.
            cache = _core.ShardCache(
                os.path.join(self.cache_dir, "shardwise"),
                self.cache_bytes,
                bypass_large=True,
                allow_pipe=self.allow_pipe,
            )
        return open_dataset(
            sources,
            cache=cache,
            max_open_shards=self.lru_size,
            index_directory=index_directory,
            lazily=lazily,
        )

    def _make_cache_dir(self) -> None:
        os.makedirs(self.cache_dir, mode=0o700, exist_ok=True)
        if self.cache_dir == own_cache_dir():
            require_own(self.cache_dir)

    def open_list(self, shards: list[dict[str, Any]], index_directory: str) -> _core.Dataset:
        """Opens remote shards without an index, trusting their list, which is saved beside the
        cache."""
        kept = ("url", "nsamples", "filesize", "md5sum")
        listed = [{name: shard[name] for name in kept if name in shard} for shard in shards]
        text = json.dumps({"wids_version": 1, "shardlist": listed}, sort_keys=True)
        name = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        folder = os.path.join(self.cache_dir, "shardwise-lists")
        path = os.path.join(folder, name)
        self._make_cache_dir()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        require_own(folder)
        if not _holds(path, text):
            part = f"{path}.{os.getpid()}.{threading.get_ident()}"
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, path)
        return self.open(path, True, index_directory, lazily=True)


class _Joined(NamedTuple):
    """A data set that is joined."""

    path: str
    """Path of the index."""
    is_cached: bool
    """The shards need a cache."""
    suffix: str
    """See Dataset.join()."""


def _holds(path: str, text: str) -> bool:
    """Whether the file exists with this text. After a power loss its text may differ."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() == text
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _can_be_lazy(shards: list[dict[str, Any]], sources: list[str]) -> bool:
    """Whether the list suffices for opening: every shard is remote, uncompressed, and listed
    once."""
    return (
        all(
            is_remote(source)
            and not source.startswith("pipe:")
            and not source.lower().endswith(COMPRESSED)
            and source == shard["url"]
            for source, shard in zip(sources, shards)
        )
        and all("nsamples" in shard for shard in shards)
        and len(set(sources)) == len(sources)
    )


@suggests
class ShardListDataset(Generic[T_co]):
    """The samples of a list of shards, by number: ``dataset[i]`` is a dict, decoded.

    shards: a descriptor (JSON), as a path, a URL or an open stream; or a list of
        ``{"url": ..., "nsamples": ...}``.
    transformations: applied to each sample: "PIL" or "numpy" (see default_decoder()), a function,
        or a list of these; [] leaves the fields as io.BytesIO.
    cache_dir: the folder for remote shards. Its sub-folder "shardwise" is a shard cache that all
        processes of this machine share. By default the folder of localname, WIDS_CACHE, or a folder
        in the temporary one. Local shards are always read in place.
    localname: a function from a URL to a path. If the file exists, it is read instead of the URL.
    cache_size: maximum bytes of cached shards. keep: True removes this limit.
    lru_size: maximum number of open shards. An open shard costs address space, and no descriptor.
    dataset_name: name of a dataset that is given as a list.
    base: folder to which relative URLs refer; by default the descriptor's "base", or else the
        folder of the descriptor. options: values that replace keys of the descriptor.

    Options that wids lacks:

    claims: "check": raises Mismatch if a shard differs from its nsamples or filesize; "believe":
        the first nsamples are taken, as in wids. By default the value of SHARDWISE_WIDS_CLAIMS, or
        "check".
    allow_pickle: decode .pkl and .pt, which are otherwise Unsupported. allow_pipe: run ``pipe:``
        URLs as commands; otherwise they raise InvalidArgument.
    index: an existing index of these shards, made by shardwise.index(). Without it an index is
        built when the shards are first opened, and kept in index_directory
        ($XDG_CACHE_HOME/shardwise).
    join: names of ``datasets`` of the descriptor. Each sample of the other shards gets the
        fields of their sample with the same key. If it has a field already, the added one gets the
        data set's name before the ending: ``.png`` becomes ``.masks.png``.

    A sample's keys are its fields with a leading dot, ``__key__``, ``__index__`` (its number),
    ``__shard__`` (the URL of its shard), ``__shardindex__`` (its number in the shard) and
    ``__dataset__``. A field of 16 KiB or more is an io.BytesIO that copies at the first read.

    Threads: any thread may read; after fork() the child may continue. Pickled, it is a reference to
    the index, with its transformations. Cost: a sample copies the fields that are read.

    Raises InvalidArgument, Mismatch, NotFound, CorruptShard, FetchError, OSError.
    """

    shards: list[dict[str, Any]]

    def __init__(
        self,
        shards: Any,
        *,
        cache_size: int = int(1e12),
        cache_dir: str | os.PathLike[str] | None = None,
        lru_size: int = 4096,
        dataset_name: str | None = None,
        localname: Callable[[str], str] | None = None,
        transformations: Any = "PIL",
        keep: bool = False,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
        claims: str | None = None,
        allow_pickle: bool = False,
        allow_pipe: bool = False,
        index: str | os.PathLike[str] | None = None,
        index_directory: str | os.PathLike[str] = "",
        join: str | Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._take_list(shards, dataset_name, base, options)
        joined = self._take_joined([join] if isinstance(join, str) else list(join))
        self._take_cache(cache_dir, localname)
        self.transformations: list[Transform] = interpret_transformations(
            transformations, allow_pickle
        )
        claims = claims or os.environ.get("SHARDWISE_WIDS_CLAIMS", "check")
        if claims not in ("check", "believe"):
            raise InvalidArgument(f"not valid: claims={claims!r}; choose 'check' or 'believe'")
        if lru_size < 1:
            raise InvalidArgument(f"not valid: lru_size={lru_size}; give at least 1")
        sources = [source_of(shard["url"], localname) for shard in self.shards]
        check_sources(sources, allow_pipe)
        self._opening = _Opening(
            lru_size,
            os.path.abspath(self.cache_dir or self._folder_of_localname()),
            _NO_LIMIT if keep else int(cache_size),
            allow_pipe,
        )
        given = None if index is None else path_of(index)
        directory = path_of(index_directory) if index_directory else ""
        self._joins = self._open_joined(joined, localname, directory)
        data = self._joined(self._open(sources, given, directory, claims == "check"))
        self._places = _places(data, sources, is_own_index=given is None)
        self.lengths: list[int] = _lengths(self.shards, self._places, claims)
        self.total_length = sum(self.lengths)
        self._take_data(data)

    def _open(
        self, sources: list[str], index: str | None, index_directory: str, is_checked: bool
    ) -> _core.Dataset:
        """Opens the shards: by their list alone if it suffices, else by an index. Sets
        _is_cached."""
        self._is_cached = any(needs_cache(source) for source in sources)
        if index is None and is_checked and not self._joins and _can_be_lazy(self.shards, sources):
            return self._opening.open_list(self.shards, index_directory)
        named = list(dict.fromkeys(sources)) if index is None else index
        data = self._opening.open(named, self._is_cached, index_directory)
        if self._is_cached or all(shard.compression == "none" for shard in data.shards):
            return data
        self._is_cached = True  # the shard is compressed, although its name does not say so
        return self._opening.open(data.path, True)

    def _take_joined(self, names: list[str]) -> dict[str, list[dict[str, Any]]]:
        """Takes the shards of these data sets from the list."""
        found = {name: [s for s in self.shards if s.get("dataset") == name] for name in names}
        for name, shards in found.items():
            if not shards:
                known = dict.fromkeys(str(s["dataset"]) for s in self.shards if s.get("dataset"))
                raise InvalidArgument(
                    f"not valid: join={name!r}; the descriptor's datasets have the names "
                    f"{', '.join(map(repr, known)) or '(none)'}"
                )
        self.shards = [shard for shard in self.shards if shard.get("dataset") not in found]
        if not self.shards:
            raise InvalidArgument(
                "join= names every data set of the descriptor; leave out the first, to which the "
                "others are joined"
            )
        return found

    def _open_joined(
        self,
        joined: dict[str, list[dict[str, Any]]],
        localname: Callable[[str], str] | None,
        index_directory: str,
    ) -> list[_Joined]:
        """Builds the indexes of the data sets to join if necessary."""
        opened = []
        for name, shards in joined.items():
            sources = list(dict.fromkeys(source_of(s["url"], localname) for s in shards))
            check_sources(sources, self._opening.allow_pipe)
            is_cached = any(map(needs_cache, sources))
            data = self._opening.open(sources, is_cached, index_directory)
            suffix = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-") or "joined"
            opened.append(_Joined(data.path, is_cached, suffix))
        return opened

    def _joined(self, data: _core.Dataset) -> _core.Dataset:
        """Joins the data sets of ``join`` to this one."""
        for path, is_cached, suffix in self._joins:
            other = self._opening.open(path, is_cached)
            data = data.join(other, how="left", suffix=suffix)
        return data

    def _take_list(
        self,
        shards: Any,
        dataset_name: str | None,
        base: str | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        """Sets base, spec, shards and dataset_name."""
        self.base: str | None = None
        self.spec: dict[str, Any] = dict(options or {})
        if isinstance(shards, (str, os.PathLike)) or hasattr(shards, "read"):
            is_named = not hasattr(shards, "read")
            self.base = base
            self.spec = load_dsdesc_and_resolve(shards, options=options, base=base)
            if base is None and is_named:
                self.base = urldir(os.fspath(shards))
            self.shards = self.spec["shardlist"]
            dataset_name = self.spec.get("name") or dataset_name
        else:
            self.shards = check_shards(shards if isinstance(shards, list) else list(shards))
        if not self.shards:
            raise InvalidArgument("the list of shards is empty; give at least one shard")
        self.dataset_name: str = dataset_name or hash_dataset_name(str(shards))

    def _take_cache(
        self,
        cache_dir: str | os.PathLike[str] | None,
        localname: Callable[[str], str] | None,
    ) -> None:
        """Sets cache_dir and localname, which programs may read."""
        self.cache_dir: str | None = None
        if cache_dir is not None:
            self.cache_dir = path_of(cache_dir)
            self.localname: Callable[[str], str] = CacheLocalname(self.cache_dir)
        elif localname is not None:
            self.localname = localname
        else:
            self.cache_dir = default_cache_dir()
            self.localname = DefaultLocalname(self.cache_dir)

    def _folder_of_localname(self) -> str:
        return os.path.dirname(os.path.abspath(self.localname(self.shards[0]["url"])))

    def _take_data(self, data: _core.Dataset) -> None:
        self.data = data
        urls = [shard["url"] for shard in self.shards]
        names = [shard.get("dataset") for shard in self.shards]
        self._reader = _core.WidsReader(
            data,
            Sample,
            FieldStream,
            [
                (length, place.first, place.num_samples, url, name)
                for length, place, url, name in zip(self.lengths, self._places, urls, names)
            ],
            self._opening.lru_size,
        )
        self.cache = RecentShards(data, self._reader, urls, self._places)

    def __getitem__(self, index: int) -> T_co:
        sample: Any = self._reader[index]
        for transform in self.transformations:
            sample = transform(sample)
        return sample  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.total_length

    @cached_property
    def cum_lengths(self) -> numpy.typing.NDArray[numpy.int64]:
        """The total number of samples up to the end of each shard. Needs NumPy."""
        import numpy

        return numpy.cumsum(self.lengths)

    @property
    def data_info(self) -> str:
        """A one-line description of the data set."""
        num_bytes = sum(shard.get("filesize", 0) for shard in self.shards)
        return (
            f"{self.dataset_name}: {len(self.shards)} shards, {self.total_length} samples, "
            f"{num_bytes} bytes, base {self.base}, cache {self.cache_dir}"
        )

    def add_transform(self, transform: Transform) -> ShardListDataset[T_co]:
        """Appends a function that each sample passes through. Returns the dataset."""
        self.transformations.append(transform)
        return self

    def get_stats(self) -> tuple[int, int]:
        """Samples requested, and those among them whose shard had to be opened."""
        return self._reader.accesses, self._reader.misses

    def check_cache_misses(self) -> None:
        """Warns if, after more than 100 samples, over 30 % of them had to open their shard."""
        accesses, misses = self.get_stats()
        if accesses > 100 and misses > 0.3 * accesses:
            warnings.warn(
                f"{misses} of {accesses} samples had to open their shard; choose a larger "
                "lru_size, or a sampler with smaller chunks",
                stacklevel=2,
            )

    def get_shard(self, index: int) -> tuple[ShardSamples, int, dict[str, Any]]:
        """A sample's shard, its number in the shard, and the shard's entry in the list."""
        number = index + self.total_length if index < 0 else index
        ends = list(accumulate(self.lengths))
        shard = bisect_right(ends, number)
        in_shard = int(number) - (ends[shard - 1] if shard > 0 else 0)
        if not 0 <= number < self.total_length:
            self._reader[index]  # raises the error
        return ShardSamples(self.data, self._places[shard]), in_shard, self.shards[shard]

    def close(self) -> None:
        """Forgets which shards were used. Samples already read stay valid."""
        self.cache.clear()

    def __add__(self, other: Any) -> Any:
        """Returns torch's ConcatDataset of this data set and the other one."""
        from torch.utils.data import ConcatDataset  # type: ignore[import-not-found, unused-ignore]

        return ConcatDataset([self, other])  # type: ignore[list-item, unused-ignore]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_reader", "cache"):
            del state[name]
        state["data"] = (self.data.path, self.data.fingerprint)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        path, fingerprint = state.pop("data")
        self.__dict__.update(state)
        # Open by the list again if the pickled data set was opened by a list, without an index.
        data = self._opening.open(path, self._is_cached, lazily=path.endswith(".json"))
        data = self._joined(data)
        if data.fingerprint != fingerprint:
            raise Mismatch(
                f"the index {path!r} changed since the data set was pickled; create the "
                "ShardListDataset again"
            )
        self._take_data(data)


def _places(data: _core.Dataset, sources: Sequence[str], is_own_index: bool) -> list[ShardPlace]:
    """Returns each source's place in the dataset. Raises Mismatch if the dataset lacks a source."""
    found = {shard.path: shard for shard in data.shards}
    if is_own_index and len(found) == len(set(sources)):
        found = dict(zip(dict.fromkeys(sources), data.shards))  # by position
    places = []
    for source in sources:
        shard = found.get(source)
        if shard is None:
            raise Mismatch(
                f"the index {data.path!r} has no shard {source!r}; give the index of these "
                f"shards. The index has {', '.join(repr(path) for path in list(found)[:3])}"
                + (f" and {len(found) - 3} more" if len(found) > 3 else "")
            )
        places.append(ShardPlace(source, shard.first_sample, shard.num_samples, shard.size_bytes))
    return places


def _lengths(shards: list[dict[str, Any]], places: list[ShardPlace], claims: str) -> list[int]:
    """Returns the number of samples of each shard. Raises Mismatch if a shard differs from its
    entry."""
    lengths = [shard["nsamples"] for shard in shards]
    if claims == "believe":
        return lengths
    for shard, place in zip(shards, places):
        what, said, found = "samples", shard["nsamples"], place.num_samples
        if said == found and isinstance(shard.get("filesize"), int):
            what, said, found = "bytes", shard["filesize"], place.size_bytes
        if said != found:
            raise Mismatch(
                f"the shard {shard['url']!r} has {found} {what}, but the shard list says {said}; "
                "restore the shard, make the list again with `widsindex create`, or give "
                'claims="believe"'
            )
    return lengths


class ShardListDatasetMulti(ShardListDataset[T_co]):
    """One dataset of several descriptors, one after another, as in some forks of wids.

    shards: a list whose entries are descriptors or lists of shards; or a single entry.
    sort_data_inseq: deals the shards to num_replicas runs, each with its part of every descriptor,
        for samplers that give each rank a run of samples.
    The other options are those of ShardListDataset.
    """

    def __init__(
        self,
        shards: Any,
        *,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
        sort_data_inseq: bool = False,
        num_replicas: int | None = None,
        **others: Any,
    ) -> None:
        several = shards if isinstance(shards, (list, tuple)) else [shards]
        if several and isinstance(several[0], dict):
            several = [several]
        lists = [
            check_shards(entry)
            if isinstance(entry, list)
            else load_dsdesc_and_resolve(entry, options=options, base=base)["shardlist"]
            for entry in several
        ]
        if sort_data_inseq:
            if num_replicas is None:
                raise InvalidArgument(
                    "sort_data_inseq needs num_replicas; give num_replicas, the number of ranks"
                )
            lists = [entry[rank::num_replicas] for rank in range(num_replicas) for entry in lists]
        self.num_replicas = num_replicas
        super().__init__([shard for entry in lists for shard in entry], options=options, **others)


__all__ = [
    "ShardListDataset",
    "ShardListDatasetMulti",
    "hash_dataset_name",
    "interpret_transformations",
]
