"""shardwise.ray.write(): a dataset of Ray Data as shards, in its order, with an index.

A write goes to a fresh directory, and is complete once its index appears:

    step                                             if it fails          if the driver is killed
    1. DIRECTORY/.writing is made                    all that was made    it and what is in it stay:
    2. tasks write shards into it                    is removed           the next write there is
    3. the shards that count get their names                              refused
    4. tasks index them; the samples are counted
    5. the parts are merged: the index appears       (the write is whole)
    6. DIRECTORY/.writing is removed
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import ray.data
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink

from ..arguments import columns_of, path_of, refuse, require, whole_number
from ..errors import InvalidArgument, Mismatch, NotFound, Unsupported
from ..writing import ShardWriter
from .indexing import Parts
from .spec import local_path, naming_the_node

_STAGING = ".writing"
_SUFFIX = ".new"  # for unfinished shards


class WriteReport(NamedTuple):
    """The result of writing a dataset."""

    paths: list[str]
    """Paths of the shards, in order."""
    num_samples: int
    """Samples in all shards."""


class _Written(NamedTuple):
    """The shards of one task, with their temporary names."""

    task: int
    paths: list[str]
    num_samples: int


class ShardSink(Datasink[_Written]):
    """Writes rows into shards in a folder. At the end, `written` has the shards of the tasks that
    count, in order; shards of dead or repeated tasks are not in it."""

    def __init__(
        self, folder: str, fields: dict[str, str] | None, max_samples: int, max_bytes: int
    ) -> None:
        self._folder = folder
        self._fields = fields
        self._max_samples = max_samples
        self._max_bytes = max_bytes
        self.written: list[_Written] = []

    def get_name(self) -> str:
        """The name that Ray shows."""
        return "Shards"

    @property
    def min_bytes_per_write(self) -> int:
        """Minimum bytes of a task: each makes one shard, even if blocks are smaller than shards."""
        block = ray.data.DataContext.get_current().target_max_block_size or 0
        return max(self._max_bytes // 2, self._max_bytes - block)

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Written:
        """Writes a task's rows into shards. Raises NotFound (the folder), and what writing
        raises."""
        with naming_the_node():
            if not os.path.isdir(self._folder):
                raise NotFound(
                    f"the folder of the running write does not exist: {self._folder!r}; give a "
                    "directory that all nodes share, and check that the write has not ended"
                )
            attempt = f"{ctx.task_idx:08}-{os.urandom(6).hex()}"
            pattern = os.path.join(self._folder, attempt).replace("%", "%%") + "-%06d" + _SUFFIX
            with ShardWriter(pattern, self._max_samples, self._max_bytes) as sink:
                for block in blocks:
                    for row in _rows(block):
                        sink.write(self._sample_of(row))
            return _Written(ctx.task_idx, sink.paths, sink.num_samples)

    def _sample_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Converts a row to a sample: its key, and the fields that are not null."""
        if "__key__" not in row:
            raise InvalidArgument(
                f'rows have no column "__key__": their columns are {", ".join(row)}; add the '
                "samples' "
                "keys by map(), or keep the column of shardwise.ray.read()"
            )
        key = row["__key__"]
        if not isinstance(key, str):
            raise InvalidArgument(
                f'a "__key__" must be a str, not {key!r}; convert the keys by map()'
            )
        fields = self._fields
        if fields is None:
            fields = {name: name for name in row if not name.startswith("__")}
        missing = [column for column in fields if column not in row]
        if missing:
            raise NotFound(
                f"rows have no column {missing[0]!r}; choose from the columns {', '.join(row)}"
            )
        sample = {field: row[column] for column, field in fields.items()}
        kept = {field: value for field, value in sample.items() if value is not None}
        return {"__key__": key, **kept}

    def on_write_complete(self, write_result: Any) -> None:
        """Stores the shards of all tasks, in order."""
        self.written = sorted(write_result.write_returns)


