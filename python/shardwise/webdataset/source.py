"""Where the samples of a pipeline come from: an order over shards, dealt to ranks and workers.

A rank has the samples that a shardwise.Sampler gives it, cut into blocks of a batch. Worker w of K
has the blocks w, w + K, w + 2K ... of its rank. A DataLoader takes a batch from each worker in
turn, so it yields the batches of the rank in the order of the sampler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import Any, NamedTuple

from .._core import Order, Sampler
from ..arguments import refuse
from ..errors import Error, InvalidArgument, Unsupported
from .base import Items, is_worker, pytorch_worker_info
from .handlers import reraise_exception
from .shards import (
    MAX_URLS,
    OpenShards,
    single_node_only,
    split_by_node,
    split_by_worker,
    urls_of,
)

_LOCAL_CHUNK, _LOCAL_WINDOW, _SHARD_WINDOW = 1000, 64, 8
_READ_AHEAD = 256  # the order is read at least this many sample numbers at a time


class Place(NamedTuple):
    """The progress of a stream. Workers send it to their WebLoader with each item."""

    repetition: int = 0
    """Number of earlier epochs in this pass; above 0 only with repeat() and with_epoch()."""
    left: int = 0
    """Samples taken from the rest of the run before."""
    taken: int = 0
    """Samples taken from this stream's blocks since the epoch began or was resumed."""


class Start(NamedTuple):
    """Where a pass begins. The samples in ``left`` come first."""

    number: int
    """The number of the pass."""
    repetition: int = 0
    """Number of the epoch within the pass."""
    token: str | None = None
    """Resume token within the epoch, or None."""
    left: tuple[int, ...] = ()
    """Samples that come first: those that the run before had not delivered."""
    has_ended: bool = False
    """True if only ``left`` remains of this epoch."""


class Dealing(NamedTuple):
    """The part of an order that one worker of one rank reads."""

    rank: int
    """The rank."""
    world_size: int
    """Number of ranks."""
    worker: int
    """The worker of the rank."""
    num_workers: int
    """Number of workers per rank."""
    block: int
    """Samples per block, that is, per batch."""


def epoch_number(number: int, repetition: int) -> int:
    """The epoch of the order for a pass, and a repetition within it."""
    return number + (repetition << 32)


