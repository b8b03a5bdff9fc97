"""Writing shards: ShardWriter, TarWriter, pack()."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from . import _core
from .arguments import columns_of, path_of, require, suggests, whole_number
from .encoding import Encoder, encoded, encoders_of
from .errors import InvalidArgument
from .records import PackReport, Progress

_NO_LIMIT = 1 << 62


def _field_of(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a field is {name!r}; give a str")
    return name


def key_and_fields(
    sample: Mapping[str, Any], encoders: Mapping[str, Encoder] | None
) -> tuple[str, dict[str, Any]]:
    """Returns a sample's key, and its encoded fields by name."""
    fields = {
        name: encoded(name, value, encoders)
        for name, value in sample.items()
        if not _field_of(name).startswith("__")
    }
    key = sample["__key__"]
    if not isinstance(key, str):
        raise InvalidArgument(f'the "__key__" is {key!r}; give a str')
    return key, fields


def _warn_of_loss(core: _core.ShardWriter, names: str, index: str | None, process: int) -> None:
    """Warns of unwritten samples if an unclosed writer is dropped, or exists at exit."""
    if core.num_samples == 0 or os.getpid() != process:  # no warning for the copy in a forked child
        return
    lost = [f"the last {core.num_unfinished} of its {core.num_samples} samples are not written"]
    if index is not None:
        lost.append(f"the index {index!r} was not made")
    warnings.warn(
        f"a writer of {names!r} was not closed: {', and '.join(lost)}; use a with block, or call "
        "close()",
        stacklevel=2,
    )


class _Abandoned:
    """Takes the place of a writer's core after an exception has left its block."""

    def __init__(self, paths: list[str], num_samples: int) -> None:
        self.paths = paths
        self.num_samples = num_samples

    def write(self, key: str, fields: Mapping[str, Any]) -> None:
        raise InvalidArgument("an exception has ended this writer; make another writer")


class WithBlock:
    """Base of writers: the end of a with block closes them, unless an exception ends the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def close(self) -> None:
        """Finishes what is written."""
        raise NotImplementedError

    def _abandon(self) -> None:
        raise NotImplementedError


class _Writer(WithBlock):
    """Base of ShardWriter and TarWriter. Warns if it is dropped unclosed."""

    def __init__(
        self,
        names: str,
        core: _core.ShardWriter,
        index: str | os.PathLike[str] | None,
        columns: tuple[str, ...] | list[str],
        encoders: Mapping[str, Encoder] | None,
    ) -> None:
        self._names = names
        self._core: _core.ShardWriter | _Abandoned = core
        self._index = None if index is None else path_of(index)
        self._columns = columns_of(columns)
        self._encoders = encoders_of(encoders)
        self._loss = weakref.finalize(self, _warn_of_loss, core, names, self._index, os.getpid())

    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes a sample: a dict of "__key__" and of values by field. Other names that begin with
        "__" are left out.

        Threads may share a writer; a forked child may not use it. Raises InvalidArgument if a
        reader would not find this key with these fields; BadField.
        """
        require("sample", sample, Mapping, 'give a dict of "__key__" and of values by field')
        if "__key__" not in sample:
            raise InvalidArgument(
                'the sample has no "__key__", only '
                + ", ".join(map(str, sample))
                + '; add a "__key__"'
            )
        self._core.write(*key_and_fields(sample, self._encoders))

    def close(self) -> None:
        """Finishes the last shard, and makes the index. Without samples, raises InvalidArgument if
        an index or a single shard was requested."""
        if self._loss.detach() is None or isinstance(self._core, _Abandoned):
            return
        self._core.close()
        self._finish(self._core.paths)

    def _finish(self, paths: list[str]) -> None:
        """Builds the index of the written shards."""
        if self._index is None:
            return
        if not paths:
            raise InvalidArgument(
                f"no sample was written: {self._names!r}, so the index {self._index!r} was not "
                "made; write at least one sample"
            )
        from .building import index

        index(self._index, *paths, columns=self._columns)

    def _abandon(self) -> None:
        self._loss.detach()
        self._core = _Abandoned(self._core.paths, self._core.num_samples)


