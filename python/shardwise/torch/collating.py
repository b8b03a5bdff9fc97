"""Batches of samples for torch's default_collate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _core


def collate(batch: Sequence[_core.Sample], *, collate_fn_map: Any = None) -> dict[str, Any]:
    """A batch of N samples as a dict; torch's default_collate calls it for Samples.

    "__key__" is a list of N str; "__index__" is an int64 tensor [N] of the samples' numbers, in a
    mix() their numbers in the mixture. A field that is a number by its name (cls, class, count, id,
    index ...) is an int64 tensor [N]; every other field is a list of N bytes, copied. If a sample
    lacks a field that another has, that field is a list with None in its place. Raises BadField,
    StaleIndex, OSError.
    """
    del collate_fn_map
    copies = [sample.copy() for sample in batch]
    made: dict[str, Any] = {
        "__key__": [sample.key for sample in batch],
        "__index__": torch.tensor([sample.number for sample in batch], dtype=torch.int64),
    }
    for field in dict.fromkeys(name for fields in copies for name in fields):
        values: list[Any] = [fields.get(field) for fields in copies]
        if _core.field_kind(field) == "integer":
            made[field] = _numbers(batch, field, values)
        else:
            made[field] = values
    return made


def _numbers(batch: Sequence[_core.Sample], field: str, values: list[Any]) -> Any:
    numbers = [
        None if value is None else sample.integer(field)
        for sample, value in zip(batch, values, strict=True)
    ]
    return numbers if None in numbers else torch.tensor(numbers, dtype=torch.int64)
