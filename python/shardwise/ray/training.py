"""Exact epochs for Ray Train: ExactDataConfig, and the ExactShard of each worker."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import ray.cloudpickle
import ray.data
import ray.train

from .. import _core
from ..arguments import refuse, suggests, whole_number
from ..errors import InvalidArgument, Unsupported
from .reading import PLACE, source_of
from .spec import Reading, dataset_of, resumed, sampler_of

INDEX = "__index__"

Sum = Callable[[list[int]], list[int]]
_Counted = list[int] | None


def _sum_by_torch(words: list[int]) -> list[int]:
    """Sums over all ranks, by torch.distributed, which TorchTrainer initialises."""
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise InvalidArgument(
            "torch.distributed is not initialised, so numbers cannot be summed over the ranks; "
            "initialise torch.distributed, or give add_up, a function that sums lists of "
            "numbers over all ranks"
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
    """Makes this DataContext the process's current one, the only one that older versions of Ray
    use."""
    before = ray.data.DataContext.get_current()
    ray.data.DataContext._set_current(context)
    try:
        yield
    finally:
        ray.data.DataContext._set_current(before)


def _holding(data: Any, bundles: Iterator[Any]) -> Iterator[Any]:
    """Yields the bundles, and keeps the dataset alive meanwhile. If the dataset were dropped, its
    execution would end and rows would be missing."""
    yield from bundles
    del data


def _rows(batch: Any) -> int:
    is_known = isinstance(batch, dict) or any(
        hasattr(batch, name) for name in ("shape", "iloc", "slice")
    )
    if not is_known:  # the length of a tuple is not its number of rows
        raise InvalidArgument(
            "even batches need the number of rows, which is unknown for a batch of type "
            f"{type(batch).__name__}; make collate_fn return a dict of tensors, or set "
            "ExactDataConfig(even=False)"
        )
    return len(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)


def _slice(batch: Any, first: int, last: int) -> Any:
    """Returns rows of a batch: a dict of arrays or tensors, an Arrow table, or a pandas frame."""
    if isinstance(batch, dict):
        return {name: values[first:last] for name, values in batch.items()}
    if hasattr(batch, "iloc"):
        return batch.iloc[first:last]
    if hasattr(batch, "slice"):
        return batch.slice(first, last - first)
    return batch[first:last]


def _numbers(batch: Any) -> list[int] | None:
    """Returns the numbers of a batch's samples, or None if the batch lacks their column."""
    is_named = isinstance(batch, dict) or hasattr(batch, "iloc")
    names = batch if is_named else getattr(batch, "column_names", ())
    if INDEX not in names:
        return None
    values = batch[INDEX]
    numbers: list[int] = values.tolist() if hasattr(values, "tolist") else values.to_pylist()
    return numbers


