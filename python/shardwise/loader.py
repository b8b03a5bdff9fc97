"""shardwise.Loader: batches of any columns, by threads."""

from __future__ import annotations

import atexit
import difflib
import inspect
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Union

from . import _core
from ._core import Batch, Column, Order
from .arguments import refuse, require, whole_number
from .errors import InvalidArgument, NotExact, Unsupported
from .mixing import MixedDataset
from .ranks import Reducer, launched_ranks, require_alone


class ByLength(NamedTuple):
    """Batches of samples of similar length, so that little of a padded batch is padding.

    The samples of a window of the order are sorted by length and cut into batches, and these are
    shuffled. Each sample still comes exactly once. docs/formats/length-batches.md specifies it.
    """

    field: str = ""
    """A sample's length is the size in bytes of this field, divided by unit and rounded up. "a;b":
    of the first that the sample has."""
    column: str = ""
    """Or the number in this metadata column, rounded up."""
    unit: int = 1
    """Bytes: 4 for the length of an int32 field in tokens."""
    window: int = 8192
    """Positions of the order that are sorted together. A multiple of batch_size wastes least."""
    max_tokens: int = 0
    """0: each batch has batch_size samples. Otherwise as many, batch_size at most, as fit into so
    many tokens when all are padded to the longest. A longer sample comes alone."""
    pack: str = ""
    """A ragged column of integers, a value a token, whose sequences are packed into batch_size rows
    of pack_to tokens. "x_segments" says which sequence of its row a token is of, from 1 (0: none),
    and "x_positions" where in it."""
    pack_to: int = 0
    padding: int = 0
    """The value where there is no token."""


class Mixup(NamedTuple):
    """Mixup and cutmix: each image of a batch is mixed with the one before it, the first with the
    last. The columns "x_lambda", float32 [N], and "x_partner", int64 [N], say how labels follow:
    ``lambda * f(output, label) + (1 - lambda) * f(output, label[partner])``.
    """

    column: str
    """Of images, all of one size; for mixup of uint8 or float32."""
    mixup_alpha: float = 0.0
    """Of Beta(alpha, alpha). 0: no mixup."""
    cutmix_alpha: float = 0.0
    """Likewise; where both are set, half the batches get either."""
    probability: float = 1.0
    """That a batch is mixed at all."""


class Forgiven(NamedTuple):
    """Damage of images that was forgiven, of one kind; see ImageDecoding.strict."""

    kind: str
    images: int
    first_sample: str


class LoaderStats(NamedTuple):
    """What a run did so far, in all its epochs, and where its time went.

    Times are in seconds; those of threads are sums over all of them.
    """

    batches: int
    samples: int
    bad_samples: int
    bytes_made: int
    """Of the arrays of batches."""
    bytes_read: int
    """Of the fields that columns read, also ahead; not those that functions read."""
    planning: float
    opening: float
    """Of shards: fetched, unpacked, mapped, checked."""
    reading: float
    decoding: float
    transforming: float
    functions: float
    """Those of columns, with the waits for the GIL."""
    collating: float
    idle: float
    """Of threads that had nothing to do."""
    elapsed: float
    """Of the consumer, from its first batch in each epoch to the last."""
    waited: float
    """Of that, for batches."""
    batches_ready: int
    """That were not waited for."""
    mean_ready: float
    """Batches that were made when one was asked for."""
    sample_times: list[int]
    """Samples by the time that they took: [0] less than 1 us, [k] 2^(k - 1) us to 2^k us."""
    slowest_time: float
    slowest_sample: str
    forgiven: list[Forgiven]
    threads: int
    fetch_threads: int
    prefetch: int
    cores: int
    """That this process may use."""