class ShardSource(Items):
    """The samples of shards, as dicts of ``__key__``, ``__url__`` and the bytes of the fields."""

    def __init__(
        self,
        urls: Any,
        *,
        handler: Callable[[Exception], Any] = reraise_exception,
        resampled: bool = False,
        shardshuffle: Any = None,
        cache_size: int = -1,
        cache_dir: str | None = None,
        nodesplitter: Any = single_node_only,
        workersplitter: Any = split_by_worker,
        select_files: Callable[[str], Any] | None = None,
        empty_check: bool = True,
        seed: int | None = None,
        filters: Iterable[Any] = (),
    ) -> None:
        super().__init__()
        self.urls = urls_of(urls)
        self.handler, self.is_resampled, self.select_files = handler, resampled, select_files
        self.shuffles_shards = bool(shardshuffle)
        self.cache_size = int(os.environ.get("WDS_CACHE_SIZE", cache_size))
        self.cache_dir = os.environ.get("WDS_CACHE", cache_dir)
        if self.cache_dir is not None:
            self.cache_dir = os.path.expanduser(self.cache_dir)
            if not os.path.isdir(self.cache_dir):
                raise InvalidArgument(
                    f"no such folder: cache_dir={self.cache_dir!r}; make the folder"
                )
        if seed is not None and not hasattr(seed, "__index__"):
            refuse("seed", seed, "give a whole number")
        self.empty_check, self.seed = empty_check, seed
        # With a filter of the program, this process reads all samples of the shards that the filter
        # yields.
        self.filters = list(filters)
        self.deals_to_ranks = nodesplitter in (split_by_node, single_node_only)
        self.deals_to_workers = workersplitter is split_by_worker
        for splitter in (nodesplitter, workersplitter):
            if splitter not in (None, False, split_by_node, single_node_only, split_by_worker):
                if not callable(splitter):
                    refuse("a splitter", splitter, "give a function of an iterator, or None")
                self.filters.append(splitter)
        self._opened: OpenShards | None = None
        self._opened_by = 0  # ID of the process that opened the shards
        self._chosen: list[str] = []  # the shards that are open
        # Rank and world size of the process that pickled this object.
        self._ranks: tuple[int, int] | None = None

    @property
    def own_filter(self) -> str | None:
        """The name of the program's filter of shards, or None."""
        return getattr(self.filters[0], "__name__", "a filter of shards") if self.filters else None

    def opened(self) -> OpenShards:
        """The shards, opened in this process; an index is made at the first use."""
        # In a forked worker, a filter may select other shards than in its parent.
        if self._opened is None or (self.filters and self._opened_by != os.getpid()):
            self._choose()
        assert self._opened is not None
        return self._opened

    def begin_pass(self) -> None:
        """Calls the program's filters, which may select other shards in each pass."""
        if self.filters:
            self._choose()

    def _choose(self) -> None:
        chosen: Iterable[Any] = ({"url": url} for url in self.urls)
        for pick in self.filters:
            chosen = pick(iter(chosen))
        urls = [item["url"] for item in islice(chosen, MAX_URLS + 1)]
        if len(urls) > MAX_URLS:
            raise Unsupported(
                f"{self.own_filter} gives more than {MAX_URLS:,} shards, so a pass would have no "
                "end; draw by WebDataset(resampled=True) or wds.ResampledShards"
            )
        if not urls:
            raise InvalidArgument(
                f"{self.own_filter} gave this process no shard; split samples instead of "
                "shards, by nodesplitter=wds.split_by_node and "
                "workersplitter=wds.split_by_worker"
            )
        if self._opened is None or self._opened_by != os.getpid() or urls != self._chosen:
            self._opened, self._opened_by = self._open(urls), os.getpid()
            self._chosen = urls

    def _open(self, urls: list[str]) -> OpenShards:
        """Opens the shards. Unless the handler raises, omits unreadable shards and samples. If it
        ends the pass, the shards end before the first that is not wholly readable."""
        try:
            return OpenShards(urls, self.cache_dir, self.cache_size)
        except (Error, OSError) as error:
            if not self.handler(error):
                whole = list(takewhile(lambda url: self._is_readable(url, False), urls))
                return OpenShards(whole, self.cache_dir, self.cache_size)
        readable = [url for url in urls if self._is_readable(url, True)]
        return OpenShards(readable, self.cache_dir, self.cache_size, is_lenient=True)

    def _is_readable(self, url: str, is_lenient: bool) -> bool:
        try:
            OpenShards([url], self.cache_dir, self.cache_size, is_lenient)
        except (Error, OSError):
            return False
        return True

    def order(self, bufsize: int, seed: int | None) -> Order:
        """Returns an order that shuffles over at least ``bufsize`` samples. 0 means no shuffle."""
        shards = self.opened()
        seed = self.seed if self.seed is not None else seed
        if seed is None:
            seed = int(os.environ.get("WDS_SEED", 0))
        seed %= 1 << 64
        if self.is_resampled:
            return Order("resampled", seed=seed, unit="sample" if bufsize else "shard")
        if not bufsize and not self.shuffles_shards:
            return Order("sequential", seed=seed)
        if not bufsize:
            return Order("sharded", seed=seed, window=1)
        if shards.needs_cache:
            smallest = max(1, min(shards.shard_sizes, default=1))
            return Order("sharded", seed=seed, window=max(_SHARD_WINDOW, -(-bufsize // smallest)))
        window = max(_LOCAL_WINDOW, -(-bufsize // _LOCAL_CHUNK))
        return Order("chunked", seed=seed, chunk_size=_LOCAL_CHUNK, window=window)

    def dealing(self, block: int) -> Dealing:
        """Returns the part of this process."""
        rank, world_size, worker, num_workers = pytorch_worker_info()
        if self._ranks is not None and is_worker():  # a spawned worker has no process group
            rank, world_size = self._ranks
        if not self.deals_to_ranks:
            rank, world_size = 0, 1
        if not self.deals_to_workers:
            worker, num_workers = 0, 1
        return Dealing(rank, world_size, worker, num_workers, block)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """One pass in the order of the shards."""
        order = self.order(0, None)
        return Stream(self, order, self.dealing(1), Start(0)).samples(0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_ranks": pytorch_worker_info()[:2]}


def sampler_of(
    shards: OpenShards, order: Order, start: Start, repetition: int, rank: int, world_size: int
) -> Sampler:
    """The sampler of a rank in an epoch of a pass."""
    sampler = Sampler(shards.data, order, rank=rank, world_size=world_size)
    if repetition == start.repetition and start.token is not None:
        sampler.resume(start.token)
    else:
        sampler.set_epoch(epoch_number(start.number, repetition))
    return sampler


class Stream:
    """The samples that one worker of one rank reads in a pass."""

    def __init__(
        self,
        source: ShardSource,
        order: Order,
        dealing: Dealing,
        start: Start,
        place: Place | None = None,
    ) -> None:
        self.source, self.order, self.dealing, self.start = source, order, dealing, start
        self.shards = source.opened()  # a later pass may have others
        self._begin = Place(start.repetition) if place is None else place
        self._repetition, self._left, self._taken = self._begin

    @property
    def place(self) -> Place:
        """The progress of this stream."""
        return Place(self._repetition, self._left, self._taken)

    def samples(self, again: int) -> Iterator[dict[str, Any]]:
        """Yields this process's samples of one epoch of the pass; ``again`` is the number of the
        epoch within the pass. If resampled, continues with all later epochs."""
        data = self.shards.data
        if data is None:
            return
        if len(data) == 0:
            if self.source.empty_check:
                raise InvalidArgument(
                    "the shards have no samples; check the shards, or give "
                    "WebDataset(empty_check=False)"
                )
            return
        yield from self._epoch(again)
        while self.source.is_resampled and self._has_samples(again + 1):
            again += 1
            yield from self._epoch(again)

    def _has_samples(self, again: int) -> bool:
        """Whether an epoch has a block for this stream. All epochs of resampled shards give the
        same answer."""
        sampler = self._sampler(self._begin.repetition + again)
        return self.dealing.worker * self.dealing.block < len(sampler)

    def _sampler(self, repetition: int) -> Sampler:
        d = self.dealing
        return sampler_of(
            self.shards, self.order, self.start, repetition, d.rank, d.world_size
        )

    def _epoch(self, again: int) -> Iterator[dict[str, Any]]:
        repetition = self._begin.repetition + again
        place = self._begin if again == 0 else Place(repetition)
        self._repetition, self._left, self._taken = place
        shards = self.shards
        select, handler = self.source.select_files, self.source.handler
        for numbers, is_left in self._numbers(repetition):
            samples = shards.samples(numbers)
            for _ in numbers:
                self._left += is_left
                self._taken += not is_left
                try:
                    sample = shards.fields_of(next(samples))
                except (Error, OSError) as error:
                    if handler(error):
                        continue
                    return
                if select is None or _keep_files(sample, select):
                    yield sample

    def _numbers(self, repetition: int) -> Iterator[tuple[list[int], bool]]:
        """Yields lists of sample numbers. The flag of a list is True if an earlier run began the
        pass and left these samples undelivered."""
        if repetition == self.start.repetition:
            own = list(left_of(self.start, self.dealing)[self._left :])
            if own:
                yield own, True
            if self.start.has_ended:
                return
        d = self.dealing
        sampler = self._sampler(repetition)
        size = len(sampler)
        taken = self._taken
        ahead: list[int] = []
        block = taken // d.block
        while True:
            begin = (block * d.num_workers + d.worker) * d.block + taken - block * d.block
            end = min((block * d.num_workers + d.worker + 1) * d.block, size)
            if begin >= size:
                break
            ahead += [sampler[place] for place in range(begin, end)]
            if len(ahead) >= _READ_AHEAD:
                yield ahead, False
                ahead = []
            block += 1
            taken = block * d.block
        if ahead:
            yield ahead, False


def left_of(start: Start, dealing: Dealing) -> tuple[int, ...]:
    """Returns this stream's part of ``start.left``."""
    stream = dealing.rank * dealing.num_workers + dealing.worker
    return start.left[stream :: dealing.world_size * dealing.num_workers]


def _keep_files(sample: dict[str, Any], select: Callable[[str], Any]) -> bool:
    """Drops fields that the file selection excludes. Returns False if no field remains."""
    for field in [name for name in sample if not name.startswith("__")]:
        if not select(f"{sample['__key__']}.{field}"):
            del sample[field]
    return any(not name.startswith("__") for name in sample)


def tarfile_samples(
    src: Iterable[Any],
    handler: Any = reraise_exception,
    select_files: Any = None,
    rename_files: Any = None,
) -> Iterator[Any]:
    """Yields the samples of shards, one shard after another, all read by this process. src: an
    iterator over ``{"url": ...}``."""
    refuse_renaming(rename_files)
    for item in src:
        source = ShardSource(
            [item["url"]],
            handler=handler,
            select_files=select_files,
            nodesplitter=None,
            workersplitter=None,
            empty_check=False,
        )
        yield from source


def refuse_renaming(rename_files: Any) -> None:
    """Raises Unsupported for a function that renames the members of shards."""
    if rename_files is not None:
        raise Unsupported(
            "rename_files is not supported, because keys and fields come from the index; rename "
            "fields by .rename_keys(new=pattern) or .map()"
        )


__all__ = ["Dealing", "Place", "ShardSource", "Start", "Stream"]
