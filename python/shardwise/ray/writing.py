"""shardwise.ray.write(): a dataset of Ray Data as shards, in its order, with an index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ray.data
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink

from ..arguments import columns_of, path_of, refuse, require, whole_number
from ..errors import InvalidArgument, NotFound, Unsupported
from ..writing import ShardWriter
from .aside import SUFFIX, Aside, WriteReport
from .spec import local_path, naming_the_node

_SQLITE = b"SQLite format 3\0"


class _Written(NamedTuple):
    """The shards of one task, under the names that they have until all are written."""

    task: int
    paths: list[str]
    num_samples: int


class ShardSink(Datasink[_Written]):
    """Writes rows into shards in a folder. When all is written, `written` has those of the tasks
    that count, in order: others are of tasks that died, or were done twice."""

    def __init__(
        self, folder: str, fields: dict[str, str] | None, max_samples: int, max_bytes: int
    ) -> None:
        self._folder = folder
        self._fields = fields
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self.written: list[_Written] = []

    def get_name(self) -> str:
        return "Shards"

    @property
    def min_bytes_per_write(self) -> int:
        """Tasks that make one shard each, where blocks are smaller than shards."""
        block = ray.data.DataContext.get_current().target_max_block_size or 0
        return max(self._max_bytes // 2, self._max_bytes - block)

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Written:
        with naming_the_node():
            if not os.path.isdir(self._folder):
                raise NotFound(
                    f"there is no folder {self._folder!r}: shards are written to a directory that "
                    "all nodes share, or the write has ended meanwhile"
                )
            attempt = f"{ctx.task_idx:08}-{os.urandom(6).hex()}"
            pattern = os.path.join(self._folder, attempt).replace("%", "%%") + "-%06d" + SUFFIX
            with ShardWriter(pattern, self._max_samples, self._max_bytes) as sink:
                for block in blocks:
                    for row in _rows(block):
                        sink.write(self._sample_of(row))
            return _Written(ctx.task_idx, sink.paths, sink.num_samples)

    def _sample_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as a sample: its key, and the fields that it has."""
        if "__key__" not in row:
            raise InvalidArgument(
                f'rows have no column "__key__", by which samples are named: there are '
                f"{', '.join(row)}; make one by map(), or keep that of shardwise.ray.read()"
            )
        key = row["__key__"]
        if not isinstance(key, str):
            raise InvalidArgument(
                f"a key is a str, and this row has {key!r} as its \"__key__\"; make one by map()"
            )
        fields = self._fields
        if fields is None:
            fields = {name: name for name in row if not name.startswith("__")}
        missing = [column for column in fields if column not in row]
        if missing:
            raise NotFound(f"rows have no column {missing[0]!r}; there are {', '.join(row)}")
        sample = {field: row[column] for column, field in fields.items()}
        kept = {field: value for field, value in sample.items() if value is not None}
        return {"__key__": key, **kept}

    def on_write_complete(self, write_result: Any) -> None:
        self.written = sorted(write_result.write_returns)


def _rows(block: Any) -> Any:
    """Its rows. Those of pandas go through Arrow, where what pandas lacks is null, and not NaN."""
    table: Any = BlockAccessor.for_block(block).to_arrow()
    return BlockAccessor.for_block(table).iter_rows(public_row_format=True)


def _named_fields(fields: Any) -> dict[str, str] | None:
    """The names of the fields by column. Raises InvalidArgument if a column would be lost."""
    if fields is None:
        return None
    is_named = isinstance(fields, Mapping)
    named = dict(fields) if is_named else {name: name for name in columns_of(fields)}
    if not named:
        refuse("fields", fields, "name a column, or leave it out")
    columns: dict[str, str] = {}
    for column, field in named.items():
        if not isinstance(column, str) or not isinstance(field, str) or field.startswith("__"):
            refuse("fields", fields, 'names are texts, and no field begins with "__"')
        if field in columns:
            raise InvalidArgument(
                f"two columns would become the field {field!r}: {columns[field]!r} and {column!r}; "
                "give each field a name of its own"
            )
        columns[field] = column
    return named


