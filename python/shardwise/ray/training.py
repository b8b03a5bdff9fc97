"""Exact epochs for Ray Train: ExactDataConfig, and what it gives each worker."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import ray.cloudpickle
import ray.data
import ray.train

from .. import _core
from ..arguments import refuse, whole_number
from ..errors import InvalidArgument, Unsupported
from .reading import PLACE, source_of
from .spec import Reading, dataset_of, resumed, sampler_of

INDEX = "__index__"

Sum = Callable[[list[int]], list[int]]
_Counted = list[int] | None


def _sum_by_torch(words: list[int]) -> list[int]:
    """The sums over all ranks of torch.distributed, which TorchTrainer initialises."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidArgument(
            "torch.distributed is not initialised, so that the ranks cannot add up what they were "
            "given: give a function that adds up lists of numbers over all ranks"
        )
    if dist.get_backend() == "nccl":
        total = torch.tensor(words, dtype=torch.int64, device=torch.cuda.current_device())
    else:
        total = torch.tensor(words, dtype=torch.int64)
    dist.all_reduce(total)
    sums: list[int] = total.tolist()
    return sums


@contextmanager
def _current(context: Any) -> Iterator[None]:
    """Makes a DataContext that of this process; older versions of Ray ask no other."""
    before = ray.data.DataContext.get_current()
    ray.data.DataContext._set_current(context)
    try:
        yield
    finally:
        ray.data.DataContext._set_current(before)


def _holding(data: Any, bundles: Iterator[Any]) -> Iterator[Any]:
    """The same, and the dataset while it lasts: one that is dropped ends what it executes, and rows
    would be missing."""
    yield from bundles
    del data


def _rows(batch: Any) -> int:
    is_known = isinstance(batch, dict) or any(
        hasattr(batch, name) for name in ("shape", "iloc", "slice")
    )
    if not is_known:  # a tuple's length is not the number of its rows
        raise InvalidArgument(
            f"the rows of a batch that is a {type(batch).__name__} cannot be counted, so that "
            "ranks cannot be given the same number of batches: have collate_fn return a dict of "
            "tensors, or give ExactDataConfig(even=False)"
        )
    return len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)


def _slice(batch: Any, first: int, last: int) -> Any:
    """Rows of a batch: of arrays or tensors by name, a table of Arrow, or a frame of pandas."""
    if isinstance(batch, dict):
        return {name: values[first:last] for name, values in batch.items()}
    if hasattr(batch, "iloc"):
        return batch.iloc[first:last]
    if hasattr(batch, "slice"):
        return batch.slice(first, last - first)
    return batch[first:last]


def _numbers(batch: Any) -> list[int] | None:
    """The samples of a batch, if it says which they are."""
    is_named = isinstance(batch, dict) or hasattr(batch, "iloc")
    names = batch if is_named else getattr(batch, "column_names", ())
    if INDEX not in names:
        return None
    values = batch[INDEX]
    numbers: list[int] = values.tolist() if hasattr(values, "tolist") else values.to_pylist()
    return numbers


