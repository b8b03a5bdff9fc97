"""Blocks of Arrow: the columns that a dataset has, and rows of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .. import _core
from ..building import query
from ..errors import InvalidArgument, NotFound, Unsupported
from .spec import Numbers, Reading, chosen, dataset_of, naming_the_node, numbers_of

SPECIAL = ("__key__", "__index__", "__slot__", "__shard__")

# Kinds of columns, and their Arrow types. In SQLite each value has its own type: a column of kind
# "mixed" has numbers and texts.
_TYPES: dict[str, Any] = {
    "field": pa.large_binary(),
    "integer": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "mixed": pa.string(),
    "blob": pa.large_binary(),
    "__key__": pa.string(),
    "__index__": pa.int64(),
    "__slot__": pa.int64(),
    "__shard__": pa.string(),
}


class Column(NamedTuple):
    """A column of the blocks."""

    name: str
    """Its name."""
    kind: str
    """Its kind: that of a field, of metadata, or of a special column."""


class Layout(NamedTuple):
    """All columns of a dataset, and the approximate lengths of their texts."""

    columns: tuple[Column, ...]
    """The columns, in order."""
    text_bytes: dict[str, float]
    """Mean bytes of each column of texts."""


def schema_of(columns: Iterable[Column]) -> Any:
    """The pyarrow.Schema of these columns."""
    return pa.schema([(column.name, _TYPES[column.kind]) for column in columns])


def _kind_of(types: str | None) -> str:
    found = set((types or "null").split(",")) - {"null"}
    if len(found) == 1 and found != {"blob"}:
        return found.pop()
    if found == {"integer", "real"}:
        return "real"
    if not found:
        return "text"
    return "blob" if "blob" in found else "mixed"


@functools.lru_cache(maxsize=4)
def layout_of(reference: bytes) -> Layout:
    """The columns of a dataset: its fields, the metadata of its index, and the special columns. A
    metadata column hides a field of the same name; special columns hide both. Cost: with metadata,
    one pass over the index.
    """
    data = dataset_of(reference)
    path = data.path
    names = [name for name in data.columns if name not in SPECIAL]
    asked = ["total(length(CAST(key AS BLOB)))", "count(*)"]
    keys, count = query(path, f"SELECT {', '.join(asked)} FROM samples WHERE sample < 1000").rows[0]
    shards = sum(len(shard.path) for shard in data.shards) / max(1, len(data.shards))
    text_bytes = {"__key__": _ratio(keys, count), "__shard__": shards}
    metadata = []
    if names:
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        what = [
            f"group_concat(DISTINCT typeof({name})), total(length(CAST({name} AS BLOB)))"
            for name in quoted
        ]
        found = query(path, f"SELECT count(*), {', '.join(what)} FROM samples").rows[0]
        for place, name in enumerate(names):
            types, size = found[1 + 2 * place], found[2 + 2 * place]
            kind = _kind_of(types if isinstance(types, str) else None)
            metadata.append(Column(name, kind))
            if kind in ("text", "mixed", "blob"):
                text_bytes[name] = _ratio(size, found[0])
    taken = {*names, *SPECIAL}
    fields = [Column(name, "field") for name in data.fields if name not in taken]
    return Layout((*fields, *metadata, *(Column(name, name) for name in SPECIAL)), text_bytes)


def _ratio(total: object, count: object) -> float:
    assert isinstance(total, (int, float)) and isinstance(count, int)
    return total / max(1, count)


def chosen_columns(layout: Layout, names: Sequence[str]) -> tuple[Column, ...]:
    """The columns of these names, in this order. Raises NotFound, InvalidArgument."""
    by_name = {column.name: column for column in layout.columns}
    repeated = [name for place, name in enumerate(names) if name in names[:place]]
    if repeated:
        raise InvalidArgument(f"the column {repeated[0]!r} is named twice; name each column once")
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise NotFound(f"no column {unknown[0]!r}; choose from the columns {', '.join(by_name)}")
    return tuple(by_name[name] for name in names)


def row_bytes(
    data: _core.Dataset,
    numbers: Numbers,
    columns: Sequence[Column],
    text_bytes: Mapping[str, float] | None = None,
) -> NDArray[np.int64]:
    """The bytes of each row: exact for fields, estimated by `text_bytes` for texts, plus 8 per
    column."""
    texts = text_bytes or {}
    plain = sum(8 + texts.get(column.name, 0.0) for column in columns)
    sizes = np.full(len(numbers), round(plain), np.int64)
    for column in columns:
        if column.kind == "field":
            sizes += data.sizes(column.name, numbers)
    return sizes


def _binary(validity: Any, offsets: Numbers, data: NDArray[np.uint8]) -> Any:
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _field(data: _core.Dataset, numbers: Numbers, name: str) -> Any:
    """Returns the bytes of a field, and null for samples without the field."""
    try:
        return _binary(None, *data.gather(numbers, name))
    except NotFound:  # some samples lack the field, or a shard is missing
        there = data.sizes(name, numbers) > 0
    for i in np.flatnonzero(~there):  # the field is empty or missing
        there[i] = name in data[int(numbers[i])]
    offsets, values = data.gather(numbers[there], name)
    lengths = np.zeros(len(numbers) + 1, np.int64)
    lengths[1:][there] = np.diff(offsets)
    validity = pa.py_buffer(np.packbits(there, bitorder="little"))
    return _binary(validity, np.cumsum(lengths), values)


def _metadata(data: _core.Dataset, numbers: Numbers, column: Column) -> Any:
    values: list[Any] = data.column(column.name, numbers)
    if column.kind == "real":
        values = [None if value is None else float(value) for value in values]
    elif column.kind == "mixed":
        values = [None if value is None else str(value) for value in values]
    elif column.kind == "blob":
        values = [v if v is None or isinstance(v, bytes) else str(v).encode() for v in values]
    return pa.array(values, _TYPES[column.kind])


def _keys(data: _core.Dataset, numbers: Numbers) -> Any:
    keys = data.sample_keys(numbers)
    try:
        return pa.array(keys, pa.string())
    except UnicodeEncodeError as error:
        raise Unsupported(
            f"a key is not UTF-8, as Arrow requires: {error.object!r} in {data.path!r}; "
            'leave out the column "__key__"'
        ) from None


def _shards(data: _core.Dataset, numbers: Numbers) -> Any:
    shards = np.searchsorted(np.array(data.shard_starts), numbers, side="right") - 1
    paths = data.shards
    different, places = np.unique(shards, return_inverse=True)
    shown = [_core.without_secrets(paths[i].path) for i in different]
    return pa.array(shown, pa.string()).take(pa.array(places))


def table_of(
    data: _core.Dataset, numbers: Numbers, slots: Numbers, columns: Sequence[Column]
) -> Any:
    """A pyarrow.Table of these samples. Raises what Dataset.gather() and column() raise."""

    def values(column: Column) -> Any:
        if column.kind == "field":
            return _field(data, numbers, column.name)
        if column.kind == "__key__":
            return _keys(data, numbers)
        if column.kind == "__index__":
            return pa.array(numbers)
        if column.kind == "__slot__":
            return pa.array(slots)
        if column.kind == "__shard__":
            return _shards(data, numbers)
        return _metadata(data, numbers, column)

    return pa.Table.from_arrays([values(column) for column in columns], schema=schema_of(columns))


class Part(NamedTuple):
    """A read task: a run of slots of a reading, and the columns to read."""

    reading: Reading
    """The samples and their order."""
    first: int
    """First slot."""
    num_slots: int
    """Number of slots."""
    columns: tuple[Column, ...]
    """Columns to read."""
    condition: str | None
    """SQL condition on the rows, or None."""
    block_bytes: int
    """Approximate bytes of a block."""

    def __call__(self) -> Iterator[Any]:
        """The blocks, each of about block_bytes. Raises what opening and reading raise."""
        with naming_the_node():
            data = dataset_of(self.reading.reference)
            numbers = numbers_of(self.reading, self.first, self.num_slots)
            slots = np.arange(self.first, self.first + self.num_slots)
            if self.condition is not None:
                taken = chosen(self.reading.reference, self.condition)[numbers]
                numbers, slots = numbers[taken], slots[taken]
            for begin, end in self._pieces(data, numbers):
                yield table_of(data, numbers[begin:end], slots[begin:end], self.columns)

    def _pieces(self, data: _core.Dataset, numbers: Numbers) -> Iterator[tuple[int, int]]:
        """Returns ranges of rows, each of about the size of a block."""
        ends = np.cumsum(row_bytes(data, numbers, self.columns))
        begin = 0
        while begin < len(numbers):
            before = int(ends[begin - 1]) if begin > 0 else 0
            end = int(np.searchsorted(ends, before + self.block_bytes, side="right"))
            end = max(end, begin + 1)
            yield begin, end
            begin = end
        if len(numbers) == 0:
            yield 0, 0