class Epoch:
    """One epoch of a loader: its batches, and at its end the proof."""

    def __init__(self, loader: Loader, number: int) -> None:
        self._loader = loader
        self.number = number

    @property
    def steps(self) -> int:
        """Steps that were left when it began, the same number on all ranks."""
        return self._loader.steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Batch]:
        """Starts, or goes on with, the epoch. Raises NotExact if the loader has moved on."""
        self._require()
        if self._loader.has_ended:
            raise InvalidArgument(
                f"the end of the epoch was reached: epoch {self.number}; call "
                f"set_epoch({self.number + 1}) on the loader to go on, or walk through its epochs()"
            )
        return self._loader._batches()

    def prove(self) -> str:
        """As Loader.prove(). Raises NotExact, too, if the loader has moved on."""
        self._require()
        return self._loader.prove()

    def _require(self) -> None:
        if self._loader.epoch != self.number:
            raise NotExact(
                f"the loader has moved on: epoch {self.number}; walk through an epoch, and prove "
                "it, before the next one begins"
            )

    def __repr__(self) -> str:
        return f"<shardwise.Epoch {self.number} of {self._loader!r}>"


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

    Threads make the rows straight in the batches' memory, without the GIL; there are no worker
    processes, and nothing is pickled. What a batch holds depends on the data, the options, the
    epoch and the ranks, never on the number of threads.

    data: a Dataset, or several of them: mix([...], weights).
    columns: see shardwise.columns; their names differ. order: an Order.
    batch_size: samples a step on each rank; global_batch_size: on all ranks together, instead.
    replicas: neighbouring ranks that get the same batches, as tensor parallel groups need them.
    by_length: a ByLength. mix: a Mixup.
    threads: that make rows ahead; 0: the work is done when a batch is asked for.
    max_bad: samples that may turn out bad in a run: they are left out of their batches, the proof
        expects it, and tokens list them. One more is an error, as is the first by default; and an
        epoch whose samples are all bad, or a run that begins with 100 on a rank.
    prefetch: batches in flight at most; 0: two a thread. max_bytes_ahead: no batch is begun while
        those in flight take so many bytes. max_expanded_bytes: what a compressed field may expand
        to. fetch_threads: shards that are fetched into the data set's cache ahead at once.
    memory: where the memory of batches comes from: a function of a number of bytes that gives an
        object with data_ptr(), as torch_memory() does; by default the C++ library's.
    ranks: how the ranks of a run agree: ranks.torch_ranks(), or a ranks.Reducer; every rank gives
        the same data and the same options, but for threads, prefetch, max_bytes_ahead,
        fetch_threads and memory. "auto": ranks.torch_ranks() where torch.distributed is
        initialised, so that every rank has to make the loader; else this process alone, which is
        InvalidArgument if it was launched as one of several, becomes one of several before the
        batches are asked for, or is one of several workers of a DataLoader. None: this process
        alone, whatever was launched.
    restart: each ``iter()``, so each ``for`` loop, begins the epoch anew, as evaluation has it.
        False: it goes on behind a loop that is not at its end, as training has it, and a warning
        says so the first time. None: True in the order "sequential" until load_state_dict() is called.

    One thread uses a loader; stop(), stats() and summary() may be called from any. Threads stay
    with the process that made them: a forked child has to make a loader of its own, and the
    loader's methods say so. It does not pickle. Leaving a loop early, dropping the loader, or
    ending the interpreter does not hang. Ctrl-C ends waiting for a batch within 0.1 s, and no
    batch is lost by it: the loader goes on. With threads=0 it is then stopped, as by stop().

    Raises InvalidArgument, which names the option and what is valid.
    """

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
        mix: Union[Mixup, None] = None,
        threads: int = 2,
        max_bad: int = 0,
        prefetch: int = 0,
        max_bytes_ahead: int = 4 << 30,
        max_expanded_bytes: int = 1 << 30,
        fetch_threads: int = 2,
        memory: Union[Callable[[int], Any], None] = None,
        ranks: Union[Reducer, str, None] = "auto",
        restart: Union[bool, None] = None,
        **unknown: NoReturn,
    ) -> None:
        given = locals()
        if unknown:
            _refuse_unknown(next(iter(unknown)))
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
            raise TypeError("columns: give a list of what the functions of shardwise.columns make")
        require("order", order, Order, 'give a shardwise.Order, as Order("sequential") or Order(seed=1)')
        require("by_length", by_length, ByLength, "give a shardwise.ByLength", True)
        require("mix", mix, Mixup, "give a shardwise.Mixup", True)
        if memory is not None and not callable(memory):
            refuse("memory", memory, "give a function, as shardwise.torch_memory() does")
        self._core = _core.Loader(
            data,
            columns=list(columns),
            order=order,
            by_length=by_length,
            mix=mix,
            memory=memory,
            ranks=ranks,
            **numbers,
        )
        require("restart", restart, bool, "give True, False or None", True)
        self.data = data
        self._taken_before = 0
        self._restarts = order.kind == "sequential" if restart is None else restart
        self._goes_on_after_load = restart is None
        self._was_looped = False  # a loop took batches of this epoch, and did not come to its end
        self._has_warned = False
        self._newest_loop = 0
        self._is_stopped = False
        _open_loaders.add(self._core)

    def epochs(self, end: Union[int, None] = None) -> Iterator[Epoch]:
        """The epochs from the current one (0, or where load_state_dict() left it) to ``end``, the
        number of epochs of the whole run, also of one that is resumed. None: for ever.

        Goes on with the current epoch, or with the next one if its end was reached.
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
        """The batches of the current epoch that are left, or with ``restart`` all of them; if its
        end was reached, those of the next one. So ``for batch in loader`` gives one epoch after
        another."""
        if self._is_stopped:
            pass  # the first batch is Cancelled
        elif self.has_ended:
            self.set_epoch(self.epoch + 1)
        elif self._restarts and self._taken > 0:
            self.set_epoch(self.epoch)
        self._newest_loop += 1
        return self._batches(self._newest_loop)

    def __len__(self) -> int:
        """Batches of the current epoch: its steps, and where it was resumed those taken before."""
        return self._taken_before + self._core.steps

    @property
    def _taken(self) -> int:
        """Batches of this epoch that were given out, here."""
        return self._core.steps - self._core.steps_left

    def _batches(self, loop: Union[int, None] = None) -> Iterator[Batch]:
        """loop: its number, or None for an Epoch, which goes on wherever its loader stands."""
        number = self.epoch
        is_first = loop is not None
        while True:
            if self.epoch != number:
                raise NotExact(
                    f"the loader has moved on: epoch {number}; walk through an epoch, and prove "
                    "it, before the next one begins"
                )
            if loop is not None and self._restarts and loop != self._newest_loop:
                raise NotExact(
                    f"a later loop began the epoch anew: epoch {number}; make a Loader for each of "
                    "two loops that run side by side"
                )
            if is_first and self._was_looped and not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"this loop goes on behind the {self._taken} batches that a loop before took "
                    f"of epoch {number}; set_epoch({number}) begins the epoch anew, and with "
                    "Loader(restart=True) each loop does",
                    stacklevel=2,
                )
            is_first = False
            try:
                batch = self.next()
            except BaseException:
                self._was_looped = False  # a caller that catches the error may continue
                raise
            if batch is None:
                return
            self._was_looped = True
            yield batch
            del batch  # its memory may serve the next one

    def next(self) -> Union[Batch, None]:
        """The next batch of the epoch, or None at its end. Waits for it, without the GIL.

        Raises BadField, StaleIndex and others, naming shard and key, and what functions of columns
        raise; the loader then goes on with the batch behind it, but the epoch cannot be proven any
        more. InvalidArgument if images of one batch differ in size. Cancelled after stop().
        """
        if self._is_taken_for_alone:
            require_alone()
        return self._core.next()

    def set_epoch(self, epoch: int) -> None:
        """Moves to the beginning of an epoch; what was made ahead is dropped. In the current epoch,
        unless its end was reached, it moves back to where the loader began: where load_state_dict()
        put it, if that was called. So ``for epoch in range(loader.epoch, n)`` may call it."""
        keeps_place = epoch == self.epoch and not self.has_ended
        self._core.set_epoch(whole_number("epoch", epoch))
        self._was_looped = self._is_stopped = False
        if not keeps_place:
            self._taken_before = 0

    def start(self) -> None:
        """Starts to read ahead now, and not with the first batch that is asked for."""
        self._core.start()

    def stop(self) -> None:
        """Ends a next() that waits, and all later ones, with Cancelled, until set_epoch() or
        load_state_dict(). Any thread, also of a loader that is closed. state_dict() stands
        behind the batches given before."""
        self._is_stopped = True
        self._core.stop()

    def close(self) -> None:
        """Ends the threads, and frees what was made ahead; the loader cannot be used afterwards.
        Batches stay. Raises Unsupported if another thread is in a call."""
        if self._core.is_closed:
            return
        self._core.stop()
        if not self._core.close():
            raise Unsupported("the loader cannot be closed: a call of it is not finished")

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prove(self) -> str:
        """Proves, with all ranks, that their batches of this epoch held exactly the samples that
        the order promises: "epoch 3: 20000 samples, each exactly once: proven".

        Every rank calls it, after its last batch. Raises NotExact, on all ranks, with what is
        missing or came twice; Mismatch, on all ranks, with what differs, if they have not the same
        data, options, epoch and beginning; BadField if all ranks together found more than max_bad
        bad samples.
        Costs: one small all-reduce.
        """
        return self._core.prove()

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands behind the batches that were given out, not those made ahead: call
        it when the last of them has been used. For load_state_dict(), of any number of ranks.

        Every rank calls it, and gets the same; save that of one. At the end of an epoch, the epoch
        is proven, and the state stands at the beginning of the next. If next() raised last, as
        what a function of a column raises, it stands before the batch that could not be made.
        Raises as prove() there; Mismatch, on all ranks, also if these took different numbers of
        steps; NotExact if batches came behind one that could not be made.
        Costs: one small all-reduce.
        """
        done = self._core.steps_done
        taken = self._taken_before + done if done < self._core.steps else 0
        return {"token": self._core.state(), "batches": taken}

    def load_state_dict(self, state_dict: dict[str, Any], *, allow_changes: bool = False) -> None:
        """Goes on where state_dict() was asked, with any number of ranks, batch size and threads;
        with by_length within an epoch only with the same rule and batch size.

        allow_changes: at the beginning of an epoch also with other data or another order, unless
        that would lose the rest of passes that are under way there, as other weights of a mix()
        would. Raises Mismatch, naming all that differs; the loader then stays as it is.
        """
        token, taken = _parts_of_state(state_dict)
        is_within = self._core.restore(token, allow_changes)
        self._was_looped = self._is_stopped = False
        if self._goes_on_after_load:
            self._restarts = False
        self._taken_before = taken if is_within else 0

    @property
    def bad_samples(self) -> dict[int, str]:
        """Numbers of the samples that all ranks left out because they were bad, with the reasons;
        known after prove() and state_dict(), those of a run that goes on after load_state_dict()."""
        return self._core.bad_samples()

    @property
    def epoch(self) -> int:
        """The number of the current epoch."""
        return self._core.epoch

    @property
    def steps(self) -> int:
        """Steps of the current epoch from where it began, or was resumed; the same on all ranks."""
        return self._core.steps

    @property
    def steps_left(self) -> int:
        """Steps of it that are left."""
        return self._core.steps_left

    @property
    def has_ended(self) -> bool:
        """Whether all its steps were taken."""
        return self._core.has_ended

    def cache_warning(self) -> Union[str, None]:
        """What to tell the user if the order uses more shards at one time than the data set's
        cache may hold. Some ms for a large index."""
        return self._core.cache_warning()

    def stats(self) -> LoaderStats:
        """What the run did so far, and where its time went. Any thread."""
        values = self._core.stats()
        values["forgiven"] = [Forgiven(*kind) for kind in values["forgiven"]]
        return LoaderStats(**values)

    def summary(self) -> str:
        """One line: what limits the run, and what to try. Any thread."""
        return self._core.summary()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a shardwise.Loader does not pickle: pickle its data set and its state_dict(), and "
            "make a loader where they arrive"
        )

    if not TYPE_CHECKING:  # where it would say that every name is one

        def __getattr__(self, name: str) -> Any:
            if name in ("dataset", "sampler", "batch_sampler"):
                raise AttributeError(
                    f"a shardwise.Loader is no DataLoader, and has no {name!r}: it needs no "
                    "prepare_data_loader() or skip_first_batches(); it has its ranks, and goes on "
                    "after load_state_dict()"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<shardwise.Loader over {self.data!r}>"


_OF_A_DATALOADER = {
    "batch_sampler": "order=, and batch_size= or by_length=",
    "collate_fn": "columns=: ragged columns need no padding",
    "drop_last": "order=Order(epoch_size=N): batch_size times the ranks divides N",
    "generator": "order=Order(seed=...)",
    "in_order": "nothing: batches always come in order",
    "multiprocessing_context": "threads=: there are no processes",
    "num_replicas": "ranks=",
    "num_workers": "threads=",
    "persistent_workers": "threads=, which live as long as the loader",
    "pin_memory": "memory=torch_memory(pinned=True)",
    "prefetch_factor": "prefetch=, the batches in flight",
    "sampler": "order=",
    "seed": "order=Order(seed=...)",
    "shuffle": 'order=Order(seed=...), or order=Order("sequential")',
    "world_size": "ranks=",
    "rank": "ranks=",
    "worker_init_fn": "threads=: there are no processes",
}
"""Options of torch's DataLoader, and what a Loader has for them."""


