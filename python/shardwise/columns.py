"""What a Loader makes of each sample: one array of its batches for each column.

A field is named as in the data set; several with semicolons between them stand for the first that a
sample has: "jpg;png". The column has the first one's name, unless ``column.named(name)`` gives it
another. A field that is compressed by its name ("json.gz", "npy.zst") is expanded, but by bytes().

A sample whose field is missing, or is not what the column says, is a bad sample: see
Loader(max_bad=). Fields that are pickles by name (.pt, .pth, .pkl, .pickle) can run code when they
are read: only bytes() takes them.

A dtype is a name as "float32", or NumPy's or torch's type of that name.

A column pickles, as other processes and Ray need it, if the function in it does.
"""

from __future__ import annotations

import builtins
import importlib
import operator
import os
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Union

from . import _core
from ._core import Column
from .arguments import refuse, require
from .errors import InvalidArgument, Unsupported
from .transforms import AudioClip, ImageDecoding, ImageTransform, VideoClip

__all__ = [
    "Column",
    "array",
    "audio",
    "bytes",
    "decoded",
    "function",
    "image",
    "integer",
    "json",
    "key",
    "npz",
    "text",
    "tokens",
    "video",
    "video_times",
]


def _dtype(dtype: Any) -> str:
    """The name of a type of NumPy or torch."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return (name if isinstance(name, str) else str(dtype)).removeprefix("torch.")


def _fields(fields: Any) -> str:
    require("fields", fields, str, 'name a field, as "jpg", or several: "jpg;png"')
    return str(fields)


def _sizes(shape: Any) -> Union[list[int], None]:
    if shape is None:
        return None
    try:
        return [operator.index(size) for size in shape]
    except TypeError:
        refuse("shape", shape, "give the sizes of one row, as (3, 224, 224), or None")


def _shape(shape: Union[Sequence[int], None]) -> list[int]:
    sizes = _sizes(shape)
    if sizes == []:
        raise InvalidArgument("a column of arrays has no shape (): leave shape out for ragged rows")
    return sizes or []


def _require_transform(transform: Any) -> None:
    require(
        "transform",
        transform,
        ImageTransform,
        "give a shardwise.transforms.ImageTransform; a function t of yours, as torchvision's "
        "transforms, goes into columns.decoded(field, dtype, shape, "
        "lambda data, random: t(PIL.Image.open(io.BytesIO(data))))",
    )


def _made(module: str, function: str, *arguments: Any) -> Column:
    """The column that a function of an extension makes, which knows how it was made."""
    made: Any = getattr(_core if module == "_core" else _media(), function)(*arguments)
    column: Column = made._made_from((module, function, *arguments))
    return column


def made_again(how: tuple[Any, ...], name: str) -> Column:
    """The column that was pickled."""
    return _made(*how).named(name)


def _callable(name: str, function: Any) -> Any:
    if not callable(function):
        refuse(name, function, "give a function")
    return function


_one_at_a_time = threading.Lock()


def _after_fork() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class _Locked:
    """A function that runs while no other such function does."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        with _one_at_a_time:
            return self._function(*arguments)


def _locked(function: Any, lock: bool) -> Any:
    require("lock", lock, bool, "say True or False")
    return _Locked(function) if lock else function


def bytes(fields: str) -> Column:
    """The bytes of a field, as they are: uint8, ragged."""
    return _made("_core", "column_of_kind", "bytes", _fields(fields))


def text(fields: str) -> Column:
    """A field that is UTF-8: uint8, ragged; ``batch.text(name)`` has its rows as a list of str."""
    return _made("_core", "column_of_kind", "text", _fields(fields))


def json(fields: str) -> Column:
    """As text(), checked to be valid JSON: one value, of any kind."""
    return _made("_core", "column_of_kind", "json", _fields(fields))


def integer(fields: str) -> Column:
    """A field that holds a decimal number: int64 [N]."""
    return _made("_core", "column_of_kind", "integer", _fields(fields))


def key(name: str = "__key__") -> Column:
    """The keys of the samples: uint8, ragged."""
    require("name", name, str, "name the column")
    return _made("_core", "column_of_kind", "key", name).named(name)


def tokens(fields: str, dtype: Any = "int32") -> Column:
    """A field of raw little-endian integers, as ``ndarray.tofile()`` writes them: ragged.

    dtype: uint16, int32, uint32 or int64; nothing in the field tells it.
    """
    return _made("_core", "tokens_column", _fields(fields), _dtype(dtype))


def array(fields: str, dtype: Any, shape: Union[Sequence[int], None] = None) -> Column:
    """A field that is a NumPy .npy file: ragged, or [N, ...] if ``shape`` is that of all.

    Another dtype or shape is a bad sample.

    >>> columns.array("feature.npy", "float32", (768,))
    <shardwise.columns.Column 'feature.npy' of float32>
    """
    return _made("_core", "array_column", _fields(fields), _dtype(dtype), _shape(shape))


