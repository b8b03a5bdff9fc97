"""shardwise.ray.read(): a dataset of Ray Data over an index."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import ray.data
from numpy.typing import NDArray
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from .. import _core
from ..arguments import columns_of, refuse, require, whole_number
from ..errors import InvalidArgument, Unsupported
from ..opening import open as open_dataset
from .blocks import Column, Part, chosen_columns, layout_of, row_bytes, schema_of
from .predicates import to_sql
from .spec import (
    Numbers,
    Reading,
    chosen,
    cluster_cpus,
    dataset_of,
    numbers_of,
    reference_of,
    resumed,
    sampler_of,
)

PLACE = "shardwise.place"
"""The entry of a DataContext that selects the rank and the epoch whose samples are read. It is a
dict of those members of a Reading that it replaces."""

PUSHES = tuple(int(part) for part in ray.__version__.split(".")[:2]) >= (2, 60)
"""True if this Ray passes column selections and filters to a source in the form that IndexSource
supports. Before Ray 2.60, a source also had to rename columns."""

_PLANNED_AT_ONCE = 1 << 20


class Planned:
    """Cumulative rows and bytes of a reading: before each slot, and in total."""

    def __init__(self, rows: Numbers, ends: Numbers) -> None:
        self._rows = rows
        self._ends = ends

    @property
    def num_slots(self) -> int:
        """The number of slots."""
        return len(self._ends) - 1

    def rows(self, first: int, last: int) -> int:
        """Rows of the slots [first, last)."""
        return int(self._rows[last] - self._rows[first])

    def bytes(self, first: int, last: int) -> int:
        """Bytes of the slots [first, last)."""
        return int(self._ends[last] - self._ends[first])

    def most_bytes(self, width: int) -> int:
        """The largest size of a run of `width` slots, in bytes."""
        starts = np.arange(0, self.num_slots, width)
        last = np.minimum(starts + width, self.num_slots)
        return int((self._ends[last] - self._ends[starts]).max(initial=0))

    def cut(self, parts: int) -> list[tuple[int, int]]:
        """Cuts the slots into at most `parts` runs of about equal bytes. Every run has a row."""
        targets = np.arange(1, parts) * (self.bytes(0, self.num_slots) / parts)
        inner = np.searchsorted(self._ends, targets, side="left")
        bounds = np.unique(np.concatenate(([0], inner, [self.num_slots])))
        runs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        return [run for run in runs if self.rows(*run) > 0]


@functools.lru_cache(maxsize=2)
def planned(reading: Reading, columns: tuple[Column, ...], condition: str | None) -> Planned:
    """Goes through the order once; takes 16 bytes per slot."""
    data, slots = dataset_of(reading.reference), len(sampler_of(reading))
    texts = layout_of(reading.reference).text_bytes
    rows, ends = np.zeros(slots + 1, np.int64), np.zeros(slots + 1, np.int64)
    for first in range(0, slots, _PLANNED_AT_ONCE):
        numbers = numbers_of(reading, first, min(_PLANNED_AT_ONCE, slots - first))
        weights: NDArray[np.int64] = np.ones(len(numbers), np.int64)
        if condition is not None:
            weights = chosen(reading.reference, condition)[numbers].astype(np.int64)
        rows[first + 1 : first + 1 + len(numbers)] = weights
        ends[first + 1 : first + 1 + len(numbers)] = weights * row_bytes(
            data, numbers, columns, texts
        )
    return Planned(np.cumsum(rows), np.cumsum(ends))


class IndexSource(ray.data.Datasource):
    """The data source of Ray Data: its tasks are runs of the order's slots, cut by bytes.

    It answers filter() and select_columns() from the index where it can.
    """

    def __init__(
        self,
        reading: Reading,
        columns: tuple[Column, ...],
        deal: int,
        is_auto: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._predicate_expr: Any = None
        self.reading = reading
        self._all_columns = layout_of(reading.reference).columns
        self._columns = columns
        self._deal = deal
        self._is_auto = is_auto
        self._condition: str | None = None
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        """The name that Ray shows."""
        return "Shardwise"

    @property
    def data(self) -> _core.Dataset:
        """The dataset, opened in this process."""
        return dataset_of(self.reading.reference)

    def placed(self, context: Any = None) -> Reading:
        """The reading: as given to read(), or a rank of ExactDataConfig and its epoch."""
        context = ray.data.DataContext.get_current() if context is None else context
        return self.reading._replace(**context.get_config(PLACE, {}))

    # Column selection, called by Ray.

    def supports_projection_pushdown(self) -> bool:
        """Whether this Ray asks for single columns."""
        return PUSHES

    def get_projection_map(self) -> dict[str, str] | None:
        """The selected columns, each by its own name; None without a selection."""
        return self._projection_map

    def apply_projection(self, projection_map: dict[str, str] | None) -> IndexSource:
        """Reads only these columns."""
        if projection_map is None:
            return self
        clone = copy.copy(self)
        clone._columns = tuple(c for c in self._columns if c.name in projection_map)
        clone._projection_map = {column.name: column.name for column in clone._columns}
        if not clone._columns:  # a block without columns would have no rows to count
            clone._columns = (Column("__index__", "__index__"),)
        return clone

    # Filters, called by Ray.

    def supports_predicate_pushdown(self) -> bool:
        """Whether this Ray asks for conditions."""
        return PUSHES

    def apply_predicate(self, predicate_expr: Any) -> IndexSource:
        """Reads only the rows for which it holds; returns itself if Ray has to filter."""
        condition = to_sql(predicate_expr, self._all_columns, self.data)
        if condition is None:
            return self
        clone = copy.copy(self)
        clone._condition = (
            condition if self._condition is None else f"({self._condition}) AND ({condition})"
        )
        clone._predicate_expr = (
            predicate_expr
            if self._predicate_expr is None
            else self._predicate_expr & predicate_expr
        )
        return clone

    # Read tasks.

    def estimate_inmemory_data_size(self) -> int | None:
        """Bytes of all rows."""
        plan = self._planned(self.placed())
        return plan.bytes(0, plan.num_slots)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[Any]:
        """Returns `parallelism` tasks, fewer if there are fewer rows. If the user gave no number,
        adds tasks until each has about one block of the size that Ray aims at."""
        context = ray.data.DataContext.get_current() if data_context is None else data_context
        reading = self.placed(context)
        target = context.target_max_block_size or 1 << 62
        if self._is_auto:
            plan = self._planned(reading)
            parallelism = max(parallelism, -(-plan.bytes(0, plan.num_slots) // target))
        if self._deal > 1 and not context.get_config(PLACE):
            runs = self._dealt(reading, parallelism, target)
        else:
            plan = self._planned(reading)
            runs = [(reading, plan, *run) for run in plan.cut(max(1, parallelism))]
        limits = {} if per_task_row_limit is None else {"per_task_row_limit": per_task_row_limit}
        tasks: list[Any] = []
        for rank, plan, first, last in runs or [(reading, self._planned(reading), 0, 0)]:
            part: Any = Part(rank, first, last - first, self._columns, self._condition, target)
            metadata = BlockMetadata(
                num_rows=plan.rows(first, last),
                size_bytes=plan.bytes(first, last),
                input_files=None,
                exec_stats=None,
            )
            schema = None if tasks else schema_of(self._columns)  # Ray needs it only once
            tasks.append(ReadTask(part, metadata, schema=schema, **limits))
        return tasks

    def _planned(self, reading: Reading) -> Planned:
        return planned(reading, self._columns, self._condition)

    def _dealt(
        self, reading: Reading, parts: int, target: int
    ) -> list[tuple[Reading, Planned, int, int]]:
        """Returns runs with equal numbers of rows, from one rank after the other in turn.
        streaming_split(equal=False) gives each run to the consumer with the fewest rows so far, who
        is thus always the run's rank. There are at least `parts` runs, unless each has only one
        row: Ray would split the blocks of fewer tasks."""
        ranks = [reading._replace(rank=rank, world_size=self._deal) for rank in range(self._deal)]
        plans = [self._planned(rank) for rank in ranks]
        slots = max(plan.num_slots for plan in plans)
        width = max(1, sum(plan.num_slots for plan in plans) // max(1, parts))
        while width > 1 and max(plan.most_bytes(width) for plan in plans) > target:
            width = -(-width // 2)
        return [
            (rank, plan, first, min(first + width, plan.num_slots))
            for first in range(0, slots, width)
            for rank, plan in zip(ranks, plans, strict=True)
            if first < plan.num_slots
        ]


def source_of(data: ray.data.Dataset) -> IndexSource:
    """The source that a dataset reads from. Raises Unsupported if it does not come from one read()
    alone, or if an operation would give other rows when each rank applies it to its samples."""
    operator = data._logical_plan.dag
    while len(operator.input_dependencies) == 1:
        kinds = [kind.__name__ for kind in type(operator).__mro__]
        if "AbstractAllToAll" in kinds or "Limit" in kinds:
            raise Unsupported(
                f"{kinds[0]} after shardwise.ray.read() would run on each rank's samples "
                "separately; order samples by order=, and select samples by where= or "
                "read(shardwise.open(index)[:1000])"
            )
        operator = operator.input_dependencies[0]
    source = getattr(operator, "datasource", None) or getattr(operator, "_datasource", None)
    if not isinstance(source, IndexSource):
        raise Unsupported(
            "ExactDataConfig needs a dataset of one shardwise.ray.read(), optionally with maps; "
            "name only datasets of one read() in datasets_to_split"
        )
    return source


def _opened(source: Any, opening: dict[str, Any]) -> _core.Dataset:
    """Opens the dataset by the path of its index, so that workers do not build an index."""
    if isinstance(source, _core.Dataset):
        if opening:
            raise InvalidArgument(
                f"options of an open dataset cannot be changed: {', '.join(opening)}; give the "
                "options to shardwise.open(), or give read() a path"
            )
        return source
    if opening.get("lazily"):
        refuse("lazily", True, "leave out lazily, because shardwise.ray needs an index")
    data = open_dataset(source, **opening)
    if data.origin:
        return data  # each node fetches the index, and requires this fingerprint
    path = os.path.abspath(data.path)
    kept = {name: value for name, value in opening.items() if name not in ("index_directory",)}
    return open_dataset(path, **(kept | {"build": False}))


def read(
    source: Any,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    order: _core.Order | None = None,
    epoch: int = 0,
    resume: str | None = None,
    deal: int = 1,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **opening: Any,
) -> ray.data.Dataset:
    """A dataset of Ray Data: the samples of an index, as rows, in an order.

    source: as for shardwise.open(), or a Dataset. Its index must be at a URL, or at the same path
        on every node; if it is missing or differs there, the error names the node. opening: options
        of shardwise.open(): with cache=, each node reads through its own shard cache.
    where: an SQL condition; only samples for which it holds are read, and ordered.
    columns: names of the columns to read, by default all. Each field is a column of large_binary,
        null where a sample lacks it. Each metadata column of the index is a column of int64,
        float64 or string (or large_binary), and hides a field of its name. Special columns hide
        both: "__key__", "__index__" (the sample's number in the dataset, from 0), "__slot__" (the
        row's place in the order) and "__shard__" (its path, or URL).
    order: a shardwise.Order; by default the index's order. epoch: of that order. resume: a token of
        Sampler.token(): only the samples after that point are read.
    deal: number of consumers of streaming_split(deal, equal=False): each gets the samples of its
        rank, in order. Maps between read() and the split must keep the number of rows of a block,
        and not make blocks larger than DataContext.target_max_block_size.
    override_num_blocks: number of tasks; by default one per CPU, two where each then has a MiB, or
        more where their blocks would exceed the context's target_max_block_size. concurrency,
        ray_remote_args: as for ray.data.read_datasource().

    Rows come in order (the dataset's context has preserve_order). count(), schema() and
    size_bytes() need no reading: sizes are exact for fields, averages for texts. A task is a run of
    the order, possibly within a shard; a repeated task gives the same rows. With Ray 2.60 or newer,
    columns that are not selected are not read. A filter() on metadata columns, "__key__" and
    "__index__" drops rows before they are read, if it consists only of comparisons with numbers and
    texts, lists, and nulls.

    Cost: the driver goes through the order once, and once through metadata columns; each process
    applies where= and filters once, and opens each shard once.
    Raises what shardwise.open() raises; NotFound (a column), InvalidArgument, Mismatch (the token).
    A task raises StaleIndex if its shard is not the indexed one, and Mismatch if its index
    describes shards or metadata differently; both name the node.
    """
    data = _opened(source, opening)
    if where is not None:
        data = data.where(where)
    require("order", order, _core.Order, "give a shardwise.Order", none=True)
    deal = whole_number("deal", deal)
    if deal < 1:
        refuse("deal", deal, "give a number of consumers, 1 or more")
    is_auto = override_num_blocks is None
    if override_num_blocks is not None:
        if whole_number("override_num_blocks", override_num_blocks) < 1:
            refuse("override_num_blocks", override_num_blocks, "give a number of tasks, 1 or more")
    reference = reference_of(data)
    layout = layout_of(reference)
    names = [c.name for c in layout.columns] if columns is None else columns_of(columns)
    if not names:
        refuse(
            "columns",
            columns,
            'name at least one column, because Ray loses rows without columns; "__index__" '
            "costs least",
        )
    reading = Reading(
        reference,
        _core.Order("sequential") if order is None else order,
        whole_number("epoch", epoch),
        token=None,
        rank=0,
        world_size=1,
    )
    require("resume", resume, str, "give a token of Sampler.token()", none=True)
    if resume is not None:
        reading = resumed(reading, resume)
        reading = reading._replace(epoch=max(epoch, reading.epoch))
    sampler_of(reading)  # raise errors of the order before any task starts
    reader = IndexSource(reading, chosen_columns(layout, names), deal, is_auto)
    made: ray.data.Dataset = ray.data.read_datasource(
        reader,
        override_num_blocks=_few_tasks(reader) if is_auto else override_num_blocks,
        concurrency=concurrency,
        **_named(ray_remote_args or {}),
    )
    made.context.execution_options.preserve_order = True
    return made


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options of tasks in the form of this version's read_datasource(): keyword arguments
    if it has them, else ray_remote_args."""
    known = inspect.signature(ray.data.read_datasource).parameters
    named = {name: value for name, value in options.items() if name in known}
    others = {name: value for name, value in options.items() if name not in known}
    return named | ({"ray_remote_args": others} if others else {})


def _few_tasks(source: IndexSource) -> int:
    """Returns one task per CPU, or two per CPU if each then has at least 1 MiB. Ray itself would
    start at least 200 tasks or one per MiB, at 20 ms each."""
    cpus = cluster_cpus()
    return max(cpus, min(2 * cpus, (source.estimate_inmemory_data_size() or 0) >> 20))
