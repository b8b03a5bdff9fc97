"""WebLoader: a DataLoader followed by stages."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

from ..errors import InvalidArgument, Unsupported
from . import stages
from .base import DataLoader, Items, pytorch_worker_info
from .fluid import FluidInterface
from .pipeline import DataPipeline, _plan, inexact_reasons
from .source import Place, Start
from .states import VERSION, gathered


class _Telling(Items):
    """Yields a pipeline's items, each with its worker and with the worker's position after the
    item."""

    def __init__(self, pipeline: DataPipeline) -> None:
        super().__init__()
        self.pipeline = pipeline

    def __iter__(self) -> Iterator[Any]:
        items = iter(self.pipeline)
        worker = pytorch_worker_info()[2]
        for item in items:
            stream = self.pipeline._stream
            if stream is None:
                raise InvalidArgument(
                    "set_epoch() or load_state_dict() was called within the loop; begin a new loop"
                )
            yield (worker, *stream.place), item

    def __getattr__(self, name: str) -> Any:
        if name == "pipeline":
            raise AttributeError(name)
        return getattr(self.pipeline, name)


class _Collate:
    """Collates items, and adds the position after the last one. buffers: those of the iterator
    whose workers start now."""

    def __init__(self, collate: Any, makes_batches: bool) -> None:
        self.collate, self.makes_batches = collate, makes_batches
        self.buffers: Any = None

    def __call__(self, items: Any) -> Any:
        if self.makes_batches:
            place, item = items[-1][0], self.collate([item for _, item in items])
        else:
            place, item = items[0], self.collate(items[1])
        return place, item if self.buffers is None else self.buffers.packed(item)


def _collate_of(given: Any, makes_batches: bool) -> _Collate:
    from torch.utils.data import default_collate, default_convert

    return _Collate(given or (default_collate if makes_batches else default_convert), makes_batches)


def _buffers_of(loader: Any) -> Any:
    try:
        from .shared_buffers import SharedBuffers
    except ImportError:  # no NumPy
        return None
    return SharedBuffers.of(loader)


_Base: Any = object if DataLoader is None else DataLoader


class _Loader(_Base):  # type: ignore[misc, unused-ignore]
    """A DataLoader over a pipeline that records each worker's position after the last yielded
    item."""

    def __init__(self, pipeline: DataPipeline, batch_size: Any = 1, *args: Any, **kw: Any) -> None:
        kw["collate_fn"] = _collate_of(kw.get("collate_fn"), batch_size is not None)
        self._pipeline = pipeline
        self.forget()
        super().__init__(_Telling(pipeline), batch_size, *args, **kw)

    def forget(self) -> None:
        """Drops the state of the current pass, because the pipeline's next pass was changed."""
        start = self._pipeline._start
        self._next = start.number if start is not None else self._pipeline._passes.next
        self.place_of: list[Place] | None = None
        self.last: tuple[Start, list[Place]] | None = None  # the pass that has just ended
        self._iterator = None  # persistent workers do not know the new position

    def start(self) -> Start:
        """Returns where the current pass, or the next one, begins."""
        number = self._next
        start = self._pipeline._start
        return start if start is not None and start.number == number else Start(number)

    def stands(self) -> tuple[Start, list[Place]]:
        """Returns where the pass began, and each worker's place. After a pass, those of that
        pass."""
        if self.last is not None:
            return self.last
        start = self.start()
        return start, self.place_of or [Place(start.repetition)] * max(1, self.num_workers)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override, unused-ignore]
        self.last = None
        self.place_of = [Place(self.start().repetition)] * max(1, self.num_workers)
        self._pipeline._passes.choose(self._next)
        return self._told(self._begun())

    def _begun(self) -> Any:
        """Returns an iterator whose workers send large arrays in buffers of its own."""
        if self.persistent_workers and self._iterator is not None:
            return super().__iter__()
        self.collate_fn.buffers = buffers = _buffers_of(self)
        try:
            items: Any = super().__iter__()
        finally:
            self.collate_fn.buffers = None
        items.buffers = buffers  # which live as long as the workers
        return items

    def _told(self, items: Iterator[Any]) -> Iterator[Any]:
        places = self.place_of
        assert places is not None
        for (worker, *place), item in items:
            places[worker] = Place(*place)
            yield item
        self.move_on()

    def move_on(self) -> None:
        """Ends the pass, complete or not."""
        self.last = self.stands()
        self._next += 1
        self.place_of = None
        self._pipeline._passes.choose(-1)
        self._pipeline._passes.set(self._next)


def _is_lightning(frame: FrameType) -> bool:
    """Whether the caller is Lightning, which requests a state at each checkpoint even if it needs
    none."""
    return str(frame.f_globals.get("__name__")).startswith(("lightning.", "pytorch_lightning."))


def _warn_of_no_state(reason: object) -> None:
    warnings.warn(
        "the checkpoint lacks the position of this loader, so a resumed run restarts the pass: "
        f"{reason}",
        stacklevel=3,
    )


