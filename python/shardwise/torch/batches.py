"""Batches of sample numbers, and the proof of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed
import torch.utils.data

from .. import _core
from ..arguments import suggests
from ..errors import InvalidArgument
from ..explaining import Delivery, StepSample, deliveries_of, step_of
from .samplers import DistributedSampler


@suggests
class BatchSampler(torch.utils.data.BatchSampler):
    """Yields lists of a sampler's numbers, for DataLoader(batch_sampler=...). The lists are made in
    C++; every rank has the same number of lists.

    sampler: a sampler of this module.
    batch_size: numbers per list. The last list may be shorter; with drop_last, it is then left out.
    even: give all ranks the same number of batches, although some may have one sample more: data
        parallel training hangs if one rank has a batch less. If the numbers would differ, ranks
        with fewer batches deliver their last sample in a separate batch; no sample is repeated or
        left out. With drop_last, all ranks stop when one of them has no full batch left.

    Raises InvalidArgument if the sampler is not of this module, or the batches cannot be even: with
    batches of 1, or fewer samples than ranks.
    """

    def __init__(
        self,
        sampler: DistributedSampler,
        batch_size: int,
        drop_last: bool = False,
        even: bool = True,
    ) -> None:
        if not isinstance(sampler, DistributedSampler):
            raise InvalidArgument(
                "a BatchSampler of shardwise.torch needs a sampler of shardwise.torch, not a "
                f"{type(sampler).__name__}; if Lightning replaced the sampler, set "
                "Trainer(use_distributed_sampler=False)"
            )
        super().__init__(sampler, batch_size, drop_last)
        if sampler.batch_size not in (None, batch_size):
            raise InvalidArgument(
                f"the batch sizes differ: the sampler has {sampler.batch_size}, the BatchSampler "
                f"{batch_size}; give batch_size only to the BatchSampler"
            )
        self.sampler: DistributedSampler = sampler
        self.even = even
        if sampler.batch_size is None:
            sampler.batch_size = batch_size
            sampler._forget()

    def _rule(self) -> tuple[int, bool, bool]:
        return self.batch_size, self.drop_last, self.even

    def __iter__(self) -> Iterator[list[int]]:
        """An iterator over lists, with state_dict() and load_state_dict()."""
        lists: Any = self.sampler._begin(lambda core: core.batches(*self._rule()))
        return lists  # type: ignore[no-any-return]

    def __len__(self) -> int:
        """Batches per rank."""
        return self.sampler.core.num_batches(*self._rule())

    def set_epoch(self, epoch: int) -> None:
        """Sets the sampler's epoch."""
        self.sampler.set_epoch(epoch)

    def resume(self, token: str, allow_changes: bool = False) -> None:
        """Resumes the sampler."""
        self.sampler.resume(token, allow_changes)

    def explain(self, step: int) -> list[StepSample]:
        """The samples that each rank has in one batch, counted from where the sampler begins; see
        shardwise.explain()."""
        return step_of(self.sampler.core, self.sampler.dataset, step, self._rule())

    def when(self, sample_or_key: int | str) -> list[Delivery]:
        """Where a sample comes, from where the sampler begins; see shardwise.when()."""
        return deliveries_of(self.sampler.core, self.sampler.dataset, sample_or_key, self._rule())

    def token(self, batches: int) -> str:
        """A resume token for a checkpoint, after this many batches that each rank has trained on;
        see DistributedSampler.token()."""
        return self.sampler.core.token_after_batches(batches, *self._rule())


def prove(sampler: DistributedSampler | BatchSampler, audit: _core.Audit, group: Any = None) -> str:
    """Proves that all ranks together delivered the sampler's epoch: "epoch 3: 20,000 samples, each
    exactly once: proven". Each rank calls it, with the shardwise.Audit of its deliveries. group: a
    process group of torch.distributed, by default all ranks. Raises NotExact, with the samples that
    are missing or came twice."""
    core = sampler.sampler.core if isinstance(sampler, BatchSampler) else sampler.core
    if core.world_size == 1:
        return audit.prove(core)
    words: list[list[int]] = [[] for _ in range(core.world_size)]
    torch.distributed.all_gather_object(words, audit.words(), group=group)
    return audit.prove(core, [sum(column) for column in zip(*words[:: core.replicas], strict=True)])
