"""Pipelines: DataPipeline and WebDataset."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, Self

from .._core import Order
from ..arguments import suggests, whole_number
from ..errors import InvalidArgument, Mismatch, Unsupported
from . import stages
from .base import Items, Passes, PipelineStage, pytorch_worker_info
from .fluid import FluidInterface
from .handlers import ENDING, reraise_exception
from .shards import (
    ResampledShards,
    SimpleShardList,
    single_node_only,
    split_by_node,
    split_by_worker,
)
from .source import Dealing, Place, ShardSource, Start, Stream, refuse_renaming
from .states import VERSION, fingerprint_of, gathered, left_behind, part_of, parts_of, start_of

_ENDLESS = sys.maxsize
_MAX_PASS = 2**32 - 1  # see epoch_number()
_MAX_EMPTY = 100  # an endless pass stops after this many consecutive epochs without an item


class _Plan(NamedTuple):
    """The parts of a pipeline over shards: the source, its order, and the remaining stages."""

    source: ShardSource
    bufsize: int
    seed: int | None
    stages: list[Any]
    block: int

    def order(self) -> Order:
        """The order of the samples."""
        return self.source.order(self.bufsize, self.seed)


def _plan(steps: list[Any]) -> _Plan | None:
    """Returns the plan of a pipeline that begins with a ShardSource. If only per-sample stages
    precede a shuffle, the order includes the shuffle."""
    source, *rest = steps
    if not isinstance(source, ShardSource):
        return None
    bufsize, seed, block = 0, None, 0
    kept: list[Any] = []
    for stage in rest:
        if all(stages.kind_of(one) == stages.PER_SAMPLE for one in kept):
            size = stages.bufsize_of(stage)
            if size is not None:
                bufsize = max(bufsize, size)
                seed = stages.seed_of(stage) if seed is None else seed
                continue
        block = block or stages.batchsize_of(stage) or 0
        kept.append(stage)
    return _Plan(source, bufsize, seed, kept, max(1, block))


class DataPipeline(Items, PipelineStage):
    """A chain of stages. The first yields samples; the others map an iterator to an iterator.

    A list of shards, the stages that pick from it (shuffle, split_by_node, split_by_worker) and
    tarfile_to_samples() become one source: samples in an order of shardwise. A pass is one
    iter(). It has each sample exactly once over all ranks and workers. With a shuffle, each
    pass has another order. A shuffle after per-sample stages makes no buffer: the order
    shuffles at least as well.

    Raises InvalidArgument, Unsupported (which names the alternative), and the errors of shards.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        self.pipeline: list[Any] = []
        self.repetitions = 1
        self.nsamples = -1
        self.size = -1
        self._passes = Passes()
        self._start: Start | None = None
        self._first_place: Place | None = None
        self._given = self._given_before = 0
        self._is_loaded = False  # load_state_dict() was called, and no pass began since
        self._is_over = False
        self._block = 1  # number of consecutive items in a loader's batch
        self._stream: Stream | None = None
        self._collapsed: tuple[list[Any], ShardSource] | None = None
        self._loaded_by: Any = None  # a set of the WebLoaders over this pipeline
        for step in args:
            self.pipeline += step if isinstance(step, list) else [] if step is None else [step]

    # Stages.

    def append(self, f: Any) -> None:
        """Adds a stage to this pipeline itself."""
        self.pipeline.append(f)

    def compose(self, *args: Any) -> Self:
        """Returns a copy with these stages appended. A stage maps an iterator to an iterator."""
        result = copy.copy(self)
        result.pipeline = [*self.pipeline, *args]
        result._passes = Passes(self._passes.next)
        result._stream = result._loaded_by = None
        result._block = 1
        return result

    def stage(self, i: int) -> Any:
        """Returns the i-th stage."""
        return self.pipeline[i]

    def close(self) -> None:
        """Closes its stages. Do not use the pipeline afterwards."""
        for step in self.pipeline:
            if hasattr(step, "close"):
                step.close()
        self.pipeline = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Lengths of epochs and passes.

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Makes each pass read the samples ``nepochs`` times, each time in another order. By
        default a pass is endless. nbatches: the largest number of items in a pass."""
        self.repetitions = nepochs if nepochs > 0 else _ENDLESS
        self.nsamples = nbatches
        return self

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Makes a pass ``nsamples`` items long in each worker. After batched(), an item is a
        batch."""
        self.repetitions = _ENDLESS
        self.nsamples = max(nsamples, nbatches)
        return self

    def with_length(self, n: int, silent: bool = False) -> Self:
        """Makes len() return n, and changes nothing else."""
        self.size = n
        if not hasattr(type(self), "__len__"):
            self.__class__ = _with_length(type(self))
        return self

    # Iteration.

    def _steps(self) -> list[Any]:
        """Returns the stages. Replaces a list of shards and the stages that select shards by one
        source."""
        if not self.pipeline:
            raise InvalidArgument("the pipeline has no stages; give it a WebDataset, or a list")
        expanders = [i for i, one in enumerate(self.pipeline) if stages.is_expander(one)]
        if not isinstance(self.pipeline[0], (SimpleShardList, ResampledShards)) or not expanders:
            return self.pipeline
        head, rest = self.pipeline[: expanders[0] + 1], self.pipeline[expanders[0] + 1 :]
        if self._collapsed is None or not _same(self._collapsed[0], head):
            self._collapsed = head, _source_of(head)
        return [self._collapsed[1], *rest]

    def __iter__(self) -> Iterator[Any]:
        plan = _plan(self._steps())
        self._is_loaded = False
        number = self._passes.begin(pytorch_worker_info()[2])
        if plan is None:
            return self._counted(self._python_items(), 0)
        start, place, given = Start(number), None, 0
        if self._start is not None and self._start.number == number:
            start, place, given = self._start, self._first_place, self._given_before
        plan.source.begin_pass()
        dealing = plan.source.dealing(plan.block * self._block)
        self._stream = Stream(plan.source, plan.order(), dealing, start, place)
        # A resumed pass begins with worker 0, whatever worker was next in the old run.
        limit = DataPipeline._limit(self)
        left, more = divmod(max(0, limit * dealing.num_workers - given), dealing.num_workers)
        own = limit - left - (dealing.worker < more)
        self._given, self._is_over = own, False  # a state may be requested before the first item
        return self._counted(self._items(plan, self._stream), own)

    def _counted(self, items: Iterator[Any], given: int) -> Iterator[Any]:
        """Yields the items of a pass. given: the number of items already yielded in it."""
        limit = DataPipeline._limit(self)
        if limit > 0:
            items = islice(items, max(0, limit - given))
        self._given, self._is_over = given, False
        for item in items:
            self._given += 1
            yield item
        self._end_pass()

    def _num_epochs(self, plan: _Plan) -> int:
        """Returns the number of epochs in a pass."""
        return _ENDLESS if plan.source.is_resampled else self.repetitions

    def _limit(self) -> int:
        """Returns the limit for the items of a pass. 0 means no limit."""
        return max(0, self.nsamples) if self.repetitions != 1 else 0

    def _end_pass(self) -> None:
        """Called at the end of a pass."""
        self._is_over = True

    def _items(self, plan: _Plan, stream: Stream) -> Iterator[Any]:
        def epoch(again: int) -> Any:
            items: Any = stream.samples(again)
            for stage in plan.stages:
                items = _run(stage, items)
            return items

        return _epochs(epoch, self._num_epochs(plan) - stream.place.repetition)

    def _python_items(self) -> Iterator[Any]:
        def epoch(_: int) -> Any:
            items = self._begun(self.pipeline[0])
            for stage in self.pipeline[1:]:
                items = _run(stage, items)
            return items

        return _epochs(epoch, self.repetitions)

    def _begun(self, first: Any) -> Any:
        if isinstance(first, PipelineStage) and not isinstance(first, DataPipeline):
            return first.run()
        if hasattr(first, "__iter__"):
            return iter(first)
        if callable(first):
            return first()
        raise InvalidArgument(
            f"the pipeline begins with {first!r:.60}; begin the pipeline with an iterable"
        )

    # State.

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next pass. By default passes are numbered from 0. Call it on
        all ranks. If it is the number of the pass that load_state_dict() loaded, the loaded
        position is kept."""
        self._set_epoch(epoch)

    def _set_epoch(self, epoch: int) -> bool:
        """Returns False if this is the loaded pass, whose position is then kept."""
        epoch = whole_number("epoch", epoch, _MAX_PASS)
        if self._is_loaded and self._start is not None and self._start.number == epoch:
            return False
        self._take_start(Start(epoch), 0)
        self._start = None
        return True

    def _stateful(self, more: Iterable[str] = ()) -> _Plan:
        """Returns the plan. Raises Unsupported, with all reasons, if a state would not be exact.
        more: reasons of a loader over this pipeline."""
        plan = _plan(self._steps())
        if plan is None:
            first = self.pipeline[0]
            advice = "begin it with a WebDataset, or use a shardwise.Loader"
            if isinstance(first, (SimpleShardList, ResampledShards)):
                advice = "add wds.tarfile_to_samples(), or begin it with a WebDataset"
            raise Unsupported(f"a pipeline over {stages.name_of(first)} has no state; {advice}")
        reasons = inexact_reasons(plan.stages)
        handlers = [plan.source.handler, *map(stages.handler_of, plan.stages)]
        names = [one.__name__ for one in ENDING if one in handlers]
        if names:
            reasons.append(
                f"handler={', '.join(names)} ends a pass at an error: use warn_and_continue or "
                "ignore_and_continue"
            )
        own = plan.source.own_filter
        if own is not None:
            reasons.append(
                f"{own} selects the shards: use nodesplitter=wds.split_by_node, "
                "workersplitter=wds.split_by_worker"
            )
        reasons += more
        if reasons:
            raise Unsupported(
                f"a pipeline has no exact state: {'; '.join(reasons)}; or use a shardwise.Loader"
            )
        return plan

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the current pass after the last item, for load_state_dict() on
        any number of ranks and workers.

        Call it on every rank at the same step. If torch.distributed is initialised, each rank
        gets the whole state. In a loop over a WebLoader, call that of the WebLoader. Raises
        Unsupported, naming the stage: there is no state after buffers over samples,
        unbatched(), slice() and generators.
        """
        plan = self._stateful()
        if self._stream is None:
            if self._passes.has_begun:
                raise Unsupported(
                    "a DataLoader's workers do not report how much of this pipeline they have "
                    "read; use a wds.WebLoader and its state_dict()"
                )
            start = self._start or Start(self._passes.next)
            dealing = plan.source.dealing(plan.block * self._block)
            places = [self._first_place or Place(start.repetition)] * dealing.num_workers
        else:
            start, dealing = self._stream.start, self._stream.dealing
            places = [Place(start.repetition)] * dealing.num_workers
            places[dealing.worker] = self._stream.place
        part = self._part(plan, start, places, dealing)
        if dealing.num_workers > 1:  # only this worker can load its state
            return {"version": VERSION, "parts": [part], "worker": dealing.worker}
        return gathered(part)

    def _part(
        self, plan: _Plan, start: Start, places: list[Place], dealing: Dealing
    ) -> dict[str, Any]:
        """Returns the state of this rank."""
        is_over = self._is_over or 0 < self._limit() <= self._given
        fingerprint = fingerprint_of(plan.source, plan.order())
        return part_of(start, dealing, places, fingerprint, self._given, is_over)

    def load_state_dict(self, state_dict: Any) -> None:
        """Makes the next pass continue the pass in which state_dict() was called.

        state_dict: a state of any number of ranks and workers. If the states were saved without
        torch.distributed, give a list of those of all ranks. Raises Mismatch for other shards
        or another order; Unsupported like state_dict().
        """
        plan = self._stateful()
        if isinstance(state_dict, dict) and "worker" in state_dict:
            self._load_worker(plan, state_dict)
            return
        parts = parts_of(state_dict)
        start = left_behind(plan.source, plan.order(), parts)
        is_last = start.repetition + 1 >= self._num_epochs(plan)
        if start.has_ended and not start.left and is_last:
            start = Start(start.number + 1)
        is_same = start.number == start_of(parts[0]).number
        self._take_start(start, max(part["items"] for part in parts) if is_same else 0)
        self._is_loaded = True

    def _take_start(self, start: Start, items: int) -> None:
        self._start, self._first_place, self._given_before = start, None, items
        self._is_loaded = False
        self._stream, self._given, self._is_over = None, items, False
        self._passes.set(start.number)
        for loader in self._loaded_by or ():
            loader._moved()

    def _load_worker(self, plan: _Plan, state: dict[str, Any]) -> None:
        """Moves to a saved position of this worker."""
        (part,) = state["parts"]
        dealing = plan.source.dealing(plan.block)
        was = Dealing(
            part["rank"], part["world_size"], state["worker"], len(part["places"]), part["block"]
        )
        if was != dealing:
            raise Mismatch(
                f"the state is of rank {was.rank} of {was.world_size}, worker {was.worker} of "
                f"{was.num_workers}, but this is rank {dealing.rank} of {dealing.world_size}, "
                f"worker {dealing.worker} of {dealing.num_workers}; use the state of a "
                "wds.WebLoader, which is valid for any numbers"
            )
        start, place = start_of(part), Place(*part["places"][dealing.worker])
        self._start = start
        self._stream, self._given, self._is_over = None, 0, False
        self._passes.set_worker(dealing.worker, start.number)
        self._first_place = place
        self._given_before = part["items"] * dealing.num_workers

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None, "_loaded_by": None}

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain = getattr(type(self), "_without_length", None)
        if plain is not None:
            return _made_with_length, (plain, self.__getstate__())
        return super().__reduce_ex__(protocol)


