"""repack(): samples of a dataset in new shards."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import BuiltinFunctionType, FunctionType
from typing import Any

from . import _core
from .arguments import path_of, refuse, require, whole_number
from .encoding import Encoder, encoders_of
from .errors import InvalidArgument
from .records import Progress, RepackReport
from .writing import key_and_fields

_NO_LIMIT = 2**64 - 1
_RESULTS = "return a dict of fields, several dicts, or None"

# Returns a dict of fields for a new sample, several such dicts, or None to leave the sample out.
Change = Callable[[_core.Sample], "Mapping[str, Any] | Iterable[Mapping[str, Any]] | None"]


class _Writer:
    """Writes single shards. Workers get a copy."""

    def __init__(
        self,
        data: _core.Dataset,
        pattern: str,
        function: Change,
        encoders: Mapping[str, Encoder] | None,
    ) -> None:
        self._data = data
        self._pattern = pattern
        self._function = function
        self._encoders = encoders_of(encoders)
        self.stop: Any = None

    def write(self, shard: int, numbers: list[int]) -> int:
        """Writes the shard, unless the function leaves out all samples. Returns their number."""
        core = _core.ShardWriter(
            self._pattern, max_samples=_NO_LIMIT, max_bytes=_NO_LIMIT, replace=False, first=shard
        )
        for number in numbers:
            if self.stop is not None and self.stop.is_set():
                return 0  # the unfinished shard is dropped with its writer
            sample = self._data[number]
            try:
                for new in _samples_of(self._function(sample), sample.key):
                    core.write(*key_and_fields(new, self._encoders))
            except Exception as error:
                error.add_note(f"repack() was at sample {number}, key {sample.key!r}")
                raise
        core.close()
        return core.num_samples


def _samples_of(result: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yields the new samples that the function has made of the sample with this key."""
    if result is None:
        return
    if isinstance(result, (Mapping, _core.Sample)):
        result = (result,)
    require("function", result, Iterable, _RESULTS)
    for new in result:
        require("function", new, (Mapping, _core.Sample), _RESULTS)
        yield {"__key__": key, **dict(new)}


def _name_of(function: Any) -> str:
    """The name of a function, by which a call recognises its own shards. For a partial, a method
    or an object, the name contains a hash of its pickle."""
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    if isinstance(function, (FunctionType, BuiltinFunctionType, type)):
        return name
    try:
        state = pickle.dumps(function, protocol=4)
    except Exception:  # workers that are forked need no pickles
        return name
    return f"{name} {hashlib.blake2b(state, digest_size=16).hexdigest()}"


_writer: _Writer


def _begin_worker(writer: _Writer, stop: Any) -> None:
    global _writer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process stops the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _writer = writer
    _writer.stop = stop


def _end_with_parent() -> None:
    """Ends a worker whose main process was killed. It would write shards that the next call
    writes."""
    import multiprocessing
    from multiprocessing.connection import wait as wait_for

    parent = multiprocessing.parent_process()
    assert parent is not None
    wait_for([parent.sentinel])
    os._exit(1)


def _write(shard: int, numbers: list[int]) -> int:
    return _writer.write(shard, numbers)


