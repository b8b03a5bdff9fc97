"""Which samples a rank has in a step, and where in an epoch a sample comes.

The commands ``shardwise explain`` and ``shardwise when`` give the same answers.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict, Union, Unpack

from . import _core
from .arguments import refuse, suggests, whole_number
from .errors import InvalidArgument, NotFound
from .mixing import MixedDataset

__all__ = ["Delivery", "StepSample", "explain", "when"]


class StepSample(NamedTuple):
    """A sample that a rank has in a step."""

    rank: int
    """The rank, from 0."""
    place: int
    """The sample's place in the batch, from 0."""
    sample: int
    """The sample's number in the data set, or in the mixture."""
    key: Union[str, None]
    """The sample's key; None if the data is only a length."""
    shard: Union[int, None]
    """The shard's number in its data set; None if the data is only a length."""
    url: Union[str, None]
    """The shard's path or URL, without secrets; None if the data is only a length."""
    group: str = ""
    """The key of the batch's group, in batches by group."""


class Delivery(NamedTuple):
    """Where a sample comes. All numbers count from 0."""

    rank: int
    """The rank that gets the sample."""
    step: int
    """The step, counted from where the epoch began or was resumed."""
    place: int
    """The sample's place in the batch."""
    position: int
    """The sample's position in the epoch, over all ranks."""


_Rule = tuple[int, bool, bool]  # of Sampler.batches(); size 0 means: the sampler's own steps


def _part_of(data: Any, number: int) -> tuple[Any, int]:
    """The Dataset that has a sample of the data, and its number there."""
    if not isinstance(data, MixedDataset):
        return data, number
    part = bisect.bisect_right(data.first_samples, number) - 1
    return data.datasets[part], number - data.first_samples[part]


class _Names:
    """Keys and shards of samples."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._shards: dict[int, Any] = {}  # starts and paths, by data set

    def of(self, number: int) -> tuple[Union[str, None], Union[int, None], Union[str, None]]:
        dataset, local = _part_of(self._data, number)
        if not isinstance(dataset, _core.Dataset):
            return None, None, None
        if id(dataset) not in self._shards:
            paths = [_core.without_secrets(shard.path) for shard in dataset.shards]
            self._shards[id(dataset)] = dataset.shard_starts, paths
        starts, paths = self._shards[id(dataset)]
        shard = bisect.bisect_right(starts, local) - 1
        return dataset.sample_keys([local])[0], shard, paths[shard]


def _number_of(data: Any, sample_or_key: Any) -> int:
    """The number of a sample that is named by its number or its key. Raises NotFound."""
    if not isinstance(sample_or_key, str):
        return whole_number("sample_or_key", sample_or_key)
    parts = data.datasets if isinstance(data, MixedDataset) else (data,)
    first = 0
    for part in parts:
        if not isinstance(part, _core.Dataset):
            raise InvalidArgument(
                f"a key can be looked up only in a Dataset: {sample_or_key!r}; give the number "
                "of the sample instead"
            )
        number = part.find_number(sample_or_key)
        if number is not None:
            return first + number
        first += len(part)
    raise NotFound(f"no sample has the key {sample_or_key!r}; choose one of Dataset.sample_keys()")


def step_of(sampler: _core.Sampler, data: Any, step: int, rule: _Rule) -> list[StepSample]:
    """The samples of all ranks in a step of a sampler, or in its list of batches()."""
    names = _Names(data)
    return [
        StepSample(rank, place, sample, *names.of(sample))
        for rank, samples in _core.explain_step(sampler, whole_number("step", step), *rule)
        for place, sample in enumerate(samples)
    ]


def steps_in(batches: list[tuple[int, list[int], str]], data: Any) -> list[StepSample]:
    """The samples of these batches: each has a rank, its samples and its group."""
    names = _Names(data)
    return [
        StepSample(rank, place, sample, *names.of(sample), group)
        for rank, samples, group in batches
        for place, sample in enumerate(samples)
    ]


def deliveries_in(when: Callable[[int], Any], data: Any, sample_or_key: Any) -> list[Delivery]:
    """The deliveries that `when` returns for the number of this sample."""
    return [Delivery(*found) for found in when(_number_of(data, sample_or_key))]


def deliveries_of(
    sampler: _core.Sampler, data: Any, sample_or_key: Any, rule: _Rule
) -> list[Delivery]:
    """All deliveries of a sample, counted from the position at which a sampler begins."""
    number = _number_of(data, sample_or_key)
    return [Delivery(*found) for found in _core.when_sample(sampler, number, *rule)]


def _token_in(state: Any) -> str:
    """The resume token of a state: a token, or a state_dict() with one."""
    token = state.get("token") if isinstance(state, dict) else state
    if not isinstance(token, str):
        refuse("state", state, "give a token, or a state_dict() of a Loader or of an iterator")
    return token


class Place(TypedDict, total=False):
    """The ranks, the batches and the epoch that explain() and when() ask about."""

    batch_size: int
    """Samples per step on each rank; by default 1."""
    global_batch_size: int
    """Samples per step on all ranks together, instead."""
    world_size: int
    """Number of ranks; by default 1."""
    replicas: int
    """Neighbouring ranks that get the same samples; by default 1."""
    epoch: Union[int, None]
    """By default that of the state, or 0."""
    state: Any
    """A token, or a state_dict(): steps count from there."""


def _sampler_at(data: Any, order: Any, place: Place) -> _core.Sampler:
    ranks: Any = dict(place)
    if not ranks.keys() <= Place.__annotations__.keys():
        raise TypeError  # @suggests names the option
    epoch, state = ranks.pop("epoch", None), ranks.pop("state", None)
    sampler = _core.Sampler(data, _core.Order() if order is None else order, **ranks)
    if state is not None:
        sampler.resume(_token_in(state))
    if epoch is not None and epoch != sampler.epoch:
        sampler.set_epoch(whole_number("epoch", epoch))
    return sampler


@suggests
def explain(
    data: Any, order: Union[_core.Order, None] = None, *, step: int, **place: Unpack[Place]
) -> list[StepSample]:
    """The samples that each rank has in one step of an epoch, without reading any of them.

    data, order, batch_size=1, global_batch_size=0, world_size=1, replicas=1: as for a Sampler.
    state: a token, or a state_dict(): steps count from there. epoch: by default that of the state,
        or 0.

    Cost: that of a step. Raises OutOfRange if there is no such step; Mismatch for a state of other
    data or another order.

    >>> order = shardwise.Order("sequential")
    >>> found = shardwise.explain(ds, order, step=2, batch_size=2, world_size=2)
    >>> [(one.rank, one.sample, one.key) for one in found]
    [(0, 8, '000008'), (0, 10, '000010'), (1, 9, '000009'), (1, 11, '000011')]
    """
    return step_of(_sampler_at(data, order, place), data, step, (0, False, False))


@suggests
def when(
    data: Any,
    order: Union[_core.Order, None],
    sample_or_key: Any,
    **place: Unpack[Place],
) -> list[Delivery]:
    """Where a sample comes in an epoch: normally once; never if a tail or a skip list leaves it
    out, or if it came before the state; several times only with padding, replicas, or in a mix().

    sample_or_key: the sample's number, or its key. Other arguments: those of explain().

    Raises InvalidArgument for draws with replacement; NotFound for an unknown key; OutOfRange.

    >>> order = shardwise.Order("sequential")
    >>> shardwise.when(ds, order, "000009", batch_size=2, world_size=2)
    [Delivery(rank=1, step=2, place=0, position=9)]
    """
    return deliveries_of(_sampler_at(data, order, place), data, sample_or_key, (0, False, False))
