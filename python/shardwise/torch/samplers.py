"""The samplers of shardwise.torch."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import torch.distributed
import torch.utils.data

from .. import _core
from ..arguments import suggests
from ..decoded import source_of
from ..errors import InvalidArgument
from ..explaining import Delivery, StepSample, deliveries_of, step_of
from ..mixing import refuse_hidden_weights
from ..ranks import present_ranks
from .callers import refuse_other_size, refuse_uneven


class RankOptions(TypedDict, total=False):
    """Options of all samplers in this module."""

    rank: int | None
    """This rank."""
    world_size: int | None
    """Number of ranks."""
    replicas: int
    """Neighbouring ranks that get the same samples."""
    batch_size: int | None
    """Batch size of the DataLoader."""
    allow_uneven: bool
    """Allow ranks to have different numbers of batches."""


@suggests
class DistributedSampler(torch.utils.data.DistributedSampler[int]):
    """The sample numbers that one rank delivers in an epoch, in the given order.

    data: a Dataset, or an object with a length, or that length. Orders by shards need a Dataset.
    order: a shardwise.Order.
    rank, world_size: by default those of torch.distributed if it is initialised, else those of
        torchrun, mpirun or srun in the environment, else rank 0 of 1. They are looked up when a
        pass begins, so a sampler may be made before the process group.
    replicas: neighbouring ranks that get the same samples.
    batch_size: batch size of the DataLoader; needed if the order has balance_bytes.
    allow_uneven: allow ranks to have different numbers of batches. With the order's tail "exact",
        some ranks have one sample more than others, and at some batch sizes therefore one batch
        more; data parallel training would then hang. By default, a DataLoader that would make such
        batches gets InvalidArgument. Use BatchSampler, which makes even batches, or set
        allow_uneven if ranks do not wait for each other.

    len() is the exact number of samples of this rank. A pass does not advance the epoch: call
    set_epoch() before each pass. Memory is constant; a step costs about as much as a step of
    range(). A pickled sampler continues at the same epoch. Threads: one.

    Raises InvalidArgument; Distributed if the environment contradicts itself.
    """

    def __init__(
        self,
        data: Any,
        order: _core.Order | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        replicas: int = 1,
        batch_size: int | None = None,
        allow_uneven: bool = False,
    ) -> None:
        data = source_of(data)
        refuse_hidden_weights(data)
        self.dataset = data
        self.order = _core.Order() if order is None else order
        self.batch_size = batch_size
        self.allow_uneven = allow_uneven
        self._given = (rank, world_size, replicas)
        self._epoch = 0
        self._token: str | None = None
        self._allow_changes = False
        self._is_at_token = False
        self._warned = False
        self._asked_cache = False
        self._forget()
        # Makes a sampler now, to raise errors of the options here and not in the first pass. If the
        # rank is not yet known, rank 0 is used for this check.
        self._made((0, replicas) if rank is None or world_size is None else (rank, world_size))

    def _forget(self) -> None:
        """Drops everything that depends on the process or the rank."""
        self._core: _core.Sampler | None = None
        self._place: tuple[int, int] = (0, 1)
        self._last: _core.SamplerIterator | None = None

    def _ranks(self) -> tuple[int, int]:
        rank, world_size, _ = self._given
        if rank is None or world_size is None:
            found = present_ranks()
            rank = found[0] if rank is None else rank
            world_size = found[1] if world_size is None else world_size
        return rank, world_size

    @property
    def core(self) -> _core.Sampler:
        """The shardwise.Sampler of this rank and epoch, as shardwise.Audit takes it."""
        place = self._ranks()
        if self._core is None or place != self._place:
            self._core, self._place = self._made(place), place
        return self._core

    def _made(self, place: tuple[int, int]) -> _core.Sampler:
        made = _core.Sampler(
            self.dataset,
            self.order,
            rank=place[0],
            world_size=place[1],
            replicas=self._given[2],
            batch_size=self.batch_size or 1,
        )
        if self._token is not None:
            made.resume(self._token, self._allow_changes)
        if not self._is_at_token:
            made.set_epoch(self._epoch)
            made.reset()  # needed even if the token is of this epoch
        return made

    def __iter__(self) -> _core.SamplerIterator:
        """An iterator from the beginning. With its state_dict() and load_state_dict(), torchdata's
        StatefulDataLoader continues exactly where this rank stopped."""
        caller = sys._getframe(1).f_locals
        refuse_other_size(self.batch_size, caller)
        numbers = self._begin(iter)
        if not self.allow_uneven:
            refuse_uneven(numbers, caller)
        return numbers

    def _begin(
        self, begin: Callable[[_core.Sampler], _core.SamplerIterator]
    ) -> _core.SamplerIterator:
        core = self.core
        last = self._last
        if last is not None and last.at_end and last.position > 0:
            self._warn_of_second_pass()
        if not self._asked_cache:
            self._asked_cache = True
            self._warn_of_small_cache(core)
        self._last = begin(core)
        return self._last

    def _warn_of_small_cache(self, core: _core.Sampler) -> None:
        if isinstance(self.dataset, _core.Dataset):
            warning = core.cache_warning(self.dataset)
            if warning is not None:
                warnings.warn(warning, stacklevel=4)

    def _warn_of_second_pass(self) -> None:
        if self._warned or (self.order.kind == "sequential" and not self._is_at_token):
            return
        self._warned = True
        what, advice = "it", "before each pass"
        if self._is_at_token:
            what, advice = "the rest after resume()", "with the next epoch"
        warnings.warn(
            f"epoch {self._epoch} was already read, and {what} is now read again in the same "
            f"order; call set_epoch() of the sampler {advice}",
            stacklevel=4,
        )

    def __len__(self) -> int:
        """The number of samples that this rank delivers, from where the sampler begins."""
        return len(self.core)

    def __getitem__(self, index: int) -> int:
        """This rank's sample at this place of the epoch. Raises OutOfRange."""
        return self.core[index]

    def set_epoch(self, epoch: int) -> None:
        """Moves to the beginning of an epoch. If this is the current epoch, the sampler keeps its
        starting point, which resume() may have set; to repeat the whole epoch, set another epoch in
        between. Raises InvalidArgument."""
        if epoch < 0:
            raise InvalidArgument(f"not valid: epoch={epoch}; give a whole number, 0 or more")
        if epoch == self._epoch:
            # A sampler at a token keeps its position, and a second pass warns. A DataLoader with
            # workers reads to the end before it delivers any batch, so the end of a pass is unknown
            # here.
            if not self._is_at_token and self._last is not None and self._last.position > 0:
                self._last = None  # the caller requests the same epoch again
            return
        if self._core is not None:
            self._core.set_epoch(epoch)
        self._epoch = epoch
        self._is_at_token = False
        self._move_fresh_iterator()

    def _move_fresh_iterator(self) -> None:
        """Moves an unused iterator to the sampler's new beginning, where a generator would also
        begin. Lightning makes an iterator before it sets the epoch."""
        if self._last is not None and self._last.position == 0:
            self._last.restart(self.core)
        else:
            self._last = None

    def resume(self, token: str, allow_changes: bool = False) -> None:
        """Continues at a token: the next pass delivers the rest of its epoch.

        token: a result of token(), with any number of ranks and batch size. allow_changes: the
            weights of a mix() may differ from here on; at the beginning of an epoch, also the data
            or the order.
        Raises Mismatch if the token is of other data or another order; VersionMismatch.
        """
        place = self._ranks()
        before = self._token, self._allow_changes, self._is_at_token
        self._token, self._allow_changes, self._is_at_token = token, allow_changes, True
        try:
            core = self._made(place)
        except BaseException:
            self._token, self._allow_changes, self._is_at_token = before
            raise
        self._core, self._place, self._epoch = core, place, core.epoch
        self._move_fresh_iterator()

    def token(self, batches: int, batch_size: int | None = None) -> str:
        """A resume token: one line of text for a checkpoint, the same on all ranks.

        batches: batches that each rank has trained on since the sampler's beginning (of the epoch,
            or where resume() put it). batch_size: of the DataLoader, if the sampler does not know
            it.

        Count batches that were trained on. The sampler's own progress is no checkpoint: a
        DataLoader with workers takes samples long before it delivers them. Raises InvalidArgument.
        """
        size = self.batch_size if batch_size is None else batch_size
        if size is None or (self.batch_size is not None and size != self.batch_size):
            raise InvalidArgument(
                f"the size of the {batches} batches is unknown or contradictory: the sampler has "
                f"batch_size={self.batch_size}, token() got batch_size={batch_size}; give "
                "batch_size to one of them"
            )
        return self.core.token_after_batches(batches, size)

    def explain(self, step: int, batch_size: int | None = None) -> list[StepSample]:
        """The samples that each rank has in one step, counted from where the sampler begins; see
        shardwise.explain(). batch_size: of the DataLoader, if the sampler does not know it."""
        size = self.batch_size or 1 if batch_size is None else batch_size
        return step_of(self.core, self.dataset, step, (size, False, False))

    def when(self, sample_or_key: int | str, batch_size: int | None = None) -> list[Delivery]:
        """Where a sample comes, from where the sampler begins; see shardwise.when()."""
        size = self.batch_size or 1 if batch_size is None else batch_size
        return deliveries_of(self.core, self.dataset, sample_or_key, (size, False, False))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_core", "_place", "_last"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __repr__(self) -> str:
        rank, world_size = self._ranks()
        return (
            f"<shardwise.torch.{type(self).__name__}: {self.order!r}, epoch {self._epoch}, "
            f"rank {rank} of {world_size}>"
        )

    # Properties of torch's DistributedSampler, for programs that read them.

    @property
    def epoch(self) -> int:
        """The epoch of the next pass; setting it is set_epoch()."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This rank, as currently known."""
        return self._ranks()[0]

    @property
    def world_size(self) -> int:
        """The number of ranks, as currently known."""
        return self._ranks()[1]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """The number of ranks; torch's DistributedSampler has this name."""
        return self.world_size

    @property
    def seed(self) -> int:  # type: ignore[override]
        """The order's seed."""
        return self.order.seed

    @property
    def shuffle(self) -> bool:  # type: ignore[override]
        """Whether the order differs between epochs."""
        return self.order.kind != "sequential"

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """Whether the order leaves out samples that do not fill all ranks."""
        return bool(self.order.options["tail"] == "drop")

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Equal to len()."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """The samples of all ranks together, from where the sampler begins."""
        world_size = self.world_size
        cores = (self.core.for_rank(rank) for rank in range(world_size))
        return sum(len(core) for core in cores)


def _order(kind: str, given: dict[str, Any]) -> _core.Order:
    """Makes the order from the arguments of a sampler's constructor, given as its locals()."""
    others = ("self", "data", "ranks", "__class__")
    return _core.Order(kind, **{name: given[name] for name in given if name not in others})


