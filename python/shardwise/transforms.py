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
"""The closed interval (least, most)."""


class RandomResizedCrop(NamedTuple):
    """A crop of random area and shape, resized: Inception's."""

    size: Size
    scale: Range = (0.08, 1.0)
    """Fraction of the image's area."""
    ratio: Range = (3 / 4, 4 / 3)
    """Width / height, log-uniform."""


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
    """Fraction of a full turn of the hue circle, in [-0.5, 0.5]."""


class Normalize(NamedTuple):
    """(x / 255 - mean) / std, by channel; ImageNet's by default."""

    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


class RandomErasing(NamedTuple):
    """Overwrites a rectangle of the result; makes up to ten tries to find one that fits."""

    probability: float = 0.5
    scale: Range = (0.02, 0.33)
    """Fraction of the image's area."""
    ratio: Range = (0.3, 3.3)
    """Height / width, log-uniform."""
    value: Union[float, tuple[float, float, float]] = 0.0
    """In units of the result, after normalisation."""


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
    """Size of both sides; the aspect ratio changes."""
    resize_shorter_side: int = 0
    """The other side keeps the aspect ratio, rounded down. 0 means no such resize."""
    padding: Union[Padding, None] = None
    centre_crop: Union[Size, None] = None
    """Smaller images are padded."""
    random_crop: Union[Size, None] = None
    """Smaller images are padded on both sides, each time by all that they lack."""
    horizontal_flip: float = 0.0
    """A probability, like vertical_flip and grayscale."""
    vertical_flip: float = 0.0
    colour_jitter: Union[ColourJitter, None] = None
    grayscale: float = 0.0
    normalize: Union[Normalize, None] = None
    """For float types; without it, values are x / 255."""
    random_erasing: Union[RandomErasing, None] = None
    fill: Union[int, tuple[int, int, int]] = 0
    """Colour of padding."""
    filter: str = "bilinear"
    """The filter of resizes: "bilinear" or "bicubic", both antialiased."""
    type: str = "uint8"
    """The type of the values: "uint8", "float32", "float16", "bfloat16" or "uint16". "uint16" gives
    the stored values of PNG and PNM images with 16 bits per channel. Other images are then bad
    samples, and steps that resize or change colours are not possible. All other types scale 16 bits
    to 8."""
    layout: str = "channels_first"
    """The order of the axes: "channels_first" means [3, H, W], "channels_last" means [H, W, 3]."""


class ImageDecoding(NamedTuple):
    """How images are decoded."""

    max_pixels: int = 1 << 28
    """Largest image in pixels. Larger images are refused before memory is allocated. Images with a
    side above 2^20 pixels are always refused."""
    strict: bool = False
    """Refuse images with damaged codes or without an end marker. Without this option they are
    accepted, like in Pillow."""
    apply_orientation: bool = False
    """Rotate the image by its stored orientation, like Pillow's exif_transpose."""
    scaling: str = "exact"
    """When to decode JPEGs at 1/2, 1/4 or 1/8 of their size because a transform shrinks them.
    "exact" means never. "not_smaller" means: only if the decoded image is not smaller than the
    result. "fast" means: down to 3/4 of the result's size. Decoding is then faster, and gives
    slightly different pixels."""


class VideoClip(NamedTuple):
    """The frames of each video that a column has."""

    frames: int = 16
    """Number of frames T in the clip, 1 to 65,536."""
    every: int = 0
    """0 means: the T frames are spread evenly over the n frames of the range, at the positions of
    np.linspace(0, n - 1, T). Otherwise every every-th frame is taken."""
    start: str = "first"
    """Where the clip begins in the range: "first", "centre" or "random". Not possible with
    every=0."""
    begin_seconds: float = float("-inf")
    """The range consists of the frames whose times are in [begin_seconds, end_seconds)."""
    end_seconds: float = float("inf")
    refuse_short: bool = False
    """If True, a video that is too short is a bad sample. If False, its last frame is repeated."""
    max_pixels: int = 1 << 26
    max_frames: int = 1 << 24


class AudioClip(NamedTuple):
    """The part of each sound that a column has, and its format."""

    sample_rate: int = 0
    """In Hz, after resampling. 0 means the stored rate."""
    channels: int = 0
    """Number of channels after mixing. 0 means the stored number."""
    seconds: float = 0.0
    """Length of the clip. 0 means the length of the range."""
    start: str = "first"
    """Where the clip begins in the range: "first", "centre" or "random". Requires seconds."""
    begin_seconds: float = float("-inf")
    end_seconds: float = float("inf")
    fixed_length: bool = False
    """Give each row round(seconds * sample_rate) samples, padded with zeros. Requires seconds,
    sample_rate and channels."""
    max_samples: int = 1 << 28
