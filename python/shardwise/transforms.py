"""Transforms of images, videos and sounds, between their decoding and a batch.

All random choices derive from the run's seed, the epoch and the sample. They are the same for any
number of threads and ranks, any batch size, and after a resume. The page docs/formats/transforms.md
specifies every step. The steps have the same distributions as those of torchvision.transforms.v2.
With equal parameters, pixels differ by at most 1 of 255. Resizing gives the same bytes as Pillow
12.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Union

from .arguments import suggests

Size = Union[int, tuple[int, int], Literal["group"]]
"""The side of a square in pixels, (height, width), or "group": the size of the batch's group, see
shardwise.ByGroup."""

Range = tuple[float, float]
"""The closed interval (least, most)."""


@suggests
class RandomResizedCrop(NamedTuple):
    """A crop of random area and aspect ratio, resized; also called Inception crop."""

    size: Size
    """Size of the result."""
    scale: Range = (0.08, 1.0)
    """Range of the crop's area, as a fraction of the image's."""
    ratio: Range = (3 / 4, 4 / 3)
    """Range of width / height, uniform in the logarithm. With the size "group", it is relative to the
    ratio of the group's size: (1, 1) means crops of exactly this ratio."""


@suggests
class Padding(NamedTuple):
    """Pixels added on each side."""

    top: int = 0
    """Pixels above."""
    left: int = 0
    """Pixels to the left."""
    bottom: int = 0
    """Pixels below."""
    right: int = 0
    """Pixels to the right."""


@suggests
class ColourJitter(NamedTuple):
    """The four adjustments in random order. Factors of 1 and turns of 0 change nothing."""

    probability: float = 1.0
    """Probability that the image is changed."""
    brightness: Range = (1.0, 1.0)
    """Range of the factor of brightness."""
    contrast: Range = (1.0, 1.0)
    """Range of the factor of contrast."""
    saturation: Range = (1.0, 1.0)
    """Range of the factor of saturation."""
    hue: Range = (0.0, 0.0)
    """Range of the shift of hue, as a fraction of the colour circle, in [-0.5, 0.5]."""


@suggests
class Normalize(NamedTuple):
    """(x / 255 - mean) / std, by channel; ImageNet's by default."""

    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Mean of each channel, on a scale where 255 is 1."""
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Standard deviation of each channel, on the same scale."""


@suggests
class RandomErasing(NamedTuple):
    """Overwrites a rectangle of the result; makes up to ten tries to find one that fits."""

    probability: float = 0.5
    """Probability that a rectangle is erased."""
    scale: Range = (0.02, 0.33)
    """Range of the rectangle's area, as a fraction of the image's."""
    ratio: Range = (0.3, 3.3)
    """Range of height / width, uniform in the logarithm."""
    value: Union[float, tuple[float, float, float]] = 0.0
    """Value written, in the result's own values, after normalisation."""


@suggests
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
    """Random crop, resized. At most one of this, resize and resize_shorter_side may be set."""
    resize: Union[Size, None] = None
    """Size of both sides; the aspect ratio changes."""
    resize_shorter_side: int = 0
    """Length of the shorter side in pixels; the other keeps the aspect ratio, rounded down. 0 means
    no resize."""
    padding: Union[Padding, None] = None
    """Pixels added on the sides."""
    centre_crop: Union[Size, None] = None
    """Size of the crop in the middle; a smaller image is padded."""
    random_crop: Union[Size, None] = None
    """Size of a crop at a random place; a smaller image is padded on both sides by what it
    lacks."""
    horizontal_flip: float = 0.0
    """Probability of mirroring left and right."""
    vertical_flip: float = 0.0
    """Probability of mirroring top and bottom."""
    colour_jitter: Union[ColourJitter, None] = None
    """Random change of colours."""
    grayscale: float = 0.0
    """Probability of a gray image, with three equal channels."""
    normalize: Union[Normalize, None] = None
    """Normalisation of floats. Without it they are x / 255."""
    random_erasing: Union[RandomErasing, None] = None
    """Random erasing of a rectangle."""
    fill: Union[int, tuple[int, int, int]] = 0
    """Colour of padding, 0 to 255."""
    filter: str = "bilinear"
    """Filter of resizes: "bilinear" or "bicubic", both antialiased."""
    type: str = "uint8"
    """Type of the values: "uint8", "float32", "float16", "bfloat16" or "uint16". "uint16" keeps the
    values of 16-bit PNG and PNM; it excludes resizing and recolouring, and other images are bad
    samples. The other types scale 16-bit images to 8 bits."""
    layout: str = "channels_first"
    """Order of the axes: "channels_first" means [3, H, W], "channels_last" means [H, W, 3]."""


@suggests
class ImageDecoding(NamedTuple):
    """How images are decoded."""

    max_pixels: int = 1 << 28
    """Maximum pixels of an image, checked before memory is allocated. Sides of more than 2^20
    pixels are refused, too."""
    strict: bool = False
    """Refuse damage that is tolerated by default, as in Pillow: damaged codes, a missing end."""
    apply_orientation: bool = False
    """Turn the image by its orientation tag, like Pillow's exif_transpose."""
    scaling: str = "exact"
    """How JPEGs that are reduced later are decoded: "exact" decodes the full size. "not_smaller"
    decodes at 1/2, 1/4 or 1/8, but not below the result's size; "fast" down to 3/4 of it. Reduced
    decoding is faster, but gives other pixels than "exact"."""


@suggests
class VideoClip(NamedTuple):
    """The frames of each video that a column has."""

    frames: int = 16
    """T, the number of frames, from 1 to 65,536."""
    every: int = 0
    """Distance from one taken frame to the next, e.g. 2 for every second frame. 0 means that the
    frames are spread evenly over the range, like np.linspace(0, n - 1, T)."""
    start: str = "first"
    """Place of the clip in the range: "first", "centre" or "random". Needs every."""
    begin_seconds: float = float("-inf")
    """Begin of the range: frames with times in [begin_seconds, end_seconds)."""
    end_seconds: float = float("inf")
    """End of the range, exclusive."""
    refuse_short: bool = False
    """Treat a video that is too short as a bad sample. By default its last frame is repeated."""
    max_pixels: int = 1 << 26
    """Maximum pixels of a frame."""
    max_frames: int = 1 << 24
    """Maximum frames of a video."""


@suggests
class AudioClip(NamedTuple):
    """The part of each sound that a column has, and its format."""

    sample_rate: int = 0
    """Samples per second of the result, by resampling. 0 means as stored."""
    channels: int = 0
    """Channels of the result, by mixing. 0 means as stored."""
    seconds: float = 0.0
    """Length of the clip in seconds. 0 means the whole range."""
    start: str = "first"
    """Place of the clip in the range: "first", "centre" or "random". Needs seconds."""
    begin_seconds: float = float("-inf")
    """Begin of the range in the sound, in seconds."""
    end_seconds: float = float("inf")
    """End of the range, exclusive."""
    fixed_length: bool = False
    """Make all rows round(seconds * sample_rate) samples long, with zeros after shorter sounds.
    Needs seconds, sample_rate and channels."""
    max_samples: int = 1 << 28
    """Maximum samples of a sound."""