def _epochs(epoch: Callable[[int], Iterable[Any]], num_epochs: int) -> Iterator[Any]:
    """Yields the items of several epochs. An epoch may be empty, e.g. if all samples of a worker
    are dropped. An endless pass ends after _MAX_EMPTY empty epochs."""
    num_empty = 0
    for again in range(num_epochs):
        is_empty = True
        for item in epoch(again):
            is_empty = False
            yield item
        num_empty = num_empty + 1 if is_empty else 0
        if num_empty == _MAX_EMPTY and num_epochs > _MAX_EMPTY:
            return


def _with_length(kind: type[Any]) -> type[Any]:
    """Returns the class, extended by __len__."""
    return type(
        f"{kind.__name__}WithLength",
        (kind,),
        {"__len__": lambda self: self.size, "_without_length": kind, "__module__": __name__},
    )


def _made_with_length(kind: type[Any], state: dict[str, Any]) -> Any:
    made: Any = object.__new__(_with_length(kind))
    made.__dict__.update(state)
    return made


def _run(stage: Any, items: Iterator[Any]) -> Iterator[Any]:
    """Applies a stage to an iterator."""
    if isinstance(stage, PipelineStage):
        return iter(stage.run(items))
    if callable(stage):
        return iter(stage(items))
    raise InvalidArgument(
        f"the pipeline has the stage {stage!r:.60}; give a function of an iterator"
    )


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _source_of(head: list[Any]) -> ShardSource:
    """Returns the source for a list of shards, the stages that select shards, and
    tarfile_to_samples()."""
    listed, *picks, expander = head
    options: dict[str, Any] = {"nodesplitter": None, "workersplitter": None, "filters": []}
    options["empty_check"] = False  # a pipeline has wds.non_empty for that
    options["seed"] = listed.seed if isinstance(listed.seed, int) else None
    options["shardshuffle"] = isinstance(listed, SimpleShardList) and listed.seed is not None
    for pick in picks:
        bufsize = stages.bufsize_of(pick)
        if bufsize is not None:
            options["shardshuffle"] |= bufsize > 0
        elif pick in (split_by_node, single_node_only):
            options["nodesplitter"] = pick
        elif pick is split_by_worker:
            options["workersplitter"] = pick
        elif isinstance(pick, stages.Stage) and pick.f is stages.resampled.f:
            if pick.argument("n") is not None:
                raise Unsupported(
                    "resampled(n) of shards is not supported; leave out n, and limit a pass by "
                    ".with_epoch(samples)"
                )
            options["resampled"] = True
        else:
            options["filters"].append(_Picking(pick))
    refuse_renaming(expander.argument("rename_files"))
    options.update({name: expander.argument(name) for name in ("handler", "select_files")})
    if isinstance(listed, ResampledShards):
        options.update(resampled=True, seed=listed.seed)
    return ShardSource(listed.urls, **options)


