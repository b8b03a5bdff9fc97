"""Makes batches of the items that batched() collects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument


def _stacked(values: list[Any], tensors: bool, scalars: bool) -> Any:
    first = values[0]
    if isinstance(first, (int, float)):
        import numpy

        return numpy.array(values) if scalars else values
    kind = type(first).__module__.partition(".")[0]
    if tensors and kind in ("torch", "numpy") and hasattr(first, "shape"):
        if len({tuple(value.shape) for value in values}) > 1:
            raise InvalidArgument(
                "the arrays of a batch differ in shape: "
                f"{[tuple(value.shape) for value in values]}; resize them in .map(), or give "
                "batched(collation_fn=...)"
            )
        if kind == "torch":
            import torch

            return torch.stack(values)
        import numpy

        return numpy.array(values) if isinstance(first, numpy.ndarray) else values
    return values


def default_collation_fn(
    samples: Sequence[Any], combine_tensors: bool = True, combine_scalars: bool = True
) -> Any:
    """A batch of dicts or tuples: of each field a list, of numbers and arrays an array, of tensors
    a tensor."""
    first = samples[0]
    if isinstance(first, dict):
        other = next((sample for sample in samples if sample.keys() != first.keys()), None)
        if other is not None:
            raise InvalidArgument(
                f"the samples of a batch have different fields: {list(first)} and {list(other)}; "
                "select the common fields by .to_tuple(...)"
            )
        return {
            name: _stacked([sample[name] for sample in samples], combine_tensors, combine_scalars)
            for name in first
        }
    return tuple(
        _stacked(list(column), combine_tensors, combine_scalars)
        for column in zip(*samples, strict=True)
    )


__all__ = ["default_collation_fn"]
