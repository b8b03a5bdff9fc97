"""shardwise.Loader: batches of any columns, made by threads."""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _core
from ._core import Batch, Column, Order
from .arguments import refuse, require, suggests, whole_number
from .batching import ByLength, Mixup
from .errors import InvalidArgument, NotExact, Unsupported
from .groups import ByGroup
from .mixing import MixedDataset
from .ranks import Reducer, launched_ranks, require_alone
from .records import Proof
from .stats import Forgiven, LoaderStats

if TYPE_CHECKING:
    from .explaining import Delivery, StepSample
    from .tracing import Trace


class Epoch:
    """One epoch of a loader: its batches, and the proof at its end."""

    def __init__(self, loader: Loader, number: int) -> None:
        self._loader = loader
        self.number = number

    @property
    def steps(self) -> int:
        """Steps left when the epoch began; the same number on all ranks."""
        return self._loader.steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        """Starts or continues the epoch. Raises NotExact if the loader is in another epoch."""
        self._require()
        if self._loader.has_ended:
            raise InvalidArgument(
                f"epoch {self.number} has no more batches; call set_epoch({self.number + 1}) on "
                "the loader, or iterate over loader.epochs()"
            )
        return self._loader._batches()

    def prove(self) -> str:
        """Like Loader.prove(). Raises NotExact if the loader is in another epoch."""
        self._require()
        return self._loader.prove()

    def _require(self) -> None:
        if self._loader.epoch != self.number:
            raise NotExact(
                f"epoch {self.number} cannot continue, because the loader is in epoch "
                f"{self._loader.epoch}; finish and prove each epoch before beginning another"
            )

    def __repr__(self) -> str:
        return f"<shardwise.Epoch {self.number} of {self._loader!r}>"


_OF_A_DATALOADER = {
    "batch_sampler": "order=, and batch_size=, by_length= or by_group=",
    "collate_fn": "columns= (ragged columns need no padding)",
    "drop_last": "order=Order(epoch_size=N), with N divisible by batch_size times the ranks",
    "generator": "order=Order(seed=...)",
    "in_order": "no option, because batches always come in order",
    "multiprocessing_context": "threads= (a loader has no processes)",
    "num_replicas": "ranks=",
    "num_workers": "threads=",
    "persistent_workers": "threads= (they live as long as the loader)",
    "pin_memory": "memory=torch_memory(pinned=True)",
    "prefetch_factor": "prefetch= (batches in flight)",
    "sampler": "order=",
    "seed": "order=Order(seed=...)",
    "shuffle": 'order=Order(seed=...), or order=Order("sequential")',
    "world_size": "ranks=",
    "rank": "ranks=",
    "worker_init_fn": "threads= (a loader has no processes)",
}
"""Options of torch's DataLoader, and the options of a Loader that replace them."""