def npz(fields: str, array: str, dtype: Any, shape: Union[Sequence[int], None] = None) -> Column:
    """One array of a field that is an .npz file; the column has the array's name."""
    require("array", array, str, "name an array of the file")
    return _made("_core", "npz_column", _fields(fields), array, _dtype(dtype), _shape(shape))


def image(
    fields: str = "",
    transform: ImageTransform = ImageTransform(),
    decoding: ImageDecoding = ImageDecoding(),
) -> Column:
    """An image: [N, 3, H, W] or [N, H, W, 3], of the type that the transform says.

    fields: "" stands for the sample's one field that is an image by its name.
    Unless the transform gives all images one size, those of a batch must be of one.
    Costs: only the part of an image that the transform shows is decoded.
    """
    require("decoding", decoding, ImageDecoding, "give a shardwise.transforms.ImageDecoding")
    _require_transform(transform)
    return _made("_core", "image_column", _fields(fields), transform, decoding)


def _require_clip(clip: Any, kind: type) -> None:
    require("clip", clip, kind, f"give a shardwise.transforms.{kind.__name__}")


def _media() -> ModuleType:
    """The extension that has FFmpeg's libraries, loaded when it is first needed."""
    try:
        return importlib.import_module("._video", __package__)
    except ModuleNotFoundError:
        raise Unsupported(
            "there are no columns of videos and sounds: this package was built without FFmpeg's "
            "libraries; build it where they are installed"
        ) from None


def video(
    fields: str, clip: VideoClip = VideoClip(), transform: ImageTransform = ImageTransform()
) -> Column:
    """A clip of each video: [N, T, 3, H, W] or [N, T, H, W, 3].

    All frames of a clip get the same crop, flip and colours. Decoding begins at the key frame
    before the clip, and ends with it. Raises Unsupported if the package was built without FFmpeg.
    """
    _require_clip(clip, VideoClip)
    _require_transform(transform)
    return _made("_video", "video_column", _fields(fields), clip, transform)


def video_times(fields: str, clip: VideoClip = VideoClip()) -> Column:
    """When each frame of the clip is shown, in seconds: float64 [N, T]. Nothing is decoded.

    The column has the name of the field with "_times" behind it.
    """
    _require_clip(clip, VideoClip)
    return _made("_video", "video_times_column", _fields(fields), clip)


def audio(fields: str, clip: AudioClip = AudioClip()) -> Column:
    """A part of each sound, also of a video's: float32, ragged rows [C, S], or [N, C, S]."""
    _require_clip(clip, AudioClip)
    return _made("_video", "audio_column", _fields(fields), clip)


def function(
    name: str,
    dtype: Any,
    shape: Union[Sequence[int], None],
    make: Callable[[_core.Sample, int], Any],
    *,
    lock: bool = False,
) -> Column:
    """What a function of yours gives for each sample: [N, ...], or ragged if ``shape`` is None.

    make: is called as ``make(sample, random)`` by the loader's threads, by one at a time (with the
        GIL), and gives an array of this dtype and shape (of NumPy, torch, anything with a buffer),
        bytes, or numbers. random: a whole number of 128 bits, of its own for each epoch and
        sample, whatever thread, batch and rank: seed with it whatever is random.
    lock: no two calls of functions that have it run at the same time. For what seeds, and draws
        from, a generator that all threads share, as torch's and random's own: a call that releases
        the GIL would lose it to the next one. Those calls then run one after another. A generator
        that is made in the call needs no lock.

    What it raises is raised by the loader, in the place of the batch. Raise errors.BadField for a
    sample that may be left out (max_bad). A row of another shape is a bad sample, too.

    Costs: 1 us a sample beside what it does, and all threads wait for each other while they run
    Python; what releases the GIL (much of NumPy, Pillow, torch) runs side by side. A thread keeps
    its threading.local() while the epoch lasts.

    >>> length = columns.function("length", "int64", (), lambda sample, random: len(sample["txt"]))
    >>> next(iter(shardwise.Loader(ds, columns=[length], batch_size=3)))["length"].shape
    (3,)
    """
    require("name", name, str, "name the column")
    make = _locked(_callable("make", make), lock)
    return _made("_core", "function_column", name, _dtype(dtype), _sizes(shape), make)


def decoded(
    fields: str,
    dtype: Any,
    shape: Union[Sequence[int], None],
    decode: Callable[[builtins.bytes, int], Any],
    *,
    lock: bool = False,
) -> Column:
    """What a decoder of yours makes of a field's bytes: [N, ...], or ragged without ``shape``.

    decode: is called as ``decode(data, random)``, as the function of function(); ``data`` are the
        bytes of the field, expanded if it is compressed. lock: as that of function().

    Any Exception that it raises says that the bytes are bad: the loader raises BadField with its
    class and text, or leaves the sample out (max_bad). MemoryError, KeyboardInterrupt, errors of
    the program (NameError, ImportError, SyntaxError, SystemError, ReferenceError), and errors of
    shardwise other than BadField end the batch as they are.
    """
    decode = _locked(_callable("decode", decode), lock)
    return _made("_core", "decoded_column", _fields(fields), _dtype(dtype), _sizes(shape), decode)