class ExactShard(ray.data.DataIterator):
    """The samples of one rank, as ray.train.get_dataset_shard() gives them under ExactDataConfig.

    Each pass (iter_batches(), iter_torch_batches() ...) has this rank's samples of one epoch, in
    order. After a complete pass, the next one reads the next epoch; a pass that was left early
    restarts its epoch. set_epoch() chooses the next epoch.

    All ranks have the same number of batches. If a rank has one sample less, and would therefore
    have one batch less, it delivers its last sample in a separate batch. This requires that maps
    keep the number of rows.

    If batches have a column "__index__", delivered samples are counted, for prove().
    """

    def __init__(self, data: ray.data.Dataset, reading: Reading, even: bool, options: Any) -> None:
        self._pickled: bytes = ray.cloudpickle.dumps(data)  # type: ignore[no-untyped-call]
        self._options = options
        self._even = even
        self._next = reading
        self._before: _Counted = [0] * 10  # deliveries of all ranks before `_next` begins
        # size, drop_last and even of the batches; None if batch sizes are unknown
        self._rule: tuple[int, bool, bool] | None = (1, False, False)
        self._done = 0  # number of batches delivered since `_next` began
        self._pass: _Pass | None = None  # the last pass that was begun

    # The position.

    @property
    def rank(self) -> int:
        """This rank."""
        return self._next.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._next.world_size

    @property
    def epoch(self) -> int:
        """The epoch of the next pass, or of the one that is being read."""
        return self._next.epoch

    @property
    def dataset(self) -> _core.Dataset:
        """The dataset; "__index__" numbers its samples."""
        return dataset_of(self._next.reference)

    @property
    def sampler(self) -> _core.Sampler:
        """The shardwise.Sampler of this rank, for the next pass or the one being read."""
        return sampler_of(self._next)

    def set_epoch(self, epoch: int) -> None:
        """The next pass reads this epoch, from its beginning. If this is already the next epoch,
        the pass keeps its starting point, which resume() may have set."""
        if whole_number("epoch", epoch) != self._next.epoch:
            self._move(self._next._replace(epoch=epoch, token=None))

    def resume(self, token: str) -> None:
        """The next pass reads the rest of an epoch after a token of token(), on any number of
        ranks. Raises Mismatch if the token is of other data or another order."""
        self._move(resumed(self._next, token))

    def token(self, batches: int | None = None) -> str:
        """A resume token for a checkpoint: the place after `batches` batches of each rank in the
        current pass; by default after the batches that this rank was given. All ranks get the same
        token if they step together and no batch is taken ahead of the training."""
        done = self._done if batches is None else whole_number("batches", batches)
        if self._rule is None and done > 0:
            raise InvalidArgument(
                "the position of a pass is unknown without a batch size; give batch_size to "
                "iter_batches()"
            )
        size, drop_last, even = self._rule or (1, False, False)
        return self.sampler.token_after_batches(done, size, drop_last, even)

    def state_dict(self, add_up: Sum = _sum_by_torch) -> dict[str, Any]:
        """A checkpoint, the same on all ranks: the token, and the counts for prove(). Collective.

        add_up: returns the sums of a list of numbers over all ranks; by default torch.distributed.
        """
        at, token = self._pass, self.token()
        counted: _Counted = self._before
        if resumed(self._next, token).epoch != self._next.epoch:  # true at the end of the epoch
            counted = [0] * 10
        elif at is not None and at.reading == self._next:
            counted = at.sums(add_up)
        return {"token": token, "counted": counted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues where state_dict() was called, with any number of ranks. prove() then covers
        the whole epoch, including samples delivered before."""
        self.resume(state_dict["token"])
        self._before = state_dict["counted"]

    def prove(self, add_up: Sum = _sum_by_torch) -> str:
        """Proves the epoch of the pass begun last: "epoch 3: 20,000 samples, each exactly once:
        proven". Every rank calls it, at the pass's end. Raises NotExact, with the samples that are
        missing or came twice; InvalidArgument if batches had no "__index__"."""
        words = None if self._pass is None else self._pass.sums(add_up)
        if self._pass is None or words is None:
            raise InvalidArgument(
                f'the delivered samples were not counted; read a pass whose batches have "{INDEX}"'
            )
        sampler = sampler_of(self._pass.reading)
        return _core.Audit(sampler).prove(sampler, words)

    def _move(self, reading: Reading) -> None:
        sampler_of(reading)  # raise errors of the reading now
        self._next, self._before, self._done, self._pass = reading, [0] * 10, 0, None

    # Passes.

    def _iter_batches(self, **options: Any) -> Iterable[Any]:
        if options.get("local_shuffle_buffer_size") is not None:
            raise InvalidArgument(
                "a local shuffle would give other samples than the token counts; leave out "
                "local_shuffle_buffer_size, and shuffle by order= of shardwise.ray.read()"
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
            if self._pass is at:  # do not count batches of an older pass that is still being read
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
        """Yields batches, in equal numbers on all ranks. If other ranks have one batch more, splits
        off the last sample as a batch."""
        own = sampler.num_batches(size, drop_last)
        wanted = sampler.num_batches(size, drop_last, even)
        left = len(sampler)
        for number, batch in enumerate(batches):
            if wanted < own and number == wanted:  # drop_last: other ranks have no full batch
                return
            rows = _rows(batch)
            left -= rows
            if wanted > own and left == 0 and rows > 1:
                yield _slice(batch, 0, rows - 1)
                batch = _slice(batch, rows - 1, rows)
            yield batch

    # Methods called by Ray.

    def _dataset(self) -> Any:
        """Returns a copy of the dataset, with its own context, that reads this rank and epoch."""
        data = ray.cloudpickle.loads(self._pickled)
        data.context.execution_options = copy.deepcopy(self._options)
        names = ("epoch", "token", "rank", "world_size")
        data.context.set_config(PLACE, {name: getattr(self._next, name) for name in names})
        return data

    def _to_ref_bundle_iterator(self) -> Any:
        data = self._dataset()
        with _current(data.context):  # planning the tasks uses this context
            bundles, *others = data.iterator()._to_ref_bundle_iterator()
        return _holding(data, bundles), *others

    def stats(self) -> str:
        """Ray's statistics of the dataset, as text."""
        return str(self._dataset().stats())

    def schema(self) -> Any:
        """Ray's schema of the dataset."""
        return self._dataset().schema()

    def get_context(self) -> Any:
        """Ray's DataContext of the dataset."""
        return self._dataset().context

    def __repr__(self) -> str:
        return (
            f"<shardwise.ray.ExactShard: rank {self.rank} of {self.world_size}, epoch {self.epoch}>"
        )


class _Pass:
    """A pass, and how many of its samples this rank has received."""

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
        """The sums over all ranks, including earlier deliveries; None if batches had no numbers."""
        if self._before is None or self._audit is None:
            return None
        own = self._audit.words()
        sums = own if self.reading.world_size == 1 else add_up(own)
        return [before + new for before, new in zip(self._before, sums, strict=True)]


class _Restartable(Iterable[Any]):
    """An iterable. Each iteration begins a new pass."""

    def __init__(self, walk: Callable[[], Iterator[Any]]) -> None:
        self._walk = walk

    def __iter__(self) -> Iterator[Any]:
        return self._walk()


@suggests
class ExactDataConfig(ray.train.DataConfig):
    """Gives each worker of a trainer its samples, in order: each sample once per epoch.

        TorchTrainer(loop, datasets={"train": shardwise.ray.read("train.idx", order=order)},
                     dataset_config=shardwise.ray.ExactDataConfig(), ...)

    ray.train.get_dataset_shard("train") then returns an ExactShard. Ray's own DataConfig drops up
    to one row less than there are workers, without naming the rows.

    datasets_to_split: names of the datasets whose samples are dealt out; each worker gets all
        samples of the other datasets. The named ones come from shardwise.ray.read(), with maps if
        needed, but without a limit, sort or shuffle, which each rank would apply to its rows alone.
    even: all ranks have the same number of batches, see ExactShard. False: each rank has a separate
        number.
    local: tasks of a rank run on its node, which needs CPUs that no worker has reserved.
    execution_options: as for ray.train.DataConfig. Order is kept in any case.
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
        """The datasets of each worker, by rank and name. Raises InvalidArgument if a dataset to
        split does not exist: each worker would get all of a dataset whose name was mistyped."""
        named = [] if self._split == "all" else self._split
        for name in named:
            if name not in datasets:
                known = ", ".join(map(repr, datasets))
                refuse("datasets_to_split", list(named), f"choose from {known}")
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
                        raise Unsupported(
                            "local=True needs Ray 2.60 or newer; update Ray, or leave out local"
                        )
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