def repack(
    data: _core.Dataset,
    directory: str | os.PathLike[str],
    function: Change | None = None,
    *,
    shuffle: int | None = None,
    max_samples: int = 1000,
    max_bytes: float = float("inf"),
    prefix: str = "shard-",
    index: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    restart: bool = False,
    encoders: Mapping[str, Encoder] | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> RepackReport:
    """Writes the samples of a dataset or view into new shards, and builds their index.

    >>> few = shardwise.open("train.idx").where("cls < 5")
    >>> report = shardwise.repack(few, "few", shuffle=1)
    >>> len(shardwise.open(report.path)) == len(few)
    True

    function: gets a Sample, and returns the fields of the new sample as ShardWriter.write() takes
        them, several such dicts, or None to leave the sample out. Without "__key__" a new sample
        has the key of the old one. Without a function, keys, fields and bytes do not change.
    shuffle: seed of a permutation of all samples; None keeps their order.
    max_samples, max_bytes: maximum of a new shard. With a function they count the samples that it
        gets, so that the result does not depend on the workers; a shard of which it leaves out all
        samples is not written.
    prefix: beginning of the names of the shards. index: path of the index, by default shards.idx in
        the directory; it has the metadata columns of the old index.
    workers: processes that call the function, or without a function threads that copy; 0 means the
        calling process, None means one per core. The start method is multiprocessing's default.
    restart: remove the shards of an earlier call in this directory, and begin again.
    encoders: as for ShardWriter. progress: called after each shard.

    Resume: if a call is interrupted, the next call with the same data, options and function keeps
    the complete shards and continues. Functions and encoders are compared by name, those with a
    state (partials, methods, objects) also by their pickles.
    Memory: one sample per worker.
    Errors: InvalidArgument if there is no sample, if two samples of one new shard have the same
    key, or if the directory has shards already. restart does not remove shards of ``data``.
    Errors: exceptions of the function, with a note that names the sample; OSError.
    """
    require("data", data, _core.Dataset, "give a Dataset, from shardwise.open()")
    require("function", function, Callable, "give a function of a Sample", none=True)  # type: ignore[arg-type]
    if "/" in prefix:
        refuse("prefix", prefix, "give a name without a slash; the folder is the directory")
    folder = path_of(directory)
    options: dict[str, Any] = {
        "shuffle": None if shuffle is None else whole_number("shuffle", shuffle),
        "max_samples": whole_number("max_samples", max_samples),
        "max_bytes": _NO_LIMIT if max_bytes >= _NO_LIMIT else int(max_bytes),
        "prefix": prefix,
        "index": "" if index is None else path_of(index),
        "threads": None if workers is None else whole_number("workers", workers, 65535),
        "restart": restart,
    }
    if function is None:
        if encoders is not None:
            raise InvalidArgument(
                "encoders= is given without a function; give the function whose values are encoded"
            )
        return RepackReport(*_core.repack(data, folder, progress=progress, **options))
    names = [_name_of(function)]
    names += [f"{kind}={_name_of(encode)}" for kind, encode in sorted((encoders or {}).items())]
    work = _core.Repacking(data, folder, function="; ".join(names), **options)
    pattern = os.path.join(folder, prefix).replace("%", "%%").replace("{", "{{")
    writer = _Writer(data, pattern.replace("}", "}}") + "%06d.tar", function, encoders)
    try:
        _write_all(work, writer, workers, progress)
        return RepackReport(*work.finish())
    finally:
        work.unlock()  # the traceback of an exception may keep `work`


def _write_all(
    work: _core.Repacking,
    writer: _Writer,
    workers: int | None,
    progress: Callable[[Progress], object] | None,
) -> None:
    num_samples = num_done = 0

    def count(written: int) -> None:
        nonlocal num_samples, num_done
        num_samples += written
        num_done += 1
        if progress is not None:
            progress(Progress(0, 0, num_done, work.num_shards, num_samples))

    missing = [shard for shard in range(work.num_shards) if not work.is_written(shard)]
    num_done = work.num_shards - len(missing)
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    workers = min(workers, len(missing))
    if workers == 0:
        for shard in missing:
            count(writer.write(shard, work.samples(shard)))
        return
    import multiprocessing

    stop = multiprocessing.Event()
    with ProcessPoolExecutor(
        workers, initializer=_begin_worker, initargs=(writer, stop)
    ) as pool:
        running: set[Future[int]] = set()
        try:
            for shard in missing:
                if len(running) >= 2 * workers:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for one in done:
                        count(one.result())
                running.add(pool.submit(_write, shard, work.samples(shard)))
            for one in running:
                count(one.result())
        except BrokenProcessPool as error:
            error.add_note("a worker of repack() was killed; repeat the call to continue")
            raise
        except BaseException:
            stop.set()
            raise
