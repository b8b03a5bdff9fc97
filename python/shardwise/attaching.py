"""Side tables of an index: attach(), detach(), side_tables()."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import _core
from .arguments import path_of, refuse, require, suggests
from .errors import InvalidArgument, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .records import SideTable

_ROWS = 65_536
_PARQUET = (".parquet", ".pq")
# A table: the names of its columns, and its rows in portions. A portion has a list for each of the
# names that it is asked for.
_Portions = Iterator[list[list[Any]]]


@suggests
def attach(
    index: str | os.PathLike[str],
    table: Any,
    *,
    on: str,
    name: str | None = None,
    columns: Sequence[str] = (),
    sql_table: str = "",
    replace: bool = False,
) -> SideTable:
    """Attaches the columns of a table to an index, by key, for where(), queries and batches.

    The columns are stored in a file beside the index, index + ".side". The index and the order of
    its samples stay as they are. A row belongs to the samples with its key, also after the index is
    updated. A sample without a row has None. Datasets that are open do not see the table.

    table: a CSV, TSV, SQLite or Parquet file; a frame of pandas; a table of pyarrow, polars or
        another library with __arrow_c_stream__; or a mapping from the names of columns to
        sequences. Parquet and Arrow tables need pyarrow.
    on: the column that contains the keys of samples. Integers stand for their decimal digits.
    name: of the side table. Default: the file's name without its extension, or "table".
    columns: columns to attach, as "column" or "name=column"; default: all. Names are in lower
        case: letters, digits and _.
    sql_table: the table to read, if a SQLite file has several tables.
    replace: replace the side table of the same name.

    Values are integers, floats, str, bytes or None. NaN becomes None, and a bool an integer. In
    CSV, an empty cell is None. A column is of integers or floats if all its cells are numbers,
    otherwise of str. A number with a needless leading zero, as 007, is a str.

    Raises InvalidArgument, e.g. for a repeated or missing key, or for a column that the index has
    already; Mismatch if no row has the key of a sample. An error changes nothing.

    Cost: O(rows), with memory for some 100,000 rows.

    >>> scores = {"key": ["000007", "000008"], "score": [0.9, 0.4]}
    >>> shardwise.attach("other.idx", scores, on="key").samples_without_row
    398
    >>> shardwise.open("other.idx", where="score > 0.5").column("score")
    [0.9]
    """
    path = path_of(index)
    require("on", on, str, "name the column that contains the keys of samples")
    if isinstance(columns, str):
        refuse("columns", columns, 'give a list, e.g. ["width", "ratio=aspect ratio"]')
    options: dict[str, Any] = {"on": on, "columns": list(columns), "replace": bool(replace)}
    if isinstance(table, (str, os.PathLike)):
        file = path_of(table)
        if not _is_parquet(file):
            return _core.attach_file(path, file, name=name or "", sql_table=sql_table, **options)
        name = name or os.path.splitext(os.path.basename(file))[0]
        names, portions, source = *_parquet(file), file
    else:
        names, portions = _table(table, on)
        module = type(table).__module__.partition(".")[0]
        source = ("" if module == "builtins" else module + ".") + type(table).__name__
    if sql_table:
        refuse("sql_table", sql_table, "it is for SQLite files")
    writer = _core.SideTableWriter(path, names, source, name=name or "table", **options)
    for portion in portions(writer.names):
        writer.add(portion)
    return writer.finish()


def detach(index: str | os.PathLike[str], name: str) -> None:
    """Removes a side table from an index. Raises NotFound if it has none of this name."""
    _core.detach(path_of(index), name)


def side_tables(index: str | os.PathLike[str]) -> list[SideTable]:
    """The side tables of an index, and how their rows match its samples now.

    Cost: O(rows).
    """
    return _core.side_tables(path_of(index))


def _is_parquet(file: str) -> bool:
    if file.lower().endswith(_PARQUET):
        return True
    try:
        with open(file, "rb") as start:
            return start.read(4) == b"PAR1"
    except OSError:
        return False  # attach_file() raises an error of the library


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise Unsupported(
            "reading Parquet and Arrow tables needs pyarrow; install it, or attach a CSV file"
        ) from None
    return pyarrow


def _of_batches(batches: Any) -> _Portions:
    for batch in batches:
        for begin in range(0, batch.num_rows, _ROWS):
            yield [column.to_pylist() for column in batch.slice(begin, _ROWS).columns]


def _parquet(file: str) -> tuple[list[str], Any]:
    _arrow()
    from pyarrow import parquet

    opened = parquet.ParquetFile(file)

    def portions(names: list[str]) -> _Portions:
        # Parquet gives columns in its own order.
        for batch in opened.iter_batches(_ROWS, columns=names):
            yield from _of_batches([batch.select(names)])

    return list(opened.schema_arrow.names), portions


def _stream(table: Any) -> tuple[list[str], Any]:
    reader = _arrow().RecordBatchReader.from_stream(table)
    return list(reader.schema.names), lambda names: _of_batches(
        batch.select(names) for batch in reader
    )


def _frame(frame: Any, on: str) -> tuple[list[str], Any]:
    if on not in frame.columns and on in frame.index.names:
        frame = frame.reset_index()

    names = [str(name) for name in frame.columns]

    def values(name: str, begin: int) -> list[Any]:
        column = frame.iloc[begin : begin + _ROWS, names.index(name)]
        if column.dtype.kind not in "iufb" or column.hasnans:
            column = column.astype(object).where(column.notna(), None)
        listed: list[Any] = column.tolist()
        return listed

    def portions(chosen: list[str]) -> _Portions:
        for begin in range(0, len(frame), _ROWS):
            yield [values(name, begin) for name in chosen]

    return names, portions


def _mapping(table: Mapping[str, Any]) -> tuple[list[str], Any]:
    for name, values in table.items():
        require("table", name, str, "name its columns by str")
        is_text = isinstance(values, (str, bytes))
        if is_text or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
            refuse(f"table[{name!r}]", values, "give a sequence with one value for each row")

    def plain(values: Any) -> list[Any]:
        values = values.tolist() if hasattr(values, "tolist") else values
        return [value.item() if hasattr(value, "item") else value for value in values]

    def portions(names: list[str]) -> _Portions:
        lengths = {len(table[name]) for name in names}
        if len(lengths) > 1:
            raise InvalidArgument(
                "the columns of the table have different lengths; give each one value for each row"
            )
        for begin in range(0, max(lengths), _ROWS):
            yield [plain(table[name][begin : begin + _ROWS]) for name in names]

    return list(table), portions


def _table(table: Any, on: str) -> tuple[list[str], Any]:
    """The names of the columns, and a function that gives the rows in portions."""
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        return _frame(table, on)
    if hasattr(table, "__arrow_c_stream__"):
        return _stream(table)
    if isinstance(table, Mapping):
        return _mapping(table)
    refuse(
        "table", table, "give a file, a frame, an Arrow table, or a mapping of columns to values"
    )
