"""shardwise.ray.write(): a dataset of Ray Data as shards, in its order, with an index."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ray.data
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink

from ..arguments import columns_of, path_of, refuse, whole_number
from ..errors import InvalidArgument, Mismatch, NotFound
from ..writing import ShardWriter
from .indexing import Parts
from .spec import naming_the_node


_SQLITE = b"SQLite format 3\0"


class WriteReport(NamedTuple):
    """What writing a dataset made."""

    paths: list[str]
    """Of the shards, in order."""
    num_samples: int


class _Written(NamedTuple):
    """The shards of one task, under the names that they have until all are written."""

    task: int
    paths: list[str]
    num_samples: int


class ShardSink(Datasink[_Written]):
    """Writes shards aside, and indexes them there; then gives them their names, in order. What
    tasks left that died, or were done twice, goes with the folder that they wrote to.

    A driver that is killed leaves that folder, by which the next write knows of it: some shards may
    have their names by then, but each that has is whole, and was indexed if an index is asked for.
    """

    def __init__(
        self,
        directory: str,
        prefix: str,
        fields: dict[str, str] | None,
        max_samples: int,
        max_bytes: int,
        replace: bool,
        index: str | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        self._prefix = prefix
        self._fields = fields
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self._replace = replace
        self._index = index
        self._columns = columns
        self._aside = os.path.join(directory, f".{prefix}-{os.urandom(6).hex()}.writing")
        self.report = WriteReport([], 0)

    def get_name(self) -> str:
        return "Shards"

    @property
    def min_bytes_per_write(self) -> int:
        """Tasks that make one shard each, where blocks are smaller than shards."""
        block = ray.data.DataContext.get_current().target_max_block_size or 0
        return max(self._max_bytes // 2, self._max_bytes - block)

    def _named(self, pattern: str) -> list[str]:
        """What has a name of this pattern in the directory."""
        if not os.path.isdir(self._directory):
            return []
        wanted = re.compile(pattern, re.DOTALL)
        names = sorted(name for name in os.listdir(self._directory) if wanted.fullmatch(name))
        return [os.path.join(self._directory, name) for name in names]

    def _shards(self) -> list[str]:
        """Shards of this prefix; those of "a-b" are not of "a"."""
        return self._named(re.escape(self._prefix) + r"-[0-9]{6,}\.tar")

    def _left(self) -> list[str]:
        """Folders of other writes: of drivers that died, or are at work."""
        folders = self._named(rf"\.{re.escape(self._prefix)}-[0-9a-f]{{12}}\.writing")
        return [folder for folder in folders if folder != self._aside]

    def require_room(self) -> None:
        """Raises InvalidArgument if shards are there, or another write's folder is."""
        if self._replace:
            return
        left = self._left()
        if left:
            raise InvalidArgument(
                f"another write is at work there, or its driver died: {left[0]!r}, and shards of "
                f"the prefix {self._prefix!r} may be a part of what it wrote; if none is at work, "
                "give replace=True, which removes them all"
            )
        shards = self._shards()
        if shards:
            raise InvalidArgument(
                f"there is a shard already: {shards[0]!r}; write elsewhere, or give replace=True"
            )

    def on_write_start(self, schema: Any = None) -> None:
        os.makedirs(self._aside, exist_ok=True)

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Written:
        with naming_the_node():
            if not os.path.isdir(self._aside):
                raise NotFound(
                    f"there is no folder {self._aside!r}: shards are written to a directory that "
                    "all nodes share, or the write has ended meanwhile"
                )
            attempt = f"{ctx.task_idx:08}-{os.urandom(6).hex()}"
            pattern = os.path.join(self._aside, attempt).replace("%", "%%") + "-%06d.tar"
            with ShardWriter(pattern, self._max_samples, self._max_bytes) as sink:
                for block in blocks:
                    rows: Any = BlockAccessor.for_block(block).iter_rows(public_row_format=True)
                    for row in rows:
                        sink.write(self._sample_of(row))
            return _Written(ctx.task_idx, sink.paths, sink.num_samples)

    def _sample_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as a sample: its key, and the fields that it has."""
        if "__key__" not in row:
            raise InvalidArgument(
                f'rows have no column "__key__", by which samples are named: there are '
                f"{', '.join(row)}; make one by map(), or keep that of shardwise.ray.read()"
            )
        fields = self._fields
        if fields is None:
            fields = {name: name for name in row if not name.startswith("__")}
        missing = [column for column in fields if column not in row]
        if missing:
            raise NotFound(f"rows have no column {missing[0]!r}; there are {', '.join(row)}")
        sample = {field: row[column] for column, field in fields.items()}
        kept = {field: value for field, value in sample.items() if value is not None}
        return {"__key__": row["__key__"], **kept}

    def on_write_complete(self, write_result: Any) -> None:
        os.makedirs(self._aside, exist_ok=True)  # without rows no task was begun
        written: list[_Written] = sorted(write_result.write_returns)
        paths = [path for task in written for path in task.paths]
        names = [f"{self._prefix}-{number:06}.tar" for number in range(len(paths))]
        num_samples = sum(task.num_samples for task in written)
        aside = _renamed(paths, self._aside, names)
        parts = None
        if self._index is not None:
            if not paths:
                raise InvalidArgument(
                    f"there are no rows, and so no shards for the index {self._index!r}; leave out "
                    "index, or write a dataset that has rows"
                )
            parts = Parts(os.path.join(self._aside, "index"), None, {"columns": self._columns})
            _require_samples(num_samples, parts.build(aside, {}), self._directory)
        self.require_room()  # since the beginning
        for path in self._shards():
            os.unlink(path)
        self.report = WriteReport(_renamed(aside, self._directory, names), num_samples)
        if parts is not None and self._index is not None:
            parts.move(self.report.paths)
            parts.merge(self._index)
        for folder in (*self._left(), self._aside):
            shutil.rmtree(folder)

    def on_write_failed(self, error: Exception) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)


def _renamed(paths: list[str], directory: str, names: list[str]) -> list[str]:
    """Gives files these names in a directory; their new paths."""
    renamed = [os.path.join(directory, name) for name in names]
    for path, new in zip(paths, renamed, strict=True):
        os.rename(path, new)
    return renamed


def _require_samples(written: int, indexed: int, directory: str) -> None:
    if indexed != written:
        raise Mismatch(
            f"{written} rows were written to {directory!r}, and their shards have {indexed} "
            "samples: a shard was changed before it had its name, or a part of it was lost; write "
            "again, to a file system that keeps what all nodes write"
        )


def _index_path(index: str | os.PathLike[str]) -> str:
    """Raises what the index would run into when all is written: no folder, or another file."""
    path = os.path.abspath(path_of(index))
    if not os.path.isdir(os.path.dirname(path)):
        raise NotFound(f"there is no folder for the index {path!r}; make it first")
    if os.path.exists(path):
        with open(path, "rb") as file:
            if not file.read(len(_SQLITE)) == _SQLITE:
                raise InvalidArgument(
                    f"the file is no index, and is not replaced: {path!r}; choose another name"
                )
    return path


def write(
    data: ray.data.Dataset,
    directory: str | os.PathLike[str],
    *,
    fields: Sequence[str] | Mapping[str, str] | None = None,
    prefix: str = "shard",
    max_samples: int = 100_000,
    max_bytes: int = 256 << 20,
    replace: bool = False,
    index: str | os.PathLike[str] | None = None,
    columns: Sequence[str] = (),
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> WriteReport:
    """Writes the rows of a dataset as samples into shards, in the dataset's order.

    directory: on a file system that all nodes share; the shards are prefix-000000.tar,
        prefix-000001.tar ... in it.
    fields: names of the columns that become fields, or a dict of the fields' names by column; by
        default all columns but those with "__". The column "__key__" has the samples' keys. A value
        that is null is left out; others become bytes as of shardwise.ShardWriter.
    max_samples, max_bytes: of a shard, at most. Ray holds some max_bytes a task in memory.
    replace: shards of this prefix that are there are removed when the new ones are written.
    index: a path; then tasks index the shards, and `columns` from their fields, before these have
        their names.
    concurrency, ray_remote_args: as of ray.data.Dataset.write_datasink().

    Shards appear when all are written and indexed, and the index after them. A task that died is
    done again, and leaves nothing twice. If this process dies, the next write there says so, and
    replace=True removes what it left. Raises InvalidArgument (a shard is there, or another write,
    or rows without a key), NotFound, BadField, OSError; of an index what shardwise.index() raises,
    and Mismatch if it has not as many samples as there were rows: no shard has its name then.
    """
    directory = os.path.abspath(path_of(directory))
    if fields is not None and not isinstance(fields, Mapping):
        fields = {name: name for name in fields}
    if not prefix or "/" in prefix or prefix.startswith("."):
        refuse("prefix", prefix, "give the beginning of the shards' names: train")
    for name, value in (("max_samples", max_samples), ("max_bytes", max_bytes)):
        if whole_number(name, value) < 1:
            refuse(name, value, "give a whole number, 1 or more")
    sink = ShardSink(
        directory,
        prefix,
        None if fields is None else dict(fields),
        max_samples,
        max_bytes,
        replace,
        None if index is None else _index_path(index),
        columns_of(columns),
    )
    sink.require_room()
    options = data.context.execution_options
    kept = options.preserve_order
    options.preserve_order = True
    try:
        data.write_datasink(sink, concurrency=concurrency, ray_remote_args=ray_remote_args)
    finally:
        options.preserve_order = kept
    return sink.report
