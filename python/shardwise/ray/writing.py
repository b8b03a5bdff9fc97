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

from ..arguments import path_of, refuse, whole_number
from ..errors import InvalidArgument, NotFound
from ..writing import ShardWriter
from .indexing import index as build_index
from .spec import naming_the_node


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
    """Writes shards aside; when all are written, gives them their names, in order. What tasks left
    that died, or were done twice, goes with the folder that they wrote to."""

    def __init__(
        self,
        directory: str,
        prefix: str,
        fields: dict[str, str] | None,
        max_samples: int,
        max_bytes: int,
        replace: bool,
    ) -> None:
        self._directory = directory
        self._prefix = prefix
        self._fields = fields
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self._replace = replace
        self._aside = os.path.join(directory, f".{prefix}-{os.urandom(6).hex()}.writing")
        self.report = WriteReport([], 0)

    def get_name(self) -> str:
        return "Shards"

    @property
    def min_bytes_per_write(self) -> int:
        """Tasks that make one shard each, where blocks are smaller than shards."""
        block = ray.data.DataContext.get_current().target_max_block_size or 0
        return max(self._max_bytes // 2, self._max_bytes - block)

    def there_already(self) -> list[str]:
        """Shards of this prefix; those of "a-b" are not of "a"."""
        if not os.path.isdir(self._directory):
            return []
        own = re.compile(re.escape(self._prefix) + r"-[0-9]{6,}\.tar", re.DOTALL)
        names = sorted(name for name in os.listdir(self._directory) if own.fullmatch(name))
        return [os.path.join(self._directory, name) for name in names]

    def on_write_start(self, schema: Any = None) -> None:
        os.makedirs(self._aside, exist_ok=True)

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Written:
        with naming_the_node():
            os.makedirs(self._aside, exist_ok=True)
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
        written: list[_Written] = sorted(write_result.write_returns)
        old = self.there_already()
        if old and not self._replace:  # since the beginning
            raise _there_already(old[0])
        paths = [path for task in written for path in task.paths]
        for path in old:
            os.unlink(path)
        final = [
            os.path.join(self._directory, f"{self._prefix}-{number:06}.tar")
            for number in range(len(paths))
        ]
        for path, name in zip(paths, final, strict=True):
            os.rename(path, name)
        shutil.rmtree(self._aside)
        self.report = WriteReport(final, sum(task.num_samples for task in written))

    def on_write_failed(self, error: Exception) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)


def _there_already(path: str) -> InvalidArgument:
    return InvalidArgument(f"there is a shard already: {path!r}; or give replace=True")


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
    index: a path; then tasks index the shards, and `columns` from their fields.
    concurrency, ray_remote_args: as of ray.data.Dataset.write_datasink().

    Shards appear when all are written, and the index after them. A task that died is done again,
    and leaves nothing twice. Raises InvalidArgument (a shard is there, rows without a key),
    NotFound, BadField, OSError.
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
        directory, prefix, None if fields is None else dict(fields), max_samples, max_bytes, replace
    )
    old = sink.there_already()
    if old and not replace:
        raise _there_already(old[0])
    options = data.context.execution_options
    kept = options.preserve_order
    options.preserve_order = True
    try:
        data.write_datasink(sink, concurrency=concurrency, ray_remote_args=ray_remote_args)
    finally:
        options.preserve_order = kept
    if index is not None:
        build_index(index, *sink.report.paths, columns=columns)
    return sink.report