class ExactShard(ray.data.DataIterator):
    """What ray.train.get_dataset_shard() gives under ExactDataConfig: the samples of one rank.

    Each pass (iter_batches(), iter_torch_batches() ...) has the samples of one epoch that are this
    rank's, in order. When a pass was read to its end, the next one is that of the next epoch; one
    that was left begins again. set_epoch() says which epoch is next.

    Ranks have the same number of batches: if one has a sample less, and so a batch less, it gives
    its last sample in a batch of its own. Maps must then keep the number of rows.

    If batches have a column "__index__", what was delivered is counted, for prove().
    """

    def __init__(
        self, data: ray.data.Dataset, reading: Reading, even: bool, options: Any
    ) -> None:
        self._pickled: bytes = ray.cloudpickle.dumps(data)  # type: ignore[no-untyped-call]
        self._options = options
        self._even = even
        self._next = reading
        self._before: _Counted = [0] * 10  # what others delivered before `_next` begins
        # Of batches: size, drop_last, even. None: their sizes are not known.
        self._rule: tuple[int, bool, bool] | None = (1, False, False)
        self._done = 0  # batches that were delivered since `_next` began
        self._pass: _Pass | None = None  # the one that was begun last

    # Where it stands.

    @property
    def rank(self) -> int:
        return self._next.rank

    @property
    def world_size(self) -> int:
        return self._next.world_size

    @property
    def epoch(self) -> int:
        """That of the next pass, or of the one that is being read."""
        return self._next.epoch

    @property
    def dataset(self) -> _core.Dataset:
        """The dataset, whose samples "__index__" counts."""
        return dataset_of(self._next.reference)

    @property
    def sampler(self) -> _core.Sampler:
        """The shardwise.Sampler of this rank: what the next pass, or the one being read, has."""
        return sampler_of(self._next)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that of this epoch, from its beginning; or of the epoch in which it
        is anyway, from where it begins: where resume() put it, if that was called."""
        if whole_number("epoch", epoch) != self._next.epoch:
            self._move(self._next._replace(epoch=epoch, token=None))

    def resume(self, token: str) -> None:
        """The next pass is what was left of an epoch, on any number of ranks: token() says where.
        Raises Mismatch if it is of other data or another order."""
        self._move(resumed(self._next, token))

    def token(self, batches: int | None = None) -> str:
        """A resume token, for a checkpoint: after so many batches of each rank in the pass that is
        being read; by default after those that this rank was given. The same on all ranks, if
        these step together, and no batch is taken ahead of the training."""
        done = self._done if batches is None else whole_number("batches", batches)
        if self._rule is None and done > 0:
            raise InvalidArgument(
                "where a pass without a batch size stands is not known: give batch_size"
            )
        size, drop_last, even = self._rule or (1, False, False)
        return self.sampler.token_after_batches(done, size, drop_last, even)

    def state_dict(self, add_up: Sum = _sum_by_torch) -> dict[str, Any]:
        """A checkpoint of all ranks, the same on each: the token, and what was counted. Collective.

        add_up: gives the sums of a list of numbers over all ranks; by default torch.distributed.
        """
        at, token = self._pass, self.token()
        counted: _Counted = self._before
        if resumed(self._next, token).epoch != self._next.epoch:  # nothing is left of this one
            counted = [0] * 10
        elif at is not None and at.reading == self._next:
            counted = at.sums(add_up)
        return {"token": token, "counted": counted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where state_dict() was asked, with any number of ranks; prove() then speaks of
        the whole epoch, with what was delivered before."""
        self.resume(state_dict["token"])
        self._before = state_dict["counted"]

    def prove(self, add_up: Sum = _sum_by_torch) -> str:
        """Proves the epoch whose pass was begun last: "epoch 3: 20000 samples, each exactly once:
        proven". Every rank calls it, at the pass's end. Raises NotExact, with what is missing or
        came twice; InvalidArgument if batches had no "__index__"."""
        words = None if self._pass is None else self._pass.sums(add_up)
        if self._pass is None or words is None:
            raise InvalidArgument(
                f'what was delivered was not counted: read a pass whose batches have "{INDEX}"'
            )
        sampler = sampler_of(self._pass.reading)
        return _core.Audit(sampler).prove(sampler, words)

    def _move(self, reading: Reading) -> None:
        sampler_of(reading)  # raises what is wrong
        self._next, self._before, self._done, self._pass = reading, [0] * 10, 0, None

    # A pass.

    def _iter_batches(self, **options: Any) -> Iterable[Any]:
        if options.get("local_shuffle_buffer_size") is not None:
            raise InvalidArgument(
                "a local shuffle would give other samples than those that a token counts: leave "
                "out local_shuffle_buffer_size, and shuffle by the order of shardwise.ray.read()"
            )
        size = options.get("batch_size")
        if size is not None and whole_number("batch_size", size) < 1:
            refuse("batch_size", size, "give a whole number, 1 or more, or None")
        batches = super()._iter_batches(**options)
        rule = (size, bool(options.get("drop_last")), self._even)
        return _Restartable(lambda: self._walk(batches, *rule))

    def _walk(
        self, batches: Iterable[Any], size: int | None, drop_last: bool, even: bool
    ) -> Iterator[Any]:
        self._done = 0
        self._pass = at = _Pass(self._next, self._before)
        given = iter(batches)
        self._rule = None if size is None else (size, drop_last, even)
        if self._rule is not None and even:
            given = self._even_batches(given, sampler_of(at.reading), *self._rule)
        for batch in given:
            if self._pass is at:  # one that was left, and is read on, stands nowhere
                self._done += 1
            at.count(batch)
            yield batch
        if self._pass is at:
            self._next = at.reading._replace(epoch=at.reading.epoch + 1, token=None)
            self._before, self._done = [0] * 10, 0

    @staticmethod
    def _even_batches(
        batches: Iterator[Any], sampler: _core.Sampler, size: int, drop_last: bool, even: bool
    ) -> Iterator[Any]:
        """The batches; the last sample in one of its own, where other ranks have a batch more."""
        own = sampler.num_batches(size, drop_last)
        wanted = sampler.num_batches(size, drop_last, even)
        left = len(sampler)
        for number, batch in enumerate(batches):
            if wanted < own and number == wanted:  # of drop_last: others have no whole batch left
                return
            rows = _rows(batch)
            left -= rows
            if wanted > own and left == 0 and rows > 1:
                yield _slice(batch, 0, rows - 1)
                batch = _slice(batch, rows - 1, rows)
            yield batch

    # What Ray asks.

    def _dataset(self) -> Any:
        """A copy of the dataset, with a context of its own, that reads this rank and epoch."""
        data = ray.cloudpickle.loads(self._pickled)
        data.context.execution_options = copy.deepcopy(self._options)
        names = ("epoch", "token", "rank", "world_size")
        data.context.set_config(PLACE, {name: getattr(self._next, name) for name in names})
        return data

    def _to_ref_bundle_iterator(self) -> Any:
        data = self._dataset()
        with _current(data.context):  # tasks are planned now
            bundles, *others = data.iterator()._to_ref_bundle_iterator()
        return _holding(data, bundles), *others

    def stats(self) -> str:
        return str(self._dataset().stats())

    def schema(self) -> Any:
        return self._dataset().schema()

    def get_context(self) -> Any:
        return self._dataset().context

    def __repr__(self) -> str:
        return (
            f"<shardwise.ray.ExactShard: rank {self.rank} of {self.world_size}, "
            f"epoch {self.epoch}>"
        )


