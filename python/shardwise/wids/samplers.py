"""The samplers of wids, with the order of wids bit for bit.

They keep its faults. With several ranks, the last ranks get fewer samples or none, though all
report the same length, and each rank has the same samples in every epoch. The argument
``exact=True``, or SHARDWISE_WIDS_EXACT=1 in the environment, selects the exact order of shardwise.
Then each sample comes once per epoch over all ranks, the ranks differ by at most one sample, and
len() is exact.

The order is random.Random's, seeded by ``seed + 1289738273 * epoch``.

Their iterators have a state, with the epoch: torchdata's StatefulDataLoader continues exactly.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sized
from itertools import chain, islice
from typing import Any

from .._core import Order, WidsOrder
from .._core import Sampler as _Sampler
from ..errors import InvalidArgument, Mismatch

_EPOCH_STEP = 1289738273
_MAX_SEED = (1 << 64) - 1

Range = tuple[int, int]
"""A range of sample numbers: the first, and one after the last."""


def lengths_to_ranges(lengths: Iterable[int]) -> list[Range]:
    """The range of sample numbers of each shard."""
    ranges = []
    begin = 0
    for length in lengths:
        ranges.append((begin, begin + length))
        begin += length
    return ranges


def iterate_ranges(
    ranges: Iterable[Range],
    rng: random.Random,
    indexshuffle: bool = True,
    shardshuffle: bool = True,
) -> Iterator[int]:
    """Yields the numbers in some ranges: in shuffled order of the ranges, and shuffled within each.

    rng: a freshly seeded random.Random; its state does not change.
    """
    return WidsOrder(
        ranges,
        rng.getstate()[1],
        shuffles_ranges=bool(shardshuffle),
        shuffles_samples=bool(indexshuffle),
    )


def _wants_exact(exact: bool | None) -> bool:
    if exact is None:
        return os.environ.get("SHARDWISE_WIDS_EXACT", "0") not in ("", "0")
    return exact


def _warn_of_large_chunks(dataset: object, ranges: Iterable[Range]) -> None:
    """Warns if a chunk has samples from more shards than can stay open."""
    lengths = getattr(dataset, "lengths", None)
    capacity = getattr(getattr(getattr(dataset, "cache", None), "lru", None), "capacity", None)
    if lengths is None or capacity is None:
        return
    most = 0
    ends = [end for _, end in lengths_to_ranges(lengths)]
    for begin, end in ranges:
        if begin < end:
            most = max(most, bisect_left(ends, end) - bisect_right(ends, begin) + 1)
    if most > capacity:
        warnings.warn(
            f"a chunk of this sampler spans {most} shards, but only {capacity} shards stay open, "
            "so nearly every sample opens a shard; choose a smaller chunksize, or a larger "
            "lru_size",
            stacklevel=3,
        )


class _Epochs:
    """Base of the samplers. Advances its epoch after a complete iteration."""

    seed: Any = 0
    epoch: int = 0
    step_start: int = 0  # numbers that the next pass leaves out

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return _Pass(self)

    def _random(self) -> random.Random:
        return random.Random(self.seed + _EPOCH_STEP * self.epoch)

    def _numbers(self) -> Iterable[int]:
        """Returns the sample numbers of the epoch, in order."""
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        """The options that decide the numbers; a state is valid for the same ones."""
        raise NotImplementedError

    def _end_pass(self) -> None:
        self.epoch += 1


class _Pass(Iterator[int]):
    """A pass of a sampler. It begins at its first number: a program may set the epoch before."""

    def __init__(self, sampler: _Epochs) -> None:
        self._sampler = sampler
        self._numbers: Iterator[int] | None = None
        self._epoch = self._given = 0
        self._is_over = False

    def _begin(self, given: int) -> Iterator[int]:
        self._epoch, self._given = self._sampler.epoch, given
        self._numbers = islice(self._sampler._numbers(), given, None)
        return self._numbers

    def __next__(self) -> int:
        numbers = self._numbers
        if numbers is None:
            numbers = self._begin(self._sampler.step_start)
        number = next(numbers, None)
        if number is not None:
            self._given += 1
            return number
        if not self._is_over:
            self._is_over = True
            self._sampler._end_pass()
        raise StopIteration

    def state_dict(self) -> dict[str, Any]:
        """The place in the pass, for load_state_dict() of an iterator over the same samples."""
        if self._numbers is None:
            self._begin(self._sampler.step_start)
        return {"epoch": self._epoch, "given": self._given, **self._sampler._options()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues the state's epoch, even if the sampler is in another one. Raises Mismatch if
        the sampler has other options."""
        sampler = self._sampler
        for name, ours in sampler._options().items():
            if state_dict.get(name) != ours:
                raise Mismatch(
                    f"the state is of another sampler: {name}={state_dict.get(name)!r}, but this "
                    f"one has {ours!r}; make the sampler with the same options and ranks"
                )
        set_epoch, sampler.epoch = sampler.epoch, state_dict["epoch"]
        numbers = self._begin(state_dict["given"])
        following = list(islice(numbers, 1))
        self._numbers = chain(following, numbers)
        self._is_over = not following
        if self._is_over:  # the state was saved at the end
            sampler._end_pass()
            sampler.epoch = max(sampler.epoch, set_epoch)