def _rows(block: Any) -> Any:
    """Returns a block's rows. Converts pandas blocks to Arrow, so that missing values are null and
    not NaN."""
    table: Any = BlockAccessor.for_block(block).to_arrow()
    return BlockAccessor.for_block(table).iter_rows(public_row_format=True)


def _named_fields(fields: Any) -> dict[str, str] | None:
    """Returns the fields' names by column. Raises InvalidArgument if a column would be lost."""
    if fields is None:
        return None
    is_named = isinstance(fields, Mapping)
    named = dict(fields) if is_named else {name: name for name in columns_of(fields)}
    if not named:
        refuse("fields", fields, "name at least one column, or leave out fields")
    columns: dict[str, str] = {}
    for column, field in named.items():
        if not isinstance(column, str) or not isinstance(field, str) or field.startswith("__"):
            refuse("fields", fields, 'give names of type str that do not begin with "__"')
        if field in columns:
            raise InvalidArgument(
                f"two columns would become the field {field!r}: {columns[field]!r} and {column!r}; "
                "give the fields different names"
            )
        columns[field] = column
    return named


def _index_path(index: str | os.PathLike[str], directory: str) -> str:
    """Returns the index's absolute path. Raises errors that would otherwise occur only after all
    shards are written: a missing or read-only folder, or another file at the path."""
    path = local_path("index", index)
    folder = os.path.dirname(path)
    if folder == directory and not os.path.exists(directory):
        return path  # the write makes this folder together with the shards
    if not os.path.isdir(folder):
        raise NotFound(f"the folder of the index does not exist: {path!r}; make the folder first")
    if not os.access(folder, os.W_OK):
        raise InvalidArgument(
            f"the folder of the index is read-only: {path!r}; choose another folder"
        )
    if os.path.lexists(path):
        raise InvalidArgument(
            f"the index would replace another file: {path!r}; remove the file, or choose another "
            "name"
        )
    return path


@contextmanager
def _staging(directory: str) -> Iterator[str]:
    """Makes the folder into which the tasks write shards. Raises InvalidArgument if the directory
    already has shards, or another write is running there."""
    os.makedirs(directory, exist_ok=True)
    shards = sorted(n for n in os.listdir(directory) if ".tar" in n or n.endswith(".tgz"))
    if shards:
        raise InvalidArgument(
            f"the folder already has shards: {os.path.join(directory, shards[0])!r}; write to "
            "another folder, or remove these shards"
        )
    folder = os.path.join(directory, _STAGING)
    try:
        os.mkdir(folder)
    except FileExistsError:
        raise InvalidArgument(
            f"another write to {directory!r} is running, or was killed; wait until it ends, or "
            f"remove {folder!r}"
        ) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # ignore errors: a task may still write there


def _publish(
    staging: str,
    written: Sequence[_Written],
    prefix: str,
    index: str | None,
    content: dict[str, Any],
    options: dict[str, Any],
) -> WriteReport:
    """Renames the shards of all successful tasks, in order, and builds their index. Raises the
    errors of indexing, and Mismatch if the index and the shards differ in the number of samples.
    After an error no shard has its final name."""
    directory = os.path.dirname(staging)
    paths = [path for task in written for path in task.paths]
    num_samples = sum(task.num_samples for task in written)
    if index is not None and not paths:
        raise InvalidArgument(
            f"cannot build the index {index!r}, because the dataset has no rows; leave out index, "
            "or write a dataset with rows"
        )
    named = [os.path.join(directory, f"{prefix}-{i:06}.tar") for i in range(len(paths))]
    try:
        for path, name in zip(paths, named, strict=True):
            os.rename(path, name)
        if index is not None:
            parts = Parts(os.path.join(staging, "index"), None, content)
            indexed = parts.build(named, options)
            if indexed != num_samples:
                raise Mismatch(
                    f"{num_samples} rows were written to {directory!r}, but their shards have "
                    f"{indexed} samples, so a shard was changed or lost; write again, to a "
                    "directory on a file system that all nodes share"
                )
            parts.merge(index)
    except BaseException:
        if index is None or not os.path.exists(index):
            for name in named:
                with suppress(FileNotFoundError):
                    os.unlink(name)
        raise
    return WriteReport(named, num_samples)