def _index_path(index: str | os.PathLike[str], directory: str) -> str:
    """Raises what the index would run into when all is written: no folder, or another file."""
    path = local_path("index", index)
    if os.path.dirname(path) == directory and not os.path.exists(directory):
        return path  # it is made with the shards
    if not os.path.isdir(os.path.dirname(path)):
        raise NotFound(f"there is no folder for the index {path!r}; make it first")
    if not os.access(os.path.dirname(path), os.W_OK):
        raise InvalidArgument(f"the folder of the index {path!r} is read-only; choose another")
    if os.path.exists(path):
        if not os.path.isfile(path):
            raise InvalidArgument(f"the index would be a file, and {path!r} is none; name a file")
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
    hashes: bool = False,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> WriteReport:
    """Writes the rows of a dataset as samples into shards, in the dataset's order.

    directory: on a file system that all nodes share, and no URL; the shards are
        prefix-000000.tar, prefix-000001.tar ... in it. Neither name has a brace.
    fields: names of the columns that become fields, or a dict of the fields' names by column; by
        default all columns but those with "__". The column "__key__" has the samples' keys. A value
        that is null is left out; others become bytes as of shardwise.ShardWriter.
    max_samples, max_bytes: of a shard, at most. Ray holds some max_bytes a task in memory.
    replace: shards of this prefix that are there are removed when the new ones are written.
    index: a path, in the directory or elsewhere; then tasks index the shards, and `columns` from
        their fields, before these have their names. columns, hashes: as of shardwise.index().
    concurrency: as of ray.data.Dataset.write_datasink(). ray_remote_args: options of the tasks that
        write, and of those that index, as of ray.remote().

    Shards appear when all are written and indexed, and the index after them; a write that fails
    before leaves nothing, nor does a task that died and is done again. If naming them fails, or
    this process dies meanwhile, no row is lost: the next write() there finishes it, says so, and
    raises InvalidArgument; with replace=True it writes anew. Raises InvalidArgument (a shard is
    there, another write is at work, or rows have no key), Unsupported (a dataset with a
    checkpoint_config), NotFound, BadField, OSError; of an index what shardwise.index() raises, and
    Mismatch if it has not as many samples as there were rows.
    """
    require("data", data, ray.data.Dataset, "give a ray.data.Dataset")
    directory = local_path("directory", directory)
    named = _named_fields(fields)
    require("prefix", prefix, str, "give the beginning of the shards' names: train")
    if not path_of(prefix) or "/" in prefix or prefix.startswith("."):
        refuse("prefix", prefix, "give the beginning of the shards' names: train")
    for name, text in (("directory", directory), ("prefix", prefix)):
        if "{" in text or "}" in text:
            refuse(name, text, "braces are patterns where shards are named; leave them out")
    for name, value in (("max_samples", max_samples), ("max_bytes", max_bytes)):
        if whole_number(name, value) < 1:
            refuse(name, value, "give a whole number, 1 or more")
    if getattr(data.context, "checkpoint_config", None) is not None:
        raise Unsupported(
            "the dataset has a checkpoint_config, and shards are written all or not at all: rows "
            "that the checkpoint of a write that failed counts as written would be missing; leave "
            "checkpoint_config out"
        )
    wanted = None if index is None else _index_path(index, directory)
    names = columns_of(columns)
    if names and wanted is None:
        raise InvalidArgument(
            f"columns are taken by an index, and none is made: {', '.join(names)}; give index="
        )
    require("hashes", hashes, bool, "give True or False")
    if hashes and wanted is None:
        raise InvalidArgument("hashes are kept by an index, and none is made; give index=")
    with Aside(directory, prefix, replace) as aside:
        sink = ShardSink(aside.folder, named, max_samples, max_bytes)
        options = data.context.execution_options
        kept = options.preserve_order
        options.preserve_order = True
        try:
            data.write_datasink(sink, concurrency=concurrency, ray_remote_args=ray_remote_args)
        finally:
            options.preserve_order = kept
        paths = [path for task in sink.written for path in task.paths]
        num_samples = sum(task.num_samples for task in sink.written)
        return aside.put(paths, num_samples, wanted, names, hashes, ray_remote_args or {})