@suggests
class Loader:
    """Batches of a data set, of any columns, in exact epochs over the ranks of a run.

    >>> from shardwise import columns
    >>> loader = shardwise.Loader(
    ...     shardwise.open("train.idx"),
    ...     columns=[columns.image("jpg"), columns.integer("cls"), columns.text("txt")],
    ...     order=shardwise.Order(seed=17),
    ...     batch_size=64,
    ...     threads=2,
    ... )
    >>> for epoch in loader.epochs(2):
    ...     for batch in epoch:
    ...         images, labels = batch["jpg"], batch["cls"]  # or batch.torch("jpg")
    ...     print(epoch.prove())
    epoch 0: 400 samples, each exactly once: proven
    epoch 1: 400 samples, each exactly once: proven
    >>> images.shape, labels.shape, batch.text("txt")[0]  # of the last batch
    ((16, 3, 12, 16), (16,), 'no. ...')

    Threads write the rows directly into the batches' memory, without the GIL; there are no worker
    processes, and nothing is pickled. The contents of a batch depend on the data, the options, the
    epoch and the ranks, never on the number of threads.

    data: a Dataset, or several of them: mix([...], weights).
    columns: see shardwise.columns; their names differ. order: an Order.
    batch_size: samples per step on each rank. global_batch_size: on all ranks together, instead.
    replicas: neighbouring ranks that get the same batches, as tensor parallel groups need them.
    by_length: a ByLength. by_group: a ByGroup.
    mix: a Mixup.
    threads: threads that make rows ahead. 0 means: the caller makes a batch when it asks for one.
    max_bad: bad samples allowed in a run. They are left out of their batches, the proof expects
        this, and tokens list them. One more raises an error; by default the first does. A run
        that resumes from a state counts anew: the bad samples of the state are left out already.
        An epoch whose samples are all bad raises, and so does a run that begins with 100 bad
        samples on a rank.
    prefetch: maximum batches in flight; 0 means: two per thread, or up to 64 if a batch is made in
        a few microseconds. max_bytes_ahead: no batch is begun while those in flight hold this many
        bytes. max_expanded_bytes: maximum size of an expanded field. fetch_threads: shards fetched
        ahead at the same time into the data set's cache.
    memory: allocates the memory of batches: a function that takes a number of bytes and returns an
        object with data_ptr(), e.g. torch_memory(); by default the C++ library allocates.
    arrays: what ``batch[name]`` and the values of a batch are: "numpy" arrays or "torch" tensors,
        as frameworks expect them that own the loop. Both share the batch's memory.
    ranks: how the ranks of a run agree: ranks.torch_ranks(), or a ranks.Reducer. Every rank gives
        the same data and options, except threads, prefetch, max_bytes_ahead, fetch_threads and
        memory. "auto" means ranks.torch_ranks() if torch.distributed is initialised: then every
        rank has to make the loader. Otherwise it means this process alone; that raises
        InvalidArgument if the process was launched as one of several, becomes one of several before
        the first batch, or is one of several workers of a DataLoader. None means this process alone
        in every case.
    restart: True: each ``iter()``, so each ``for`` loop, restarts the epoch, as evaluation needs.
        False: it continues after a loop that was left early, as training needs, and warns the first
        time. None: True in the order "sequential" until load_state_dict() is called.

    Threads: one thread uses a loader; any thread may call stop(), stats() and summary(). The
    loader's threads stay in the process that made them: a forked child has to make its own loader,
    and the loader's methods raise there. It does not pickle. Leaving a loop early, dropping the
    loader, or ending the interpreter does not hang. Ctrl-C ends waiting for a batch within 0.1 s
    and loses no batch: the loader continues. With threads=0 it then stops, as by stop().

    Raises InvalidArgument, which names the option and the valid values.
    """

    _instead = _OF_A_DATALOADER

    def __init__(
        self,
        data: Union[_core.Dataset, MixedDataset],
        *,
        columns: Sequence[Column],
        order: Order = Order(),
        batch_size: int = 32,
        global_batch_size: int = 0,
        replicas: int = 1,
        by_length: Union[ByLength, None] = None,
        by_group: Union[ByGroup, None] = None,
        mix: Union[Mixup, None] = None,
        threads: int = 2,
        max_bad: int = 0,
        prefetch: int = 0,
        max_bytes_ahead: int = 4 << 30,
        max_expanded_bytes: int = 1 << 30,
        fetch_threads: int = 2,
        memory: Union[Callable[[int], Any], None] = None,
        arrays: str = "numpy",
        ranks: Union[Reducer, str, None] = "auto",
        restart: Union[bool, None] = None,
    ) -> None:
        given = locals()
        numbers = {
            name: whole_number(name, given[name], most)
            for name, (_, most) in _core.Loader.numbers().items()
        }
        is_auto = ranks == "auto"
        if is_auto:
            ranks = launched_ranks()
        self._is_taken_for_alone = is_auto and ranks is None
        require("ranks", ranks, Reducer, "give shardwise.ranks.torch_ranks(), or a Reducer", True)
        require(
            "data",
            data,
            (_core.Dataset, MixedDataset),
            "give a shardwise.Dataset, or several: mix([...])",
        )
        if isinstance(columns, Column) or not isinstance(columns, Sequence):
            raise TypeError(
                'columns= is not a list of columns; give e.g. [shardwise.columns.image("jpg")]'
            )
        require("order", order, Order, 'give a shardwise.Order, e.g. Order("sequential")')
        require("by_length", by_length, ByLength, "give a shardwise.ByLength", True)
        require("by_group", by_group, ByGroup, "give a shardwise.ByGroup", True)
        require("mix", mix, Mixup, "give a shardwise.Mixup", True)
        if memory is not None and not callable(memory):
            refuse("memory", memory, "give a function, e.g. shardwise.torch_memory()")
        if arrays not in ("numpy", "torch"):
            refuse("arrays", arrays, 'give "numpy" or "torch"')
        self._core = _core.Loader(
            data,
            columns=list(columns),
            order=order,
            by_length=by_length,
            by_group=by_group,
            mix=mix,
            memory=memory,
            ranks=ranks,
            gives_torch=arrays == "torch",
            **numbers,
        )
        require("restart", restart, bool, "give True, False or None", True)
        self.data = data
        self._columns, self._order, self._arrays = tuple(columns), order, arrays
        self._step_size = (batch_size, global_batch_size, replicas)
        self._by_length, self._by_group = by_length, by_group
        self._start: Union[tuple[str, bool], None] = None  # arguments of the last restore()
        self._is_at_start = True  # no other epoch was begun since
        self._world_size = ranks.world_size if isinstance(ranks, Reducer) else 1
        self._taken_before = 0
        self._restarts = order.kind == "sequential" if restart is None else restart
        self._goes_on_after_load = restart is None
        self._was_looped = False  # a loop left this epoch before its end
        self._has_warned = False
        self._asked_streams = False
        self._newest_loop = 0
        self._is_stopped = False
        _open_loaders.add(self._core)

    def epochs(self, end: Union[int, None] = None) -> Iterator[Epoch]:
        """The epochs from the current one (0, or where load_state_dict() put it) to ``end``, the
        number of epochs of the whole run, including those before a resume. None means: without end.

        Continues the current epoch, or begins the next one if its end was reached.
        """
        if end is not None:
            end = whole_number("end", end)
        return self._epochs(end)

    def _epochs(self, end: Union[int, None]) -> Iterator[Epoch]:
        number = self.epoch + (1 if self.has_ended else 0)
        while end is None or number < end:
            if number != self.epoch:
                self.set_epoch(number)
            yield Epoch(self, number)
            number += 1

    def __iter__(self) -> Iterator[Batch]:
        """The remaining batches of the current epoch; all of them with ``restart``. If its end was
        reached, the batches of the next epoch: repeated ``for batch in loader`` gives one epoch
        after another."""
        if not self._asked_streams:
            self._asked_streams = True
            warning = self._core.stream_warning()
            if warning is not None:
                warnings.warn(warning, stacklevel=2)
        if self._is_stopped:
            pass  # the loop's first next() raises Cancelled
        elif self.has_ended:
            self.set_epoch(self.epoch + 1)
        elif self._restarts and self._taken > 0:
            self.set_epoch(self.epoch)
        self._newest_loop += 1
        return self._batches(self._newest_loop)

    def __len__(self) -> int:
        """Batches of the current epoch: its steps, plus those taken before a resume."""
        return self._taken_before + self._core.steps

    @property
    def _taken(self) -> int:
        """Number of batches handed out since this epoch began or was resumed."""
        return self._core.steps - self._core.steps_left

    @property
    def _rows_of_step(self) -> int:
        """The number of rows of a full batch of this rank."""
        batch_size, global_batch_size, replicas = self._step_size
        shares = max(self._world_size // replicas, 1)
        return -(-global_batch_size // shares) if global_batch_size else batch_size

    def _batches(self, loop: Union[int, None] = None) -> Iterator[Batch]:
        """Yields batches. loop: the loop's number; None for an Epoch, which continues at the
        loader's position."""
        number = self.epoch
        is_first = loop is not None
        while True:
            if self.epoch != number:
                raise NotExact(
                    f"epoch {number} cannot continue, because the loader is in epoch {self.epoch}; "
                    "finish and prove each epoch before beginning another"
                )
            if loop is not None and self._restarts and loop != self._newest_loop:
                raise NotExact(
                    f"a later loop restarted the epoch: epoch {number}; use one Loader per loop "
                    "for loops that run at the same time"
                )
            if is_first and self._was_looped and not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"this loop continues after the {self._taken} batches that an earlier loop "
                    f"took of epoch {number}; call set_epoch({number}) to restart the epoch, or "
                    "set Loader(restart=True)",
                    stacklevel=2,
                )
            is_first = False
            try:
                batch = self.next()
            except BaseException:
                self._was_looped = False  # after an error, continuing needs no warning
                raise
            if batch is None:
                return
            self._was_looped = True
            yield batch
            del batch  # lets the next batch reuse the memory

    def next(self) -> Union[Batch, None]:
        """The next batch of the epoch, or None at its end. Waits without the GIL.

        Raises BadField, StaleIndex and others, naming shard and key, and exceptions of columns'
        functions. The loader then continues with the next batch, but the epoch cannot be proven any
        more. Raises InvalidArgument if images of one batch differ in size; Cancelled after stop().
        """
        if self._is_taken_for_alone:
            require_alone()
        profiler = sys.modules.get("torch.autograd.profiler")
        if getattr(profiler, "_is_profiler_enabled", False):
            with profiler.record_function("shardwise.Loader.next"):  # type: ignore[union-attr]
                return self._core.next()
        return self._core.next()

    def set_epoch(self, epoch: int) -> None:
        """Moves to the beginning of an epoch and drops batches made ahead. If it is the current
        epoch, and its end was not reached, moves back to where the loader began: to the place of
        load_state_dict(), if that was called. So ``for epoch in range(loader.epoch, n)`` may call
        it."""
        keeps_place = epoch == self.epoch and not self.has_ended
        self._core.set_epoch(whole_number("epoch", epoch))
        self._was_looped = self._is_stopped = False
        if not keeps_place:
            self._taken_before = 0
            self._is_at_start = False

    def start(self) -> None:
        """Starts to read ahead now, instead of at the first next()."""
        self._core.start()

    def stop(self) -> None:
        """Ends a waiting next(), and all later ones, with Cancelled, until set_epoch() or
        load_state_dict(). Callable from any thread, and on a closed loader. state_dict() then
        describes the place after the last batch given out."""
        self._is_stopped = True
        self._core.stop()

    def close(self) -> None:
        """Ends the threads and frees batches made ahead; the loader cannot be used afterwards.
        Batches given out remain valid. Raises Unsupported if another thread is in a call."""
        if self._core.is_closed:
            return
        self._core.stop()
        if not self._core.close():
            raise Unsupported(
                "the loader cannot be closed while another call uses the loader; call close() "
                "after the other call has returned"
            )

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trace(self, path: Union[str, os.PathLike[str]]) -> Trace:
        """A ``with`` block whose time line is written to a file, in Chrome's trace format: waits
        for batches, and planning, loading and collating of batches by each thread. chrome://tracing
        and Perfetto show it. It keeps the last 100,000 events. ``shardwise epoch --trace`` writes
        the same.

        torch.profiler marks each next() as "shardwise.Loader.next"."""
        from .tracing import Trace

        return Trace(self._core, path)

    def prove(self) -> str:
        """Proves, with all ranks, that their batches of this epoch held exactly the samples that
        the order promises: "epoch 3: 20,000 samples, each exactly once: proven".

        Every rank calls it, after its last batch. Raises NotExact, on all ranks, which names what
        is missing or came twice; Mismatch, on all ranks, which names differences in their data,
        options, epoch or beginning; BadField if all ranks together found more than max_bad bad
        samples.
        Cost: one small all-reduce.
        """
        return Proof(self._core.prove())

    def state_dict(self) -> dict[str, Any]:
        """The place of the run after the batches given out, for load_state_dict() on any number of
        ranks. Batches made ahead do not count. Call it when the last batch given out has been used.

        Every rank calls it and gets the same result; save one rank's. At the end of an epoch it
        proves the epoch, and the state is the beginning of the next. If the last next() raised,
        e.g. from a column's function, the state precedes the batch that could not be made.

        At the end of an epoch it raises what prove() raises. It also raises Mismatch, on all ranks,
        if ranks took different numbers of steps, and NotExact if batches followed one that could
        not be made.
        Cost: one small all-reduce.
        """
        done = self._core.steps_done
        taken = self._taken_before + done if done < self._core.steps else 0
        return {"token": self._core.state(), "batches": taken}

    def load_state_dict(self, state_dict: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Continues where state_dict() was called, with any number of ranks, batch size and
        threads. With by_length or by_group, within an epoch, the rule and the batch sizes must be
        the same.

        allow_changes: accepts other weights of a mix() from here on; each data set continues where
        it was. At the beginning of an epoch, accepts also other data or another order, unless that
        would lose the rest of unfinished passes. Raises Mismatch, naming all that differs; the
        loader then stays unchanged.
        """
        token, taken = _parts_of_state(state_dict)
        is_within = self._core.restore(token, allow_changes)
        self._start, self._is_at_start = (token, allow_changes), True
        self._was_looped = self._is_stopped = False
        if self._goes_on_after_load:
            self._restarts = False
        self._taken_before = taken if is_within else 0

    def _sampler(self) -> _core.Sampler:
        """A sampler of this loader's epoch, at the position at which the loader began."""
        batch_size, global_batch_size, replicas = self._step_size
        sampler = _core.Sampler(
            self.data,
            self._order,
            world_size=self._world_size,
            batch_size=batch_size,
            global_batch_size=global_batch_size,
            replicas=replicas,
        )
        if self._start is not None:
            sampler.resume(*self._start)
        if sampler.epoch != self.epoch:
            sampler.set_epoch(self.epoch)
        if not self._is_at_start:
            sampler.reset()
        return sampler

    def explain(self, step: int) -> list[StepSample]:
        """The samples that each rank has in a step of this epoch, before bad ones are left out; see
        shardwise.explain(). Steps count from where the loader began: the beginning of the epoch, or
        the place of load_state_dict(). Raises OutOfRange."""
        from .explaining import step_of, steps_in

        if self._by_length is not None or self._by_group is not None:
            return steps_in(self._core.explain(whole_number("step", step)), self.data)
        return step_of(self._sampler(), self.data, step, (0, False, False))

    def when(self, sample_or_key: Union[int, str]) -> list[Delivery]:
        """Where a sample comes in this epoch; see shardwise.when() and explain(). With by_length or
        by_group, this plans all batches from there on."""
        from .explaining import deliveries_in, deliveries_of

        if self._by_length is not None or self._by_group is not None:
            return deliveries_in(self._core.when, self.data, sample_or_key)
        return deliveries_of(self._sampler(), self.data, sample_or_key, (0, False, False))

    @property
    def bad_samples(self) -> dict[int, str]:
        """Numbers of the bad samples that all ranks left out, with the reasons; updated by prove()
        and state_dict(). After load_state_dict() they include those of the state."""
        return self._core.bad_samples()

    @property
    def epoch(self) -> int:
        """The number of the current epoch."""
        return self._core.epoch

    @property
    def steps(self) -> int:
        """Steps of the current epoch since it began or was resumed; the same on all ranks."""
        return self._core.steps

    @property
    def steps_left(self) -> int:
        """Remaining steps of the current epoch."""
        return self._core.steps_left

    @property
    def has_ended(self) -> bool:
        """Whether all steps of the current epoch were taken."""
        return self._core.has_ended

    def cache_warning(self) -> Union[str, None]:
        """A warning for the user if the order uses more shards at one time than the data set's
        cache can hold, else None."""
        return self._core.cache_warning()

    def stats(self) -> LoaderStats:
        """Work of the run so far, and where its time went. Callable from any thread."""
        values = self._core.stats()
        values["forgiven"] = [Forgiven(*kind) for kind in values["forgiven"]]
        return LoaderStats(**values)

    def summary(self) -> str:
        """One line: what limits the run, and what to try. Callable from any thread."""
        return self._core.summary()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a shardwise.Loader cannot be pickled; pickle its data set and its state_dict(), and "
            "make a loader in the other process"
        )

    if not TYPE_CHECKING:  # type checkers must not see __getattr__: they would accept every name

        def __getattr__(self, name: str) -> Any:
            if name in ("dataset", "sampler", "batch_sampler"):
                raise AttributeError(
                    f"a shardwise.Loader has no {name!r}, because it is not a DataLoader; do not "
                    "call prepare_data_loader() or skip_first_batches(): it knows its ranks, and "
                    "load_state_dict() resumes it"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        batch_size, global_batch_size, _ = self._step_size
        size = f"{global_batch_size} over all ranks" if global_batch_size else str(batch_size)
        if self._by_length is not None:
            size += f" {self._by_length!r}"
        if self._by_group is not None:
            size += f" {self._by_group!r}"
        columns = ", ".join(f"{column.name!r} {column.dtype}" for column in self._columns)
        return (
            f"<shardwise.Loader: columns {columns}, batches of {size}, {self._order!r}, over "
            f"{self.data!r}>"
        )


_MOST_BATCHES = 2**62  # an epoch has fewer batches than this


def _parts_of_state(state_dict: Any) -> tuple[str, int]:
    """Returns a state's token, and the number of batches taken of its epoch. Raises
    InvalidArgument."""
    token = state_dict.get("token") if isinstance(state_dict, dict) else None
    taken = state_dict.get("batches", 0) if isinstance(state_dict, dict) else None
    if not isinstance(token, str) or not isinstance(taken, int) or not 0 <= taken <= _MOST_BATCHES:
        refuse("state_dict", state_dict, "give the complete state_dict() of a Loader")
    return token, taken


_open_loaders: weakref.WeakSet[_core.Loader] = weakref.WeakSet()


def _close_all() -> None:
    """Ends the threads of all loaders at exit, while they can still get the GIL."""
    left = list(_open_loaders)
    for loader in left:
        if not loader.is_closed:
            loader.stop()
    deadline = time.monotonic() + 5
    for loader in left:
        while not loader.close() and time.monotonic() < deadline:
            time.sleep(0.001)  # wait until another thread has left next()
    _core.Loader.wait_for_dropped()


atexit.register(_close_all)
# The loaders' threads do not exist in a forked child.
os.register_at_fork(after_in_child=_open_loaders.clear)
