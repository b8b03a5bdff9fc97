"""Metrics that are bitwise equal on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ..arguments import refuse, require
from ..errors import InvalidArgument
from ..loader import Loader
from ..ragged import Ragged
from ..ranks import Reducer, reducer_of
from ..sums import ExactMean, Mean, reduce_means


def _filled(value: Any, size: int) -> Any:
    """A column with copies of its first row at its end, up to `size` rows."""
    missing = size - len(value)
    if not isinstance(value, Ragged):
        return torch.cat([value, value[:1].expand(missing, *value.shape[1:])])
    first = value[0].reshape(-1)
    ends = value.offsets[-1] + len(first) * torch.arange(1, missing + 1)
    return Ragged(
        torch.cat([value.values, first.repeat(missing)]),
        torch.cat([value.offsets, ends]),
        torch.cat([value.shapes, value.shapes[:1].expand(missing, -1)]),
    )


def _begin(loader: Loader) -> None:
    """Moves to the beginning of the epoch. Raises InvalidArgument where the loader would not give
    each sample once."""
    require("loader", loader, Loader, "give a shardwise.Loader")
    tail = loader._order.options["tail"]
    if tail != "exact":
        refuse("tail", tail, 'give the loader an Order(tail="exact"), which counts each sample once')
    if loader.has_ended:
        return  # the loop begins the next epoch
    if loader._taken > 0:
        loader.set_epoch(loader.epoch)
    if loader._taken_before > 0:
        raise InvalidArgument(
            f"the loader stands within epoch {loader.epoch}, after the {loader._taken_before} "
            "batches of an earlier run; give evaluate() another loader"
        )


def _numbers(measured: Any, given: int) -> Iterator[tuple[str, Any]]:
    """Yields the names and values that measure() returned. Raises InvalidArgument unless each has a
    number for each of the given rows."""
    require("measure", measured, Mapping, 'return numbers by name, e.g. {"loss": losses}')
    for name, values in measured.items():
        is_list = isinstance(values, (list, tuple))
        shape = (len(values),) if is_list else tuple(getattr(values, "shape", ()))
        if not shape or shape[0] != given or math.prod(shape) != given:
            raise InvalidArgument(
                f"evaluate() needs a number for each row: {name!r} has the shape {shape} for "
                f"{given} rows; use reduction='none'"
            )
        yield name, values


def evaluate(
    measure: Callable[[dict[str, Any]], Mapping[str, Any]],
    loader: Loader,
    *,
    fill: bool = True,
    ranks: Reducer | str | None = "auto",
) -> dict[str, Mean]:
    """The means of what ``measure`` returns for the samples of the loader's epoch, over all ranks.

    Each sample counts exactly once, which is proven at the end. Sums are exact: the results are
    bitwise equal for any number of ranks, and in any order, if the numbers of a sample do not
    depend on the other samples of its batch.

    measure: called as ``measure(columns)`` without gradients, never with zero rows. columns: those
        of a batch as torch tensors, on the CPU; a Ragged for a ragged column. It returns a number
        for each row, by name: {"loss": [N], "right": [N]}. Every batch has the same names.
    fill: a smaller batch is filled up to the loader's batch size with copies of its first row, and
        their numbers are dropped: a model's result for a row can differ in its last bits between
        batches of different sizes. The batch size is then the same for every number of ranks.
    ranks: as for the loader.

    loader: the epoch begins anew if batches of it were taken. The order's tail is "exact".

    Every rank calls it. Raises InvalidArgument if ``measure`` returns something else, or if the
    loader resumed within an epoch; what prove() of the loader raises; Mismatch if names differ.
    """
    _begin(loader)
    size = loader._rows_of_step
    means: dict[str, ExactMean] = {}
    with torch.no_grad():
        for batch in loader:
            rows = len(batch)
            if rows == 0:
                continue
            columns = batch.tensors()
            given = max(rows, size) if fill else rows
            if given > rows:
                columns = {name: _filled(value, given) for name, value in columns.items()}
            measured = dict(_numbers(measure(columns), given))
            if means and measured.keys() != means.keys():
                raise InvalidArgument(
                    f"measure() returned other names than before: {list(measured)}, not "
                    f"{list(means)}; return the same names for each batch"
                )
            for name, values in measured.items():
                means.setdefault(name, ExactMean()).add(values[:rows])
    loader.prove()
    reducer = reducer_of(ranks)
    if reducer.rank % loader._step_size[2] != 0:
        means = {}  # another replica counts these samples
    return reduce_means(means, reducer)