@suggests
class ShardWriter(_Writer):
    """Writes samples into tar shards, one after another, and on request an index of them.

    >>> with shardwise.ShardWriter("new-%06d.tar", index="new-shards.idx") as sink:
    ...     for i in range(10):
    ...         sink.write({"__key__": f"{i:06}", "json": {"number": i}, "cls": i % 3})
    >>> shardwise.open("new-shards.idx")[5].json("json")
    {'number': 5}

    Equal samples make equal bytes on every machine. A shard appears under its name only when it is
    complete. If an exception leaves the block, complete shards remain, and no index is made. A
    writer that is dropped without close() warns of the samples that are lost.

    pattern: path of the shards with one number, e.g. "train-%06d.tar" or "train-{:06}.tar".
    max_samples, max_bytes: maximum number of samples, and of bytes, in a shard.
    replace: replace existing shards instead of raising. close() also removes the remaining shards
        of an earlier, larger set that a ShardWriter or `shardwise pack` wrote.
    index: path of the index. columns: metadata that it takes from fields. encoders: as for
        encoded().
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        max_samples: int = 100_000,
        max_bytes: float = 3e9,
        *,
        replace: bool = False,
        index: str | os.PathLike[str] | None = None,
        columns: tuple[str, ...] | list[str] = (),
        encoders: Mapping[str, Encoder] | None = None,
    ) -> None:
        names = path_of(pattern)
        _refuse_compressed(names)
        core = _core.ShardWriter(
            names,
            max_samples=whole_number("max_samples", max_samples),
            max_bytes=int(min(max_bytes, _NO_LIMIT)),
            replace=replace,
        )
        super().__init__(names, core, index, columns, encoders)

    @property
    def paths(self) -> list[str]:
        """Paths of the finished shards."""
        return self._core.paths

    @property
    def num_samples(self) -> int:
        """Samples written so far."""
        return self._core.num_samples


@suggests
class TarWriter(_Writer):
    """Writes samples into one shard, which appears when it is closed. Otherwise like
    ShardWriter."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        replace: bool = False,
        index: str | os.PathLike[str] | None = None,
        columns: tuple[str, ...] | list[str] = (),
        encoders: Mapping[str, Encoder] | None = None,
    ) -> None:
        path = path_of(path)
        _refuse_compressed(path)
        self._replace = replace
        if os.path.exists(path) and not replace:
            raise _there_already(path)
        # The writer numbers its shards. This shard is renamed to `path` when it is complete.
        folder, name = os.path.split(os.path.abspath(path))
        part = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.part-")
        core = _core.ShardWriter(
            part.replace("%", "%%") + "%d.tar",
            max_samples=_NO_LIMIT,
            max_bytes=_NO_LIMIT,
            replace=False,
        )
        super().__init__(path, core, index, columns, encoders)

    def _finish(self, paths: list[str]) -> None:
        if not paths:
            raise InvalidArgument(
                f"no sample was written: {self._names!r}; write at least one sample"
            )
        self._take_place(paths[0])
        super()._finish([self._names])

    def _take_place(self, part: str) -> None:
        """Gives the shard its name, unless another writer has created such a file meanwhile."""
        try:
            if not self._replace:
                try:
                    os.link(part, self._names)
                    return
                except FileExistsError:
                    raise _there_already(self._names) from None
                except OSError:  # the file system has no hard links
                    if os.path.lexists(self._names):
                        raise _there_already(self._names) from None
            os.replace(part, self._names)
        finally:
            with contextlib.suppress(FileNotFoundError):  # os.replace() has removed it
                os.unlink(part)


def _there_already(path: str) -> InvalidArgument:
    return InvalidArgument(
        f"the file already exists: {path!r}; choose another name, or give replace=True"
    )


def _refuse_compressed(path: str) -> None:
    if path.endswith((".gz", ".tgz", ".bz2", ".xz", ".zst", ".lz4")):
        raise InvalidArgument(
            f"compressed shards are not written, because samples are read in place: {path!r}; "
            "end the name in .tar; to compress a field, end its name with .gz, e.g. json.gz"
        )


@suggests
def pack(
    pattern: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    files: str | os.PathLike[str] | None = None,
    max_samples: int = 1000,
    max_bytes: float = float("inf"),
    shuffle: bool = False,
    seed: int = 0,
    replace: bool = False,
    index: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> PackReport:
    """Makes shards from files, as `shardwise pack` does: the same files give the same shards.

    images: a folder with one folder of images per class; the class number, from 0 in the order of
        the folders' names, becomes the field cls. files: a folder of files that are grouped by
        their names up to the first dot. Give one of the two.
    pattern, max_samples, max_bytes, replace, index: as for ShardWriter. shuffle: shuffle the
        samples, by seed.
    progress: called once per shard.

    Raises NotFound (no folder, no sample), InvalidArgument, OSError.
    """
    if (images is None) == (files is None):
        raise InvalidArgument("pack() needs either images or files; give one of them")
    folder = images if images is not None else files
    assert folder is not None
    samples, classes, left_out = _core.list_to_pack(path_of(folder), images is not None)
    if shuffle:
        samples = _core.shuffled(samples, seed)
    with ShardWriter(pattern, max_samples, max_bytes, replace=replace, index=index) as sink:
        shards = 0
        for key, members, class_number in samples:
            sample: dict[str, Any] = {"__key__": key}
            for field, path in members:
                with open(path, "rb") as file:
                    sample[field] = file.read()
            if class_number is not None:
                sample["cls"] = class_number
            sink.write(sample)
            if progress is not None and len(sink.paths) != shards:
                shards = len(sink.paths)
                progress(Progress(0, 0, shards, 0, sink.num_samples))
    return PackReport(sink.paths, sink.num_samples, classes, left_out)