@suggests
class DistributedChunkedSampler(DistributedSampler):
    """Chunks of chunk_size samples in a random order, `window` chunks mixed together: shards are
    read piece by piece, and few are in use at a time. Other options: those of shardwise.Order and
    DistributedSampler."""

    def __init__(
        self,
        data: Any,
        *,
        seed: int = 0,
        chunk_size: int = 1000,
        window: int = 64,
        phase: bool = False,
        streams: int = 1,
        tail: str = "exact",
        balance_bytes: bool = False,
        epoch_size: int = 0,
        skip: Sequence[int] = (),
        **ranks: Unpack[RankOptions],
    ) -> None:
        super().__init__(data, _order("chunked", locals()), **ranks)


ChunkedSampler = DistributedChunkedSampler
"""Another name of the class, for programs with one rank."""


@suggests
class ShardedSampler(DistributedSampler):
    """Whole shards in a random order, `window` shards mixed together. Needs a Dataset."""

    def __init__(
        self,
        data: Any,
        *,
        seed: int = 0,
        window: int = 8,
        streams: int = 1,
        tail: str = "exact",
        balance_bytes: bool = False,
        epoch_size: int = 0,
        skip: Sequence[int] = (),
        **ranks: Unpack[RankOptions],
    ) -> None:
        super().__init__(data, _order("sharded", locals()), **ranks)


@suggests
class SequentialSampler(DistributedSampler):
    """Sample 0, 1, 2 ... dealt out to the ranks, for evaluation. A second pass causes no
    warning."""

    def __init__(
        self,
        data: Any,
        *,
        streams: int = 1,
        tail: str = "exact",
        skip: Sequence[int] = (),
        **ranks: Unpack[RankOptions],
    ) -> None:
        super().__init__(data, _order("sequential", locals()), **ranks)


@suggests
class ResampledSampler(DistributedSampler):
    """Draws with replacement: NOT exact.

    unit: "sample" or "shard". weights: a metadata column with the weight of each sample, or "".
    epoch_size: draws per epoch over all ranks; 0 means as many as there are samples."""

    def __init__(
        self,
        data: Any,
        *,
        seed: int = 0,
        unit: str = "sample",
        weights: str = "",
        tail: str = "exact",
        epoch_size: int = 0,
        **ranks: Unpack[RankOptions],
    ) -> None:
        super().__init__(data, _order("resampled", locals()), **ranks)