class ShardListSampler(_Epochs):
    """Shards in random order, and the samples of each in random order, for one process.

    dataset: a ShardListDataset, or an object with ``lengths``. lengths: the samples of each shard,
    instead. In epoch 0 the shards keep their order, unless shufflefirst. ``ranges``, ``seed``,
    ``shufflefirst`` and ``epoch`` may be changed between epochs.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        lengths: Iterable[int] | None = None,
        seed: int = 0,
        shufflefirst: bool = False,
    ) -> None:
        self.ranges = lengths_to_ranges(dataset.lengths if lengths is None else lengths)
        self.seed = seed
        self.shufflefirst = shufflefirst
        self.epoch = 0

    def _numbers(self) -> Iterable[int]:
        shuffles_shards = self.shufflefirst or self.epoch > 0
        return iterate_ranges(self.ranges, self._random(), shardshuffle=shuffles_shards)

    def _options(self) -> dict[str, Any]:
        return {"seed": self.seed, "samples": len(self), "shufflefirst": self.shufflefirst}

    def __len__(self) -> int:
        return sum(end - begin for begin, end in self.ranges)


ShardedSampler = ShardListSampler


class ChunkedSampler(_Epochs):
    """Chunks of consecutive samples in random order, and the samples of each in random order.

    dataset: an object with a length. num_samples: a number of its samples, or (first, one after the
    last). chunksize: samples per chunk. shuffle=False: in their order. In epoch 0 the chunks keep
    their order, unless shufflefirst. dslength_per_replica: the result of len(). exact: see the
    module.

    ``ranges`` (the chunks), ``seed``, ``shuffle``, ``shufflefirst`` and ``epoch`` may be changed
    between epochs; the epoch advances after a complete walk.
    """

    rank = 0
    num_replicas = 1

    def __init__(
        self,
        dataset: Sized,
        *,
        dslength_per_replica: int = -1,
        num_samples: int | Range | None = None,
        chunksize: int = 2000,
        seed: int = 0,
        shuffle: bool = True,
        shufflefirst: bool = False,
        exact: bool | None = None,
    ) -> None:
        if num_samples is None:
            num_samples = len(dataset)
        first, end = (0, num_samples) if isinstance(num_samples, int) else num_samples
        if chunksize < 1:
            raise InvalidArgument(f"not valid: chunksize={chunksize}; give at least 1")
        length = dslength_per_replica if dslength_per_replica > 0 else end - first
        self.dslength_per_replica = length
        self.ranges = [(i, min(i + chunksize, end)) for i in range(first, end, chunksize)]
        self.chunksize = chunksize
        self.seed = seed
        self.shuffle = shuffle
        self.shufflefirst = shufflefirst
        self.epoch = 0
        self._exact: _Exact | None = None
        if _wants_exact(exact):
            self._exact = _Exact(first, end, 0, 1)
        _warn_of_large_chunks(dataset, self.ranges)

    def _numbers(self) -> Iterable[int]:
        if self._exact is not None:
            return self._exact.numbers(self)
        return iterate_ranges(
            self.ranges,
            self._random(),
            indexshuffle=self.shuffle,
            shardshuffle=self.shuffle and (self.shufflefirst or self.epoch > 0),
        )

    def _options(self) -> dict[str, Any]:
        names = ("seed", "chunksize", "shuffle", "shufflefirst", "rank", "num_replicas")
        options = {name: getattr(self, name) for name in names}
        ends = [self.ranges[0][0], self.ranges[-1][1]] if self.ranges else []
        return {**options, "range": ends, "exact": self._exact is not None}

    def __len__(self) -> int:
        if self._exact is not None:
            return len(self._exact.sampler(self))
        return self.dslength_per_replica


class _Exact:
    """A rank's share of the exact order of some samples."""

    def __init__(self, first: int, end: int, rank: int, world_size: int) -> None:
        self.first, self.end, self.rank, self.world_size = first, end, rank, world_size

    def sampler(self, of: ChunkedSampler) -> _Sampler:
        seed = of.seed & _MAX_SEED
        order = (
            Order("chunked", seed=seed, chunk_size=of.chunksize)
            if of.shuffle
            else Order("sequential", seed=seed)
        )
        return _Sampler(self.end - self.first, order, rank=self.rank, world_size=self.world_size)

    def numbers(self, of: ChunkedSampler) -> Iterator[int]:
        sampler = self.sampler(of)
        sampler.set_epoch(of.epoch)
        if self.first == 0:
            return iter(sampler)
        return (self.first + number for number in sampler)


