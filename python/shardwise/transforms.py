"""Transforms of images, videos and sounds, between their decoding and a batch.

All random choices derive from the run's seed, the epoch and the sample. They are the same for any
number of threads and ranks, any batch size, and after a resume. The page docs/formats/transforms.md
specifies every step. The steps equal torchvision.transforms.v2 in distribution, and, for given
parameters, in pixels up to 1 of 255. Resizing gives the bytes of Pillow 12.
"""

from __future__ import annotations

from typing import NamedTuple, Union

Size = Union[int, tuple[int, int]]
"""The side of a square in pixels, or (height, width)."""

Range = tuple[float, float]
"""(least, most)."""


class RandomResizedCrop(NamedTuple):
    """A crop of random area and shape, resized: Inception's."""

    size: Size
    scale: Range = (0.08, 1.0)
    """Of the image's area."""
    ratio: Range = (3 / 4, 4 / 3)
    """Width by height, uniform in its logarithm."""


class Padding(NamedTuple):
    """Pixels added on each side."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0


class ColourJitter(NamedTuple):
    """The four adjustments in random order. Factors of 1 and turns of 0 change nothing."""

    probability: float = 1.0
    brightness: Range = (1.0, 1.0)
    contrast: Range = (1.0, 1.0)
    saturation: Range = (1.0, 1.0)
    hue: Range = (0.0, 0.0)
    """Turns of the circle, in [-0.5, 0.5]."""


class Normalize(NamedTuple):
    """(x / 255 - mean) / std, by channel; ImageNet's by default."""

    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


class RandomErasing(NamedTuple):
    """Overwrites a rectangle of the result; makes up to ten tries to find one that fits."""

    probability: float = 0.5
    scale: Range = (0.02, 0.33)
    """Of the image's area."""
    ratio: Range = (0.3, 3.3)
    """Height by width, uniform in its logarithm."""
    value: Union[float, tuple[float, float, float]] = 0.0
    """In the result's own values, after normalisation."""


class ImageTransform(NamedTuple):
    """Steps for images, in this order; steps that are not set are skipped.

    >>> from shardwise import columns
    >>> from shardwise.transforms import ImageTransform, Normalize, RandomResizedCrop
    >>> train = ImageTransform(
    ...     random_resized_crop=RandomResizedCrop(224),
    ...     horizontal_flip=0.5,
    ...     normalize=Normalize(),
    ...     type="float32",
    ... )
    >>> val = ImageTransform(resize_shorter_side=256, centre_crop=224)
    >>> loader = shardwise.Loader(ds, columns=[columns.image("jpg", train)], batch_size=8)
    >>> next(iter(loader))["jpg"].shape
    (8, 3, 224, 224)
    """

    random_resized_crop: Union[RandomResizedCrop, None] = None
    resize: Union[Size, None] = None
    """Both sides; the aspect ratio is not kept."""
    resize_shorter_side: int = 0
    """The other side keeps the aspect ratio, rounded down. 0: not."""
    padding: Union[Padding, None] = None
    centre_crop: Union[Size, None] = None
    """A smaller image is padded."""
    random_crop: Union[Size, None] = None
    """Likewise, by what it lacks, on both sides."""
    horizontal_flip: float = 0.0
    """A probability, as the next one and grayscale."""
    vertical_flip: float = 0.0
    colour_jitter: Union[ColourJitter, None] = None
    grayscale: float = 0.0
    normalize: Union[Normalize, None] = None
    """Of floats; without it they are x / 255."""
    random_erasing: Union[RandomErasing, None] = None
    fill: Union[int, tuple[int, int, int]] = 0
    """The colour of padding."""
    filter: str = "bilinear"
    """Of resizes: "bilinear" or "bicubic", both antialiased."""
    type: str = "uint8"
    """Of the values: "uint8", "float32", "float16" or "bfloat16"; or "uint16", the values as stored,
    of PNG and PNM with 16 bits a channel: other images are bad samples, and nothing resizes or
    recolours them. Of the other types, 16 bits are scaled to 8."""
    layout: str = "channels_first"
    """[3, H, W], or "channels_last": [H, W, 3]."""


class ImageDecoding(NamedTuple):
    """How images are decoded."""

    max_pixels: int = 1 << 28
    """Larger images are refused before memory is taken for them; so are those with a side of more
    than 2^20 pixels."""
    strict: bool = False
    """Refuse what is otherwise forgiven, as Pillow forgives it: damaged codes, a missing end."""
    apply_orientation: bool = False
    """Turn the image as its orientation says, which is read as by Pillow's exif_transpose."""
    scaling: str = "exact"
    """Decode JPEGs at 1/2, 1/4 or 1/8 of their size where they are shrunk anyway: "not_smaller"
    (than the result), or "fast" (down to 3/4 of it). Quicker; the pixels are others."""


class VideoClip(NamedTuple):
    """The frames of each video that a column has."""

    frames: int = 16
    """T: from 1 to 65,536."""
    every: int = 0
    """0: frames spread evenly over the range, as by np.linspace(0, n - 1, T). Otherwise each
    every-th frame."""
    start: str = "first"
    """Where the clip begins in the range: "first", "centre" or "random". Not with every=0."""
    begin_seconds: float = float("-inf")
    """The range: the frames whose times lie in [begin, end)."""
    end_seconds: float = float("inf")
    refuse_short: bool = False
    """A video that is too short is bad; otherwise its last frame is repeated."""
    max_pixels: int = 1 << 26
    max_frames: int = 1 << 24


class AudioClip(NamedTuple):
    """The part of each sound that a column has, and its format."""

    sample_rate: int = 0
    """Samples a second, resampled. 0: as stored."""
    channels: int = 0
    """Mixed. 0: as stored."""
    seconds: float = 0.0
    """How long the clip is. 0: all of the range."""
    start: str = "first"
    """Where the clip begins in the range: "first", "centre" or "random". Only with seconds."""
    begin_seconds: float = float("-inf")
    end_seconds: float = float("inf")
    fixed_length: bool = False
    """All rows have round(seconds * sample_rate) samples, with zeros behind shorter sounds. Needs
    seconds, sample_rate and channels."""
    max_samples: int = 1 << 28