class WebLoader(DataPipeline, FluidInterface):
    """torch's DataLoader, followed by the stages of a pipeline.

    Arguments: those of DataLoader. Its batch_size is 1 by default; give None if the pipeline
    makes batches. state_dict() and load_state_dict() are exact within a pass, for any number of
    ranks and workers, if each item depends only on the input of its stages.
    """

    def __init__(self, *args: Any, **kw: Any) -> None:
        if DataLoader is None:
            raise Unsupported(
                "a WebLoader needs torch; install torch, or iterate over the dataset itself"
            )
        dataset = args[0] if args else kw.get("dataset")
        super().__init__()
        self._loader: _Loader | None = None
        if isinstance(dataset, DataPipeline) and _plan(dataset._steps()) is not None:
            rest = dict(kw)
            rest.pop("dataset", None)
            if dataset._loaded_by is not None:  # each loader counts its own passes
                dataset = dataset.compose()
            self._loader = _Loader(dataset, *args[1:], **rest)
            dataset._block = max(1, self._loader.batch_size or 1)
            dataset._loaded_by = weakref.WeakSet([self])
            self.pipeline = [self._loader]
        else:
            self.pipeline = [DataLoader(*args, **kw)]

    def compose(self, *args: Any) -> Self:
        """Returns a copy with these stages appended. If the position of the pipeline changes, all
        copies are notified."""
        result = super().compose(*args)
        if self._loader is not None:
            loaded = self._loader._pipeline
            loaded._loaded_by = loaded._loaded_by or weakref.WeakSet([self])
            loaded._loaded_by.add(result)
        return result

    def __iter__(self) -> Iterator[Any]:
        loader = self._loader
        given, self._given_before = self._given_before, 0
        if loader is not None:
            loader._pipeline._is_loaded = False
        if loader is not None and loader.place_of is not None:
            loader.move_on()  # the previous loop did not reach its end
        return self._counted(self._python_items(), given)

    def _end_pass(self) -> None:
        super()._end_pass()
        if self._loader is not None and self._loader.place_of is not None:
            self._loader.move_on()

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next pass. Call it on all ranks."""
        if self._dataset()._set_epoch(epoch):
            self._moved()

    def _dataset(self) -> DataPipeline:
        if self._loader is None:
            dataset = self.pipeline[0].dataset
            if isinstance(dataset, DataPipeline):
                dataset._stateful()  # raises with the reason if there is one
            raise Unsupported(
                f"a loader over {stages.name_of(dataset)} has no state; give it a WebDataset, or "
                "use a shardwise.Loader"
            )
        return self._loader._pipeline

    def _moved(self) -> None:
        assert self._loader is not None
        self._loader.forget()
        self._given = self._given_before = 0
        self._is_over = False

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the pass after the last yielded item, for load_state_dict() on
        any number of ranks and workers.

        Call it on every rank at the same step. If torch.distributed is initialised, each rank
        gets the whole state; else load_state_dict() needs a list of all. Raises Unsupported,
        naming the stage: there is no state after buffers over samples, unbatched(), slice() and
        generators.
        """
        if not _is_lightning(sys._getframe(1)):
            return self._whole_state()
        try:
            if not hasattr(self, "__len__"):
                raise Unsupported(
                    "the loader has no length, so Lightning reads a batch ahead of it; add "
                    ".with_length(batches) to the loader"
                )
            return self._whole_state()
        except Unsupported as error:
            _warn_of_no_state(error)
            return {"version": VERSION, "no_state": str(error)}

    def _whole_state(self) -> dict[str, Any]:
        dataset = self._dataset()
        reasons = inexact_reasons(self.pipeline[1:])
        if self.repetitions > 1:
            reasons.append("repeat() or with_epoch() of a WebLoader: call it on its dataset")
        source = dataset._steps()[0]
        if not source.deals_to_workers and source.own_filter is None:
            reasons.append("each worker gives all samples: leave out workersplitter=None")
        plan = dataset._stateful(reasons)
        assert self._loader is not None
        dealing = plan.source.dealing(plan.block * dataset._block)
        return gathered(self._part(plan, *self._loader.stands(), dealing))

    def load_state_dict(self, state_dict: Any) -> None:
        """Makes the next pass continue the pass in which state_dict() was called. See
        DataPipeline.load_state_dict()."""
        if isinstance(state_dict, dict) and "no_state" in state_dict:
            _warn_of_no_state(state_dict["no_state"])
            return
        dataset = self._dataset()
        dataset._stateful(inexact_reasons(self.pipeline[1:]))
        dataset.load_state_dict(state_dict)
        self._moved()
        self._given = self._given_before = dataset._given_before
        dataset._given_before *= dataset._block

    def _limit(self) -> int:
        dataset = self._dataset()
        own, inner = super()._limit(), dataset._limit()
        assert self._loader is not None
        return own or -(-inner // dataset._block) * max(1, self._loader.num_workers)


__all__ = ["WebLoader"]
