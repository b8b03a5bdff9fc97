"""Means over the samples of all ranks that do not depend on how the ranks share the samples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from . import _core
from .arguments import refuse
from .errors import Mismatch
from .ranks import Reducer, reducer_of

__all__ = ["ExactMean", "Mean", "reduce_means"]


@dataclass(frozen=True)
class Mean:
    """A mean over all ranks: sums and counts are added first, and divided once."""

    sum: float
    """The sum of the values of all ranks."""
    count: int
    """The number of values of all ranks."""

    @property
    def value(self) -> float:
        """The mean; NaN if there are no values."""
        return self.sum / self.count if self.count else math.nan

    def __float__(self) -> float:
        return self.value


class ExactMean:
    """The mean of values that are added without rounding. Its result is bitwise equal for any order
    of the values, and any distribution over batches and ranks.

    >>> mean = shardwise.ExactMean()
    >>> mean.add([1e16, 1.0, -1e16])
    >>> mean.reduce()
    Mean(sum=1.0, count=3)

    Memory: 0.6 KB. Threads: one.
    """

    def __init__(self) -> None:
        self._sum = _core.ExactSum()
        self.count = 0
        """Values added on this rank."""

    def add(self, values: Any) -> None:
        """Adds a number, or every element of an array of NumPy or torch, of any shape and type, on
        any device. Values become float64: whole numbers beyond 2^53 are rounded, one by one. Raises
        InvalidArgument for complex numbers, text, dates and masked arrays."""
        if isinstance(values, (int, float)):
            self._sum.add(float(values))
            self.count += 1
            return
        if hasattr(values, "detach"):  # torch
            if values.is_complex():
                refuse("values", values, "give real numbers")
            array = values.detach().cpu().double().reshape(-1).contiguous()
        else:
            import numpy

            if isinstance(values, numpy.ma.MaskedArray):
                refuse("values", values, "give values.compressed()")
            given = numpy.asarray(values)
            if given.dtype.kind not in "biufO":
                refuse("values", values, "give real numbers")
            array = numpy.ascontiguousarray(given.astype("float64").reshape(-1))
        self._sum.add_all(array)
        self.count += len(array)

    def reduce(self, ranks: Union[Reducer, str, None] = "auto") -> Mean:
        """The mean of all values of all ranks. Every rank calls it. Cost: one small all-reduce.

        ranks: as for a Loader.
        """
        words = reducer_of(ranks).all_reduce_sum(self._words())
        return _mean_of(words)

    def _words(self) -> list[int]:
        return [self.count, *self._sum.words()]


def _mean_of(words: list[int]) -> Mean:
    total = _core.ExactSum()
    total.set_words(words[1:])
    return Mean(total.value, words[0])


def reduce_means(
    means: Mapping[str, ExactMean], ranks: Union[Reducer, str, None] = "auto"
) -> dict[str, Mean]:
    """The means of all ranks, by name. Every rank calls it, with the same names in the same order,
    or with none if it had no samples. Cost: two small all-reduces. Raises Mismatch, on all ranks,
    if names differ."""
    reducer = reducer_of(ranks)
    size, rank = reducer.world_size, reducer.rank
    text = json.dumps(list(means)).encode() if means else b""
    shape = [0] * (2 * size)
    shape[rank], shape[size + rank] = len(text), len(means)
    shape = reducer.all_reduce_sum(shape)
    knows = [other for other in range(size) if shape[other]]
    if not knows:
        return {}
    length, count = shape[knows[0]], shape[size + knows[0]]
    own = list(text) if len(text) == length else [0] * length
    sums = [word for mean in means.values() for word in mean._words()] if means else []
    width = 1 + len(_core.ExactSum().words())
    sums = (sums + [0] * (width * count))[: width * count]
    squares = [byte * byte for byte in own]
    words = reducer.all_reduce_sum(own + squares + sums)
    same = len({(shape[other], shape[size + other]) for other in knows}) == 1
    # All ranks gave the same byte if the mean of the squares is the square of the mean.
    for added, squared in zip(words[:length], words[length : 2 * length], strict=True):
        same = same and added * added == squared * len(knows)
    if not same:
        raise Mismatch(
            f"the ranks have different means: rank {rank} has {list(means)}; give the same names "
            "in the same order on every rank"
        )
    names = json.loads(bytes(byte // len(knows) for byte in words[:length]))
    rows = words[2 * length :]
    return {name: _mean_of(rows[width * i : width * (i + 1)]) for i, name in enumerate(names)}
