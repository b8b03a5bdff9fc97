"""Datasets for Grain whose order is a shardwise.Order.

    import shardwise
    from shardwise.grain import OrderedIterDataset, OrderedMapDataset

    ds = shardwise.open("train.idx")
    data = OrderedMapDataset(ds, shardwise.Order(seed=17))[rank::world_size]
    data = data.map(decode).batch(64).to_iter_dataset()

    data = OrderedIterDataset(ds, shardwise.Order(seed=17), rank=rank, world_size=world_size)
    state = iter(data.map(decode)).get_state()    # for any number of ranks

A sample is a dict of ``__key__`` and the bytes of its fields, or the result of ``make`` for its
shardwise.Sample. An order reads chunks of neighbouring samples together; Grain's shuffle() would
read each sample from another place. Importing this module imports grain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import grain  # type: ignore[import-not-found, import-untyped, unused-ignore]

from . import _core
from .arguments import refuse, suggests, whole_number
from .errors import InvalidArgument, Mismatch
from .ranks import present_ranks

Make = Callable[[_core.Sample], Any]


def fields_of(sample: _core.Sample) -> dict[str, Any]:
    """A dict of ``__key__`` and the bytes of the fields."""
    fields = {"__key__": sample.key, **sample.copy()}
    fields["__key__"] = sample.key  # set last: a field may have this name
    return fields


class Source:
    """The samples of a dataset by number, for functions that take an object with length and items,
    e.g. ``grain.MapDataset.source()``. Callable from any thread. A pickle has only a reference to
    the dataset."""

    def __init__(self, data: _core.Dataset, make: Make = fields_of) -> None:
        self.data, self.make = data, make

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, number: Any) -> Any:
        return self.make(self.data[number])

    def __repr__(self) -> str:
        return f"shardwise.grain.Source({self.data.fingerprint})"


class _Samplers(threading.local):
    """The samplers of one thread, by epoch; at most two."""

    def __init__(self) -> None:
        self.kept: dict[int, _core.Sampler] = {}


@suggests
class OrderedMapDataset(grain.MapDataset):  # type: ignore[misc, unused-ignore]
    """Item i is the sample at position i of an order. Finding its number takes O(1).

    len() is the number of samples of an epoch. Later positions belong to the next epochs, so each
    round of ``repeat()`` has another order. ``data[rank::world_size]`` is a rank's part. Callable
    from any thread. A pickle has only a reference to the dataset.
    """

    def __init__(
        self, data: _core.Dataset, order: _core.Order | None = None, make: Make = fields_of
    ) -> None:
        super().__init__()
        self._data, self._make = data, make
        self._order = _core.Order() if order is None else order
        self._size = len(_core.Sampler(data, self._order))
        self._samplers = _Samplers()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        if self._size == 0:
            raise IndexError(
                f"the data set has no samples, so no item exists: item {index!r}; "
                "give a data set with samples"
            )
        epoch, place = divmod(_core.index_of(index), self._size)
        return self._make(self._data[self._sampler(epoch)[place]])

    def _sampler(self, epoch: int) -> _core.Sampler:
        kept = self._samplers.kept
        if epoch not in kept:
            if len(kept) > 1:
                del kept[min(kept)]
            kept[epoch] = _core.Sampler(self._data, self._order)
            kept[epoch].set_epoch(epoch)
        return kept[epoch]

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Raises InvalidArgument: workers with a block of positions each would change the order."""
        raise InvalidArgument(
            "sequential_slice=True would give the workers samples out of order; leave out sequential_slice"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_samplers"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._samplers = _Samplers()

    def __deepcopy__(self, memo: Any) -> OrderedMapDataset:
        return type(self)(self._data, self._order, self._make)

    def __str__(self) -> str:
        return f"OrderedMapDataset({self._order!r})"


@suggests
class OrderedIterDataset(grain.IterDataset):  # type: ignore[misc, unused-ignore]
    """The samples of a rank, epoch after epoch, with a state for any number of ranks.

    rank, world_size: by default those of torch.distributed, or of a launcher; with JAX give
        ``jax.process_index()`` and ``jax.process_count()``.
    epochs: number of epochs; each has another order. None means that there is no end.

    A state of its iterator is valid for any number of ranks if all ranks had taken the same number
    of samples. For the same number of ranks it is always exact. After mp_prefetch(), Grain makes
    the state, which is valid only for the same number of workers. set_state() raises Mismatch if
    the state is of other data or another order.
    """

    def __init__(
        self,
        data: _core.Dataset,
        order: _core.Order | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        epochs: int | None = 1,
        make: Make = fields_of,
    ) -> None:
        super().__init__()
        found = present_ranks()
        self._epochs = None if epochs is None else whole_number("epochs", epochs)
        self._data, self._make = data, make
        self._order = _core.Order() if order is None else order
        self._rank = found[0] if rank is None else rank
        self._world_size = found[1] if world_size is None else world_size
        self._worker = (0, 1)
        self._sampler()  # raises if the rank is invalid

    def _sampler(self, world_size: int | None = None) -> _core.Sampler:
        if world_size is None:
            return _core.Sampler(
                self._data, self._order, rank=self._rank, world_size=self._world_size
            )
        return _core.Sampler(self._data, self._order, world_size=world_size)

    def __iter__(self) -> _Iterator:
        return _Iterator(self)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keeps every sl.step-th sample of the rank; mp_prefetch() calls it in each worker."""
        if sequential_slice:
            raise InvalidArgument(
                "sequential_slice=True would give the workers samples out of order; leave out sequential_slice"
            )
        self._worker = (sl.start, sl.step)

    def __str__(self) -> str:
        return f"OrderedIterDataset({self._order!r})"


class _Iterator(grain.DatasetIterator):  # type: ignore[misc, unused-ignore]
    """Iterates over the samples of a rank. Use it in one thread."""

    def __init__(self, dataset: OrderedIterDataset) -> None:
        super().__init__()
        self._dataset = dataset
        self._sampler = dataset._sampler()
        self._token = ""  # where the epoch was resumed; empty if it was not
        self._taken = 0

    def __next__(self) -> Any:
        first, step = self._dataset._worker
        epochs = self._dataset._epochs
        while epochs is None or self._sampler.epoch < epochs:
            place = first + self._taken * step
            if place < len(self._sampler):
                self._taken += 1
                return self._dataset._make(self._dataset._data[self._sampler[place]])
            if self._sampler.num_samples == 0 or self._sampler.epoch + 1 == epochs:
                break
            self._sampler.set_epoch(self._sampler.epoch + 1)
            self._token, self._taken = "", 0
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        """The iterator's place, as plain values."""
        return {
            "epoch": self._sampler.epoch,
            "token": self._token,
            "taken": self._taken,
            "world_size": self._sampler.world_size,
            "worker": self._dataset._worker[0],
            "workers": self._dataset._worker[1],
            "data": f"{self._sampler.fingerprint} {self._dataset._order!r}",
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at the place of a state. Raises Mismatch."""
        own = self.get_state()
        if not isinstance(state, Mapping) or state.keys() != own.keys():
            refuse("state", state, "give the complete get_state() of an OrderedIterDataset")
        if own["data"] != state["data"]:
            raise Mismatch(
                f"the state is of other data or another order: {state['data']!r}, not "
                f"{own['data']!r}; make the dataset with the data and the order of the state"
            )
        token, taken = str(state["token"]), int(state["taken"])
        workers = (state["worker"], state["workers"]), self._dataset._worker
        if state["world_size"] != own["world_size"] or workers[0] != workers[1]:
            if workers != ((0, 1), (0, 1)):
                raise Mismatch(
                    f"the state is of {state['world_size']} ranks with {state['workers']} "
                    "workers each; continue with as many ranks and workers, or leave out "
                    "mp_prefetch() in both runs"
                )
            before = _begun(self._dataset._sampler(state["world_size"]), state["epoch"], token)
            token, taken = before.token_after_batches(taken, 1), 0
        self._sampler = _begun(self._dataset._sampler(), state["epoch"], token)
        self._token, self._taken = token, taken


def _begun(sampler: _core.Sampler, epoch: int, token: str) -> _core.Sampler:
    """Returns the sampler at the token's position, or at the beginning of the epoch without a
    token."""
    if token:
        sampler.resume(token)
    else:
        sampler.set_epoch(epoch)
    return sampler


__all__ = ["OrderedIterDataset", "OrderedMapDataset", "Source", "fields_of"]
