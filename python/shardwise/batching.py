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
    """Positions of the order that are sorted together; best a multiple of batch_size."""
    max_tokens: int = 0
    """Maximum tokens of a batch when all samples are padded to the longest, with at most batch_size
    samples; a longer sample is alone. 0 means: each batch has batch_size samples."""
    pack: str = ""
    """Ragged column of integers, one value per token, whose sequences are packed into batch_size
    rows of pack_to tokens. The column "x_segments" has the sequence of each token in its row, from
    1 (0: padding), and "x_positions" its place in the sequence."""
    pack_to: int = 0
    """Tokens per packed row. 0 means: do not pack."""
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
    """Mixup draws its ratio from Beta(alpha, alpha). 0 means: no mixup."""
    cutmix_alpha: float = 0.0
    """Cutmix draws its ratio from Beta(alpha, alpha). 0 means: no cutmix. If both are set, half of
    the batches get each."""
    probability: float = 1.0
    """Probability that a batch is mixed."""