class _Pass:
    """A pass, and what this rank was given in it."""

    def __init__(self, reading: Reading, before: _Counted) -> None:
        self.reading = reading
        self._before = before
        self._audit: _core.Audit | None = _core.Audit(sampler_of(reading))

    def count(self, batch: Any) -> None:
        numbers = _numbers(batch)
        if numbers is None:
            self._audit = None
        elif self._audit is not None:
            self._audit.add(numbers)

    def sums(self, add_up: Sum) -> _Counted:
        """Over all ranks, with what was delivered before; None if that is not known."""
        if self._before is None or self._audit is None:
            return None
        own = self._audit.words()
        sums = own if self.reading.world_size == 1 else add_up(own)
        return [before + new for before, new in zip(self._before, sums, strict=True)]


class _Restartable(Iterable[Any]):
    """Begins a pass whenever it is iterated over."""

    def __init__(self, walk: Callable[[], Iterator[Any]]) -> None:
        self._walk = walk

    def __iter__(self) -> Iterator[Any]:
        return self._walk()


class ExactDataConfig(ray.train.DataConfig):
    """Gives each worker of a trainer its own samples, in order: each sample once an epoch.

        TorchTrainer(loop, datasets={"train": shardwise.ray.read("train.idx", order=order)},
                     dataset_config=shardwise.ray.ExactDataConfig(), ...)

    ray.train.get_dataset_shard("train") is then an ExactShard. Ray's own DataConfig leaves out up
    to one row less than there are workers, and does not say which.

    datasets_to_split: names of the datasets whose samples are dealt out; every worker gets the
        whole of the others. Those named are of shardwise.ray.read(), with maps if need be, but
        nothing that each rank would do with its own rows alone: no limit, sort or shuffle.
    even: all ranks have the same number of batches, see ExactShard; False: each has its own.
    local: tasks of a rank run on its node, which needs CPUs that no worker has reserved.
    execution_options: as of ray.train.DataConfig. Order is kept in any case.
    """

    def __init__(
        self,
        datasets_to_split: Any = "all",
        *,
        even: bool = True,
        local: bool = False,
        execution_options: Any = None,
    ) -> None:
        super().__init__(datasets_to_split, execution_options)
        self._split = datasets_to_split
        self._given_options = execution_options
        self._even = even
        self._local = local

    def configure(
        self,
        datasets: dict[str, Any],
        world_size: int,
        worker_handles: Any = None,
        worker_node_ids: Any = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """What each worker gets, by rank and name. Raises InvalidArgument if a dataset that was to
        be split is not there: each worker would be given the whole of the one that was meant."""
        named = [] if self._split == "all" else self._split
        for name in named:
            if name not in datasets:
                known = ", ".join(map(repr, datasets))
                refuse("datasets_to_split", list(named), f"name what is there: {known}")
        output: list[dict[str, Any]] = [{} for _ in range(world_size)]
        for name, data in datasets.items():
            options = self._options_of(name)
            if self._split != "all" and name not in self._split:
                whole = data.copy(data)
                whole.context.execution_options = options
                for given in output:
                    given[name] = whole.iterator()
                continue
            reading = source_of(data).placed()
            for rank, given in enumerate(output):
                own = copy.deepcopy(options)
                if self._local and worker_node_ids is not None:
                    if not hasattr(own, "label_selector"):
                        raise Unsupported("local=True needs Ray 2.60 or newer")
                    own.label_selector = {"ray.io/node-id": worker_node_ids[rank]}
                place = reading._replace(rank=rank, world_size=world_size)
                given[name] = ExactShard(data, place, self._even, own)
        return output

    def _options_of(self, name: str) -> Any:
        given = self._given_options
        if isinstance(given, dict):
            given = given.get(name)
        options = copy.deepcopy(given or self.default_ingest_options())
        options.preserve_order = True
        return options
