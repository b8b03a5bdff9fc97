"""Which samples a task reads: found again, in every process, from a few hundred bytes."""

from __future__ import annotations

import functools
import itertools
import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import ray
from numpy.typing import NDArray

from .. import _core
from ..errors import Error

Numbers = NDArray[np.int64]


class Reading(NamedTuple):
    """A dataset in the order in which one rank is given it, in one epoch."""

    reference: bytes
    """The pickled Dataset: path and fingerprint of its index, and how a view was made."""
    order: _core.Order
    epoch: int
    token: str | None
    rank: int
    world_size: int


@functools.lru_cache(maxsize=4)
def dataset_of(reference: bytes) -> _core.Dataset:
    """The dataset, opened once in a process. Raises NotFound, Mismatch."""
    data = pickle.loads(reference)
    assert isinstance(data, _core.Dataset)
    return data


@functools.lru_cache(maxsize=16)
def sampler_of(reading: Reading) -> _core.Sampler:
    """The sampler of the rank, where the epoch begins, or where the token stands in it."""
    sampler = _core.Sampler(
        dataset_of(reading.reference),
        reading.order,
        rank=reading.rank,
        world_size=reading.world_size,
    )
    if reading.token is not None:
        sampler.resume(reading.token)
    if sampler.epoch != reading.epoch:
        sampler.set_epoch(reading.epoch)
    return sampler


def numbers_of(reading: Reading, first: int, count: int) -> Numbers:
    """The samples in these slots: what sampler[first], sampler[first + 1] ... are."""
    walk = iter(sampler_of(reading))
    walk.load_state_dict(walk.state_dict() | {"position": first})
    return np.fromiter(itertools.islice(walk, count), np.int64, count)


def _numbers_in_index(data: _core.Dataset) -> Numbers:
    return np.fromiter(map(data.number_in_index, range(len(data))), np.int64, len(data))


@functools.lru_cache(maxsize=4)
def chosen(reference: bytes, condition: str) -> NDArray[np.bool_]:
    """For each sample of the dataset whether a condition of SQL holds. 1 byte a sample."""
    data = dataset_of(reference)
    found = _numbers_in_index(data.where(condition))
    if data.is_view:
        found = np.searchsorted(_numbers_in_index(data), found)
    mask = np.zeros(len(data), np.bool_)
    mask[found] = True
    return mask


def cluster_cpus() -> int:
    """Of all nodes. Ray begins here, if it has not yet."""
    if not ray.is_initialized():
        ray.init()
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


@contextmanager
def naming_the_node() -> Iterator[None]:
    """Errors of what is raised on a node of the cluster begin with the node's name."""
    try:
        yield
    except Error as error:
        raise type(error)(f"on the node {socket.gethostname()}: {error}") from error


def reference_of(data: _core.Dataset) -> bytes:
    """What dataset_of() takes. Raises Unsupported if the dataset cannot be found again."""
    return pickle.dumps(data, protocol=5)
