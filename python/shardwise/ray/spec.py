"""The samples that a task reads: each process reconstructs them from a few hundred bytes."""

from __future__ import annotations

import functools
import itertools
import os
import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import ray
from numpy.typing import NDArray

from .. import _core, references
from ..arguments import path_of, refuse
from ..errors import Error, Mismatch

Numbers = NDArray[np.int64]

_VERSION_BYTES = 32


class Reading(NamedTuple):
    """A dataset in the order in which one rank receives it, in one epoch."""

    reference: bytes
    """Reference to the dataset, from reference_of()."""
    order: _core.Order
    """The order."""
    epoch: int
    """The epoch."""
    token: str | None
    """Resume token, or None for the whole epoch."""
    rank: int
    """The rank."""
    world_size: int
    """Number of ranks."""


def reference_of(data: _core.Dataset) -> bytes:
    """The argument of dataset_of(): the dataset's version, and the pickled Dataset, which says
    where its index is, and how a view was made. Raises Unsupported if the dataset cannot be opened
    again."""
    return data.version.encode() + pickle.dumps(data, protocol=5)


@functools.lru_cache(maxsize=4)
def dataset_of(reference: bytes) -> _core.Dataset:
    """The dataset, opened once in a process. Raises NotFound; Mismatch if its index describes a
    shard differently than before."""
    version, pickled = reference[:_VERSION_BYTES].decode(), reference[_VERSION_BYTES:]
    data = pickle.loads(pickled)
    if data.version != version:  # an older version may be open in this process
        references.forget()
        data = pickle.loads(pickled)
    assert isinstance(data, _core.Dataset)
    if data.version != version:
        raise Mismatch(
            f"the index changed since shardwise.ray.read() was called: {data.path!r} describes "
            "shards or metadata differently; call read() again, or copy the same index to all "
            "nodes"
        )
    return data


def _new_sampler(reading: Reading) -> _core.Sampler:
    return _core.Sampler(
        dataset_of(reading.reference),
        reading.order,
        rank=reading.rank,
        world_size=reading.world_size,
    )


@functools.lru_cache(maxsize=16)
def sampler_of(reading: Reading) -> _core.Sampler:
    """The sampler of the rank, at the beginning of the epoch, or at the place of the token."""
    sampler = _new_sampler(reading)
    if reading.token is not None:
        sampler.resume(reading.token)
    if sampler.epoch != reading.epoch:
        sampler.set_epoch(reading.epoch)
    return sampler


def resumed(reading: Reading, token: str) -> Reading:
    """The reading from the token's place on. Raises Mismatch if the token is of other data or
    another order."""
    sampler = _new_sampler(reading)
    sampler.resume(token)
    return reading._replace(epoch=sampler.epoch, token=token)


def numbers_of(reading: Reading, first: int, count: int) -> Numbers:
    """The samples in these slots: sampler[first], sampler[first + 1] ..."""
    walk = iter(sampler_of(reading))
    walk.load_state_dict(walk.state_dict() | {"position": first})
    return np.fromiter(itertools.islice(walk, count), np.int64, count)


def _numbers_in_index(data: _core.Dataset) -> Numbers:
    return np.fromiter(map(data.number_in_index, range(len(data))), np.int64, len(data))


@functools.lru_cache(maxsize=4)
def chosen(reference: bytes, condition: str) -> NDArray[np.bool_]:
    """An array that says, for each sample of the dataset, whether an SQL condition is true. Takes 1
    byte per sample."""
    data = dataset_of(reference)
    found = _numbers_in_index(data.where(condition))
    if data.is_view:
        found = np.searchsorted(_numbers_in_index(data), found)
    mask = np.zeros(len(data), np.bool_)
    mask[found] = True
    return mask


def local_path(name: str, path: str | os.PathLike[str]) -> str:
    """The absolute path of an output. Raises InvalidArgument for a URL, which would become a folder
    on one node."""
    text = path_of(path)
    if "://" in text:
        refuse(name, text, "give a path that all nodes share, not a URL")
    return os.path.abspath(text)


def cluster_cpus() -> int:
    """The CPUs of all nodes. Starts Ray if it is not initialised."""
    if not ray.is_initialized():
        ray.init()
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


@contextmanager
def naming_the_node() -> Iterator[None]:
    """Prefixes errors of shardwise with the name of this node."""
    try:
        yield
    except Error as error:
        raise type(error)(f"on the node {socket.gethostname()}: {error}") from error
