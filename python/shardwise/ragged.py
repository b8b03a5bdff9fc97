"""Rows of different shapes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


class Ragged:
    """The rows of a column that differ in shape: all values in one array, with the rows' offsets.

    values: [V], all rows, one after another. offsets: int64 [N + 1]: row i is
    ``values[offsets[i]:offsets[i + 1]]``. shapes: int64 [N, D], the shape of each row. All three
    are NumPy arrays, or torch tensors. For one-dimensional numeric rows,
    ``torch.nested.nested_tensor_from_jagged(r.values, r.offsets)`` makes a nested tensor.

    ``ragged[i]`` is row i, in its shape: a view of the values.
    """

    __slots__ = ("values", "offsets", "shapes")

    def __init__(self, values: Any, offsets: Any, shapes: Any) -> None:
        self.values = values
        self.offsets = offsets
        self.shapes = shapes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        size, row = len(self), operator.index(row)
        place = row + size if row < 0 else row
        if not 0 <= place < size:
            raise IndexError(
                f"the column has no row {row}; give a number below {size}, its number of rows"
            )
        values = self.values[int(self.offsets[place]) : int(self.offsets[place + 1])]
        return values.reshape(tuple(int(side) for side in self.shapes[place]))

    # No __iter__(): Python iterates by __getitem__(). Lightning looks into each Iterable for the
    # size of the batch, and would take the length of the first row.

    def _each(self, change: Callable[[Any], Any]) -> Ragged:
        """The same rows, with change() applied to values, offsets and shapes."""
        import torch

        return Ragged(*(change(torch.as_tensor(getattr(self, name))) for name in self.__slots__))

    def to(self, device: Any, *, non_blocking: bool = False) -> Ragged:
        """The same rows as torch tensors on a device. They share this object's memory if that is
        on the device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Ragged:
        """A copy of torch tensors in page-locked memory."""
        return self._each(lambda tensor: tensor.pin_memory())

    @property
    def device(self) -> Any:
        """The device of its values."""
        return self.values.device

    def record_stream(self, stream: Any) -> None:
        """Like that of a torch tensor: the memory stays until ``stream`` has used it."""
        for name in self.__slots__:
            getattr(self, name).record_stream(stream)

    def __repr__(self) -> str:
        return f"<shardwise.Ragged of {len(self)} rows: {len(self.values)} {self.values.dtype}>"
