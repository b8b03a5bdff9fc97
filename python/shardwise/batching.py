"""Options of a Loader for its batches: ByLength groups samples by length, Mixup mixes images."""

from __future__ import annotations

from typing import NamedTuple

from .arguments import suggests

__all__ = ["ByLength", "Mixup"]


@suggests
class ByLength(NamedTuple):
    """Batches of samples of similar length, so that a padded batch holds little padding.

    Each window of the order is sorted by length and cut into batches; the batches are then
    shuffled. Each sample still comes exactly once. docs/formats/length-batches.md specifies it.
    """

    field: str = ""
    """Name of the field whose size gives the length: its bytes divided by unit, rounded up. "a;b"
    means the first that the sample has."""
    column: str = ""
    """Metadata column with the length, rounded up; instead of field."""
    unit: int = 1
    """Bytes per unit of length, e.g. 4 for an int32 field of tokens."""
    window: int = 8192
    """Number of consecutive positions of the order that are sorted together. Choose a multiple of
    batch_size."""
    max_tokens: int = 0
    """Maximum number of tokens in a batch, counted after padding all its samples to the longest. A
    batch also has at most batch_size samples. A sample longer than max_tokens gets a separate
    batch. 0 means that each batch has batch_size samples."""
    pack: str = ""
    """Ragged column of integers, one value per token, whose sequences are packed into batch_size
    rows of pack_to tokens. For each token, the column "x_segments" has the number of its sequence
    in the row, from 1, and "x_positions" has its place in the sequence. In "x_segments", 0 means
    padding."""
    pack_to: int = 0
    """Tokens per packed row. 0 means no packing."""
    padding: int = 0
    """The value of positions without a token."""


@suggests
class Mixup(NamedTuple):
    """Mixup and cutmix: each image of a batch is mixed with the previous one, the first with the
    last. The columns "x_lambda", float32 [N], and "x_partner", int64 [N], say how to mix labels:
    ``lambda * f(output, label) + (1 - lambda) * f(output, label[partner])``.
    """

    column: str
    """The column of images, all of one size; mixup needs uint8 or float32."""
    mixup_alpha: float = 0.0
    """Mixup draws its ratio from Beta(alpha, alpha). 0 means no mixup."""
    cutmix_alpha: float = 0.0
    """Cutmix draws its ratio from Beta(alpha, alpha). 0 means no cutmix. If both are set, each
    mixed batch gets one of the two at random."""
    probability: float = 1.0
    """Probability that a batch is mixed."""