class _Picking:
    """A stage that selects shards, as a function of an iterator."""

    def __init__(self, stage: Any) -> None:
        self.stage, self.__name__ = stage, stages.name_of(stage)

    def __call__(self, items: Iterator[Any]) -> Iterator[Any]:
        return _run(self.stage, items)


def inexact_reasons(behind: Iterable[Any]) -> list[str]:
    """Says why there is no exact state after stages that keep items, count them, or draw at
    random."""
    names = [stages.name_of(one) for one in behind if stages.kind_of(one) == stages.KEEPS]
    if not names:
        return []
    return [
        f"{', '.join(names)} may keep, count or draw items: shuffle before decode() and batched(), "
        "use .map() for functions of one sample, and leave out unbatched() and slice()"
    ]


@suggests
class WebDataset(DataPipeline, FluidInterface):
    """The samples of shards, as dicts of ``__key__``, ``__url__`` and bytes by field.

    urls: a path or URL, also with braces and ``::``, or a list; local files, http, https, s3,
        ``pipe:`` commands, and a folder if it ends in "/". A URL that comes n times gives its
        samples n times.
    shardshuffle: shards in a random order; 0, False or None: as listed. resampled: draw with
    replacement, endlessly. seed: of the order; by default WDS_SEED, or 0.
    nodesplitter: by default, or with split_by_node, each sample is given to one rank; with None,
        every rank gets all samples. A function of yours gets an iterator over ``{"url": ...}``, and
        selects the shards of this process. workersplitter: the same for a DataLoader's workers.
    cache_dir, cache_size: where remote and compressed shards are kept, and the bytes that they may
        take (64 GiB by default); all processes of a machine share them.
    handler: how to treat shards and samples that cannot be read. select_files: a function of a
        member's name. empty_check: raise InvalidArgument if there is no sample. url_to_name,
        verbose and repeat are accepted and ignored.
    """

    def __init__(
        self,
        urls: Any,
        handler: Any = reraise_exception,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: Any = None,
        cache_size: int = -1,
        cache_dir: str | None = None,
        url_to_name: Any = None,
        detshuffle: bool = False,
        nodesplitter: Any = single_node_only,
        workersplitter: Any = split_by_worker,
        select_files: Any = None,
        rename_files: Any = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
    ) -> None:
        refuse_renaming(rename_files)
        super().__init__(
            ShardSource(
                urls,
                handler=handler,
                resampled=resampled or mode == "resampled",
                shardshuffle=shardshuffle,
                cache_size=cache_size,
                cache_dir=cache_dir,
                nodesplitter=nodesplitter,
                workersplitter=workersplitter,
                select_files=select_files,
                empty_check=empty_check,
                seed=seed,
            )
        )
        self.seed = os.environ.get("WDS_SEED", 0) if seed is None else seed


class FluidWrapper(DataPipeline, FluidInterface):
    """A pipeline over anything that can be iterated, with the stages as methods."""

    def __init__(self, initial: Any) -> None:
        super().__init__()
        self.append(initial)


__all__ = ["DataPipeline", "FluidWrapper", "WebDataset"]