def _ranks(rank: int | None, num_replicas: int | None, asker: str) -> tuple[int, int]:
    """Returns this rank and the number of ranks: from the arguments, else from torch."""
    if rank is None or num_replicas is None:
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank = distributed.get_rank() if rank is None else rank
            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        elif rank is not None:
            raise InvalidArgument(
                f"{asker}: rank={rank} is given without num_replicas, and torch.distributed is not "
                "initialized; give num_replicas"
            )
        else:
            if num_replicas is None or num_replicas > 1:
                warnings.warn(
                    f"{asker} is called before torch.distributed is initialized, so this process "
                    "reads all samples; initialize torch.distributed before, or give rank and "
                    "num_replicas",
                    stacklevel=3,
                )
            rank, num_replicas = 0, 1
    if not 0 <= rank < num_replicas:
        raise InvalidArgument(
            f"{asker}: rank={rank} does not exist with num_replicas={num_replicas}; give a rank "
            "from 0 to num_replicas - 1"
        )
    return rank, num_replicas


def _warn_of_drop_last(drop_last: bool | None, asker: str) -> None:
    if drop_last is not None:
        warnings.warn(f"{asker} ignores drop_last; leave out drop_last", stacklevel=3)


def DistributedChunkedSampler(
    dataset: Sized,
    *,
    num_replicas: int | None = None,
    num_samples: int | None = None,
    rank: int | None = None,
    shuffle: bool = True,
    shufflefirst: bool = False,
    seed: int = 0,
    drop_last: bool | None = None,
    chunksize: int = 1000000,
    exact: bool | None = None,
) -> ChunkedSampler:
    """A ChunkedSampler for one rank: it gets one run of consecutive samples, the same in every
    epoch.

    rank, num_replicas: by default those of torch.distributed; if it is not initialized, one process
    gets all samples, with a warning. A given rank takes precedence, even 0. exact: see the module;
    ranks then share all samples, and get other samples in each epoch. drop_last is ignored.

    With several ranks, and torch loaded, it is also a torch.utils.data.DistributedSampler, so that
    Lightning does not divide the samples among the ranks a second time.

    Raises InvalidArgument if the rank does not exist.
    """
    _warn_of_drop_last(drop_last, "DistributedChunkedSampler")
    rank, num_replicas = _ranks(rank, num_replicas, "DistributedChunkedSampler")
    num_samples = num_samples or len(dataset)
    block = -(-num_samples // num_replicas)
    first = min(rank * block, num_samples)
    # len() counts the whole data set, as in wids, even if fewer samples are requested.
    length = -(-len(dataset) // num_replicas)
    make = ChunkedSampler
    if num_replicas > 1 and "torch" in sys.modules:
        from .torch_samplers import RankSampler as make
    sampler = make(
        dataset,
        dslength_per_replica=length,
        num_samples=(first, min(first + block, num_samples)),
        chunksize=chunksize,
        seed=seed,
        shuffle=shuffle,
        shufflefirst=shufflefirst,
        exact=False,
    )
    sampler.rank, sampler.num_replicas = rank, num_replicas
    if _wants_exact(exact):
        sampler._exact = _Exact(0, num_samples, rank, num_replicas)
    return sampler


class DistributedRangedSampler(_Epochs):
    """One rank's run of consecutive samples, in order: the sampler of some forks of wids.

    rank, num_replicas: as for DistributedChunkedSampler. All ranks have equally many samples: those
    left over at the end are dropped. set_start(k) skips the first k, once.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        num_samples: int | None = None,
        rank: int | None = None,
        drop_last: bool | None = None,
    ) -> None:
        _warn_of_drop_last(drop_last, "DistributedRangedSampler")
        rank, num_replicas = _ranks(rank, num_replicas, "DistributedRangedSampler")
        num_samples = num_samples or len(dataset)
        self.worker_chunk = num_samples // num_replicas
        self.worker_start = rank * self.worker_chunk
        self.worker_end = self.worker_start + self.worker_chunk
        self.index = range(self.worker_start, self.worker_end)
        self.step_start = 0

    def set_start(self, start: int) -> None:
        """Skips this many samples of the next walk, to continue in the middle."""
        self.step_start = start

    def set_epoch(self, epoch: int) -> None:
        """Accepts the epoch that training loops set; the order is the same in each."""

    def _numbers(self) -> Iterable[int]:
        return self.index

    def _options(self) -> dict[str, Any]:
        return {"range": [self.worker_start, self.worker_end]}

    def _end_pass(self) -> None:
        self.step_start = 0

    def __len__(self) -> int:
        return len(self.index)


__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "DistributedRangedSampler",
    "ShardListSampler",
    "ShardedSampler",
    "iterate_ranges",
    "lengths_to_ranges",
]
