"""Batches by group: each batch has samples of one group, e.g. pictures of one aspect ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, Union

from .arguments import refuse, whole_number

__all__ = ["ByGroup", "aspect_groups"]

Group = Union[int, tuple[int, tuple[int, int]]]
"""A group's batch size, or (batch size, (height, width)): 0 means the loader's batch_size."""


class ByGroup(NamedTuple):
    """Batches whose samples belong to one group. Each group has a separate batch size. It may also
    have a separate size of pictures, to which ``ImageTransform(resize="group")``, or another step
    whose size is "group", resizes them.

    The samples of each window of the order are divided by group and cut into batches; the batches
    of all groups are then shuffled together. Each sample still comes exactly once.
    docs/formats/length-batches.md specifies it. ``batch.group`` is the key of a batch's group.

    >>> from shardwise import columns
    >>> from shardwise.transforms import ImageTransform
    >>> loader = shardwise.Loader(
    ...     ds,
    ...     columns=[columns.image("jpg", ImageTransform(resize="group"))],
    ...     by_group=shardwise.ByGroup(
    ...         "CASE WHEN sample < 100 THEN 'wide' ELSE 'tall' END",
    ...         {"wide": (16, (24, 32)), "tall": (8, (32, 24))},
    ...     ),
    ... )
    >>> sorted({(batch.group, batch["jpg"].shape) for batch in loader if len(batch) > 4})
    [('tall', (8, 3, 32, 24)), ('wide', (16, 3, 24, 32))]
    """

    expression: str
    """SQL expression over the table samples whose value is the key of a sample's group, e.g. the name
    of a metadata column."""
    groups: Mapping[Union[str, int, float], Group] = {}
    """Batch size, or (batch size, (height, width)), by key; a batch size of 0 means the loader's. A
    sample with another key is an error. Empty means: each key that occurs is a group."""
    window: int = 8192
    """Number of consecutive positions of the order that are divided together. If by_length is also
    given, its window must be equal."""
    leftovers: str = "hold_over"
    """Treatment of the samples of a group that do not fill a batch at the end of a window.
    "hold_over": they come first in the next window, so only the last window has smaller batches.
    "smaller_batch": they become a smaller batch."""


def aspect_groups(
    num_groups: int = 9,
    *,
    pixels: int = 256 * 256,
    batch_size: int = 0,
    most: float = 2.0,
    multiple: int = 16,
    width: str = "width",
    height: str = "height",
    window: int = 8192,
    leftovers: str = "hold_over",
) -> ByGroup:
    """Groups of pictures by aspect ratio, all of about the same number of pixels.

    The groups' ratios, width / height, are spread evenly on a logarithmic scale from 1 / most to
    most. Each picture belongs to the group with the nearest ratio. The key of a group is its size,
    e.g. "192x336".

    num_groups: number of groups. Groups whose sizes are equal after rounding become one group.
    pixels: approximate number of pixels of a picture.
    multiple: each side of a picture is a multiple of this number.
    batch_size: batch size of each group. 0 means the loader's batch_size.
    width, height: metadata columns, or SQL expressions, with the size of a picture.
    window, leftovers: those of ByGroup.

    >>> rule = shardwise.aspect_groups(3, pixels=64 * 64, batch_size=8)
    >>> rule.groups
    {'96x48': (8, (96, 48)), '64x64': (8, (64, 64)), '48x96': (8, (48, 96))}
    >>> rule.expression.endswith("WHEN 1.0 * (width) / (height) < 1.414214 THEN '64x64' ELSE '48x96' END")
    True
    """
    num_groups = whole_number("num_groups", num_groups)
    if not 1 <= num_groups <= 1000:
        refuse("num_groups", num_groups, "give a number from 1 to 1000")
    multiple, pixels = whole_number("multiple", multiple), whole_number("pixels", pixels)
    if multiple < 1 or pixels < multiple * multiple:
        refuse("pixels", pixels, f"give at least {multiple} * {multiple}")
    if not most >= 1 or math.isinf(most):
        refuse("most", most, "give the largest ratio of width to height, at least 1")
    sizes: dict[str, tuple[int, int]] = {}
    for i in range(num_groups):
        ratio = most ** (2 * i / (num_groups - 1) - 1) if num_groups > 1 else 1.0
        sides = math.sqrt(pixels / ratio), math.sqrt(pixels * ratio)
        h, w = (max(multiple, round(side / multiple) * multiple) for side in sides)
        sizes[f"{h}x{w}"] = (h, w)
    keys = sorted(sizes, key=lambda key: sizes[key][1] / sizes[key][0])
    ratio_of = f"1.0 * ({width}) / ({height})"
    cases = [f"WHEN {ratio_of} IS NULL THEN NULL"]  # without a size, a sample is an error
    for key, after in zip(keys, keys[1:]):
        (h, w), (other_h, other_w) = sizes[key], sizes[after]
        edge = math.sqrt(w / h * other_w / other_h)
        cases.append(f"WHEN {ratio_of} < {edge:.6f} THEN '{key}'")
    expression = f"CASE {' '.join(cases)} ELSE '{keys[-1]}' END"
    return ByGroup(expression, {key: (batch_size, sizes[key]) for key in keys}, window, leftovers)
