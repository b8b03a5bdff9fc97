"""Metrics that are bitwise equal on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

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
    ranks: as of the loader.

    Every rank calls it. Raises InvalidArgument if ``measure`` returns another number of values;
    what prove() of the loader raises; Mismatch if names differ.
    """
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
            for name, values in measure(columns).items():
                if len(values) != given:
                    raise InvalidArgument(
                        f"evaluate() needs a number for each row: {name!r} has {len(values)} for "
                        f"{given} rows; use reduction='none'"
                    )
                means.setdefault(name, ExactMean()).add(values[:rows])
    loader.prove()
    return reduce_means(means, reducer_of(ranks))