def _refuse_unknown(name: str) -> NoReturn:
    """Raises the TypeError of an option that there is not, with the one to give."""
    there = _OF_A_DATALOADER.get(name)
    if there is None:
        own = list(inspect.signature(Loader.__init__).parameters)
        near = difflib.get_close_matches(name, own, 1)
        there = f"{near[0]}=" if near else ""
    advice = f"; give {there}" if there else ""
    raise TypeError(f"a shardwise.Loader has no option {name!r}{advice}")


_MOST_BATCHES = 2**62  # of an epoch, which has as many samples at most


def _parts_of_state(state_dict: Any) -> tuple[str, int]:
    """The token, and the batches that were taken of its epoch. Raises InvalidArgument."""
    token = state_dict.get("token") if isinstance(state_dict, dict) else None
    taken = state_dict.get("batches", 0) if isinstance(state_dict, dict) else None
    if (
        not isinstance(token, str)
        or not isinstance(taken, int)
        or not 0 <= taken <= _MOST_BATCHES
    ):
        refuse("state_dict", state_dict, "give what state_dict() of a Loader gave, whole")
    return token, taken


def torch_memory(pinned: bool = False) -> Callable[[int], Any]:
    """For Loader(memory=): memory that torch allocates, page-locked for copies to a GPU if
    ``pinned``.

    A copy with non_blocking=True reads a batch after the call: keep the batch, or its tensor, until
    the copy is done (``torch.cuda.current_stream().synchronize()``, or an event), since a batch
    that is gone gives its memory to the next one.
    """
    import torch

    def allocate(num_bytes: int) -> Any:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=pinned)

    return allocate


_open_loaders: weakref.WeakSet[_core.Loader] = weakref.WeakSet()


def _close_all() -> None:
    """Ends the threads of all loaders while they can still have the GIL."""
    left = list(_open_loaders)
    for loader in left:
        if not loader.is_closed:
            loader.stop()
    deadline = time.monotonic() + 5
    for loader in left:
        while not loader.close() and time.monotonic() < deadline:
            time.sleep(0.001)  # a thread that is in next() leaves it
    _core.Loader.wait_for_dropped()


atexit.register(_close_all)
# A forked child has none of the threads.
os.register_at_fork(after_in_child=_open_loaders.clear)