def write(
    data: ray.data.Dataset,
    directory: str | os.PathLike[str],
    *,
    fields: Sequence[str] | Mapping[str, str] | None = None,
    prefix: str = "shard",
    max_samples: int = 100_000,
    max_bytes: int = 256 << 20,
    index: str | os.PathLike[str] | None = None,
    columns: Sequence[str] = (),
    hashes: bool = False,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> WriteReport:
    """Writes the rows of a dataset as samples into shards, in the dataset's order.

    directory: a folder without shards, on a file system that all nodes share; not a URL. It is made
        if it is missing. The shards in it are prefix-000000.tar, prefix-000001.tar ... Neither name
        may have a brace.
    fields: names of the columns that become fields, or a dict of the fields' names by column; by
        default all columns except those that begin with "__". The column "__key__" has the samples'
        keys. Null values are left out; others become bytes as for shardwise.ShardWriter.
    max_samples, max_bytes: maximum of a shard. Ray holds about max_bytes per task in memory.
    index: path of the index, in the directory or elsewhere; the file must not exist. Tasks index
        the shards, and `columns` from their fields. columns, hashes: as for shardwise.index().
    concurrency: as for ray.data.Dataset.write_datasink(). ray_remote_args: options of the tasks
        that write, and of those that index, as for ray.remote().

    Shards get their names when all are written, and the index appears last: if it exists, the write
    is complete. A dead task is repeated, and no sample appears twice. A failed write leaves no
    files. A killed process leaves a folder that the next write() refuses.

    Raises InvalidArgument (a shard or the index exists, another write is running, or rows have no
    key), Unsupported (a dataset with a checkpoint_config), NotFound, BadField, OSError. For
    the index, raises what shardwise.index() raises, and Mismatch if it has another number of
    samples than there were rows.
    """
    require("data", data, ray.data.Dataset, "give a ray.data.Dataset")
    directory = local_path("directory", directory)
    named = _named_fields(fields)
    require("prefix", prefix, str, "give the beginning of the shards' names, e.g. train")
    if not prefix or "/" in path_of(prefix) or prefix.startswith("."):
        refuse("prefix", prefix, "give the beginning of the shards' names, e.g. train")
    for name, text in (("directory", directory), ("prefix", prefix)):
        if "{" in text or "}" in text:
            refuse(name, text, "leave out braces, which are patterns in names of shards")
    for name, value in (("max_samples", max_samples), ("max_bytes", max_bytes)):
        if whole_number(name, value) < 1:
            refuse(name, value, "give a whole number, 1 or more")
    if getattr(data.context, "checkpoint_config", None) is not None:
        raise Unsupported(
            "the dataset has a checkpoint_config, but a failed write keeps no shards, so a "
            "resumed write would lose rows; leave out checkpoint_config"
        )
    wanted = None if index is None else _index_path(index, directory)
    names = columns_of(columns)
    if names and wanted is None:
        raise InvalidArgument(
            f"columns= needs an index, but index= is not given: {', '.join(names)}; give index="
        )
    require("hashes", hashes, bool, "give True or False")
    if hashes and wanted is None:
        raise InvalidArgument("hashes=True needs an index, but index= is not given; give index=")
    with _staging(directory) as staging:
        sink = ShardSink(staging, named, max_samples, max_bytes)
        execution = data.context.execution_options
        kept = execution.preserve_order
        execution.preserve_order = True
        try:
            data.write_datasink(sink, concurrency=concurrency, ray_remote_args=ray_remote_args)
        finally:
            execution.preserve_order = kept
        content = {"columns": names, "hashes": hashes}
        return _publish(staging, sink.written, prefix, wanted, content, ray_remote_args or {})
