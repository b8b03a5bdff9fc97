"""The columns of a Loader: each makes one array of a batch from the samples.

A field is named as in the data set. Names joined by semicolons, e.g. "jpg;png", select the first
field that a sample has. The column has the first name unless ``column.named(name)`` gives another.
A field that is compressed by its name ("json.gz", "npy.zst") is expanded, except by bytes().

The fields of text(), json(), integer(), number(), tokens() and array() may have a JSON path in
SQLite's syntax, e.g. "json:$.caption" or "json;json.gz:$.size[0]"; the path holds for each of the
fields. The value is that of a metadata column of the index with this path. The column has the name
of the path's last key.

A value is missing if the sample lacks the field, or if the path leads to nothing or to null. The
sample is then a bad sample, unless ``missing=`` gives the value of its row. A sample whose field
does not fit the column is a bad sample: see Loader(max_bad=).

Fields that are pickles by name (.pt, .pth, .pkl, .pickle) can run code when they are read: only
bytes() takes them.

A dtype is a name, e.g. "float32", or the type of that name in NumPy or torch.

A column pickles, as other processes and Ray need it, if its function does.
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
from .arguments import refuse, require, suggests
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
    "metadata",
    "npz",
    "number",
    "text",
    "tokens",
    "video",
    "video_times",
]


def _dtype(dtype: Any) -> str:
    """Returns the name of a dtype of NumPy or torch."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return (name if isinstance(name, str) else str(dtype)).removeprefix("torch.")


def _fields(fields: Any) -> str:
    require("fields", fields, str, 'name a field, e.g. "jpg", or several: "jpg;png"')
    return str(fields)


def _sizes(shape: Any) -> Union[list[int], None]:
    if shape is None:
        return None
    try:
        return [operator.index(size) for size in shape]
    except TypeError:
        refuse("shape", shape, "give the sizes of one row, e.g. (3, 224, 224), or None")


def _shape(shape: Union[Sequence[int], None]) -> list[int]:
    sizes = _sizes(shape)
    if sizes == []:
        raise InvalidArgument(
            "not valid: shape=(); give the sizes of one row, e.g. (3, 224, 224), or leave out "
            "shape for rows that differ in shape"
        )
    return sizes or []


def _require_transform(transform: Any) -> None:
    require(
        "transform",
        transform,
        ImageTransform,
        "give a shardwise.transforms.ImageTransform; for your own function t, e.g. of "
        "torchvision, use columns.decoded(field, dtype, shape, lambda data, random: "
        "t(PIL.Image.open(io.BytesIO(data))))",
    )


def _made(module: str, function: str, *arguments: Any) -> Column:
    """Makes a column by a function of an extension. The column keeps the function's arguments for
    pickling."""
    made: Any = getattr(_core if module == "_core" else _media(), function)(*arguments)
    column: Column = made._made_from((module, function, *arguments))
    return column


def made_again(how: tuple[Any, ...], name: str) -> Column:
    """Rebuilds a pickled column."""
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
    """Wraps a function, so that it never runs at the same time as another function wrapped by this
    class."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        with _one_at_a_time:
            return self._function(*arguments)


def _locked(function: Any, lock: bool) -> Any:
    require("lock", lock, bool, "give True or False")
    return _Locked(function) if lock else function


_KINDS: dict[type, tuple[str, str]] = {
    int: ("integer", "a whole number of 64 bits, or None"),
    float: ("number", "a number, or None"),
    str: ("text", "a str, or None"),
}
"""The kinds of metadata columns, and what ``missing`` may be for each."""


def _missing(missing: Any, kind: type) -> Any:
    """Checks the value for samples without one."""
    if missing is None:
        return None
    try:
        if kind is str:
            return str(missing.encode(), "utf-8")
        if kind is float:
            return float(missing)
        number = operator.index(missing)
        if -(2**63) <= number < 2**63:
            return number
    except (TypeError, ValueError, AttributeError):
        pass
    refuse("missing", missing, f"give {_KINDS[kind][1]}")


def bytes(fields: str) -> Column:
    """The bytes of a field, unchanged: uint8, ragged."""
    return _made("_core", "column_of_kind", "bytes", _fields(fields), None)


def text(fields: str, *, missing: Union[str, None] = None) -> Column:
    """Text in UTF-8: uint8, ragged; ``batch.text(name)`` returns its rows as a list of str.

    At a JSON path: a string, or an object or array as JSON text without blanks.

    >>> columns.text("json:$.caption", missing="")
    <shardwise.columns.Column 'caption' of uint8>
    """
    return _made("_core", "column_of_kind", "text", _fields(fields), _missing(missing, str))


def json(fields: str, *, missing: Union[str, None] = None) -> Column:
    """One valid JSON value of any kind; rows as those of text(), parsed by ``batch.json(name)``.

    missing: JSON text.
    """
    return _made("_core", "column_of_kind", "json", _fields(fields), _missing(missing, str))


def integer(fields: str, *, missing: Union[int, None] = None) -> Column:
    """A whole number: int64 [N]. At a JSON path, true is 1 and false is 0."""
    return _made("_core", "column_of_kind", "integer", _fields(fields), _missing(missing, int))


def number(fields: str, *, missing: Union[float, None] = None) -> Column:
    """A number: float64 [N]. Whole numbers are rounded to the nearest float."""
    return _made("_core", "column_of_kind", "number", _fields(fields), _missing(missing, float))


def metadata(
    column: str, kind: type = int, *, missing: Union[int, float, str, None] = None
) -> Column:
    """The samples' values in a metadata column of the index; see shardwise.index(columns=).

    kind: the type of the values: int, float or str, with arrays as those of integer(), number() and
        text(). float also takes whole numbers. None (NULL in SQL) is a missing value.
    Cost: no shard is read for it. A Loader raises NotFound if the index has no such column.

    >>> columns.metadata("width")
    <shardwise.columns.Column 'width' of int64>
    """
    require("column", column, str, "name a metadata column")
    if kind not in _KINDS:
        refuse("kind", kind, "choose int, float or str")
    return _made("_core", "metadata_column", _KINDS[kind][0], column, _missing(missing, kind))


@suggests
def key(name: str = "__key__") -> Column:
    """The keys of the samples: uint8, ragged."""
    require("name", name, str, "name the column")
    return _made("_core", "column_of_kind", "key", name, None).named(name)


@suggests
def tokens(fields: str, dtype: Any = "int32") -> Column:
    """A field of raw little-endian integers, as ``ndarray.tofile()`` writes them: ragged.

    dtype: uint16, int32, uint32 or int64; the field does not record it. At a JSON path: an array of
        integers.
    """
    return _made("_core", "tokens_column", _fields(fields), _dtype(dtype))


@suggests
def array(fields: str, dtype: Any, shape: Union[Sequence[int], None] = None) -> Column:
    """A field that is a NumPy .npy file: ragged, or [N, ...] if ``shape`` gives the shape of all
    rows.

    A sample with another dtype or shape is a bad sample. At a JSON path: nested arrays of numbers,
    as integers, float32 or float64.

    >>> columns.array("feature.npy", "float32", (768,))
    <shardwise.columns.Column 'feature.npy' of float32>
    """
    return _made("_core", "array_column", _fields(fields), _dtype(dtype), _shape(shape))


@suggests
def npz(fields: str, array: str, dtype: Any, shape: Union[Sequence[int], None] = None) -> Column:
    """One array of a field that is an .npz file; the column has the array's name."""
    require("array", array, str, "name an array of the file")
    return _made("_core", "npz_column", _fields(fields), array, _dtype(dtype), _shape(shape))


@suggests
def image(
    fields: str = "",
    transform: ImageTransform = ImageTransform(),
    decoding: ImageDecoding = ImageDecoding(),
) -> Column:
    """An image: [N, 3, H, W] or [N, H, W, 3]; the transform determines the type.

    fields: "" selects the sample's one field that is an image by its name.
    The images of a batch must have one size, which a transform can give them.
    Cost: only the part of an image that the transform shows is decoded.
    """
    require("decoding", decoding, ImageDecoding, "give a shardwise.transforms.ImageDecoding")
    _require_transform(transform)
    return _made("_core", "image_column", _fields(fields), transform, decoding)


def _require_clip(clip: Any, kind: type) -> None:
    require("clip", clip, kind, f"give a shardwise.transforms.{kind.__name__}")


def _media() -> ModuleType:
    """Returns the extension with FFmpeg's libraries. Loads it at first use."""
    try:
        return importlib.import_module("._video", __package__)
    except ModuleNotFoundError:
        raise Unsupported(
            "this package was built without FFmpeg, which columns of videos and sounds need; "
            "install shardwise[video], or build shardwise where FFmpeg's libraries are installed"
        ) from None


@suggests
def video(
    fields: str, clip: VideoClip = VideoClip(), transform: ImageTransform = ImageTransform()
) -> Column:
    """A clip of each video: [N, T, 3, H, W] or [N, T, H, W, 3].

    All frames of a clip get the same crop, flip and colours. Decoding begins at the key frame
    before the clip, and ends with the clip. Raises Unsupported if the package was built without
    FFmpeg.
    """
    _require_clip(clip, VideoClip)
    _require_transform(transform)
    return _made("_video", "video_column", _fields(fields), clip, transform)


def video_times(fields: str, clip: VideoClip = VideoClip()) -> Column:
    """The time at which each frame of the clip is shown, in seconds: float64 [N, T]. No frame is
    decoded.

    The column has the field's name with "_times" appended.
    """
    _require_clip(clip, VideoClip)
    return _made("_video", "video_times_column", _fields(fields), clip)


@suggests
def audio(fields: str, clip: AudioClip = AudioClip()) -> Column:
    """A part of each sound, which may be that of a video: float32, ragged rows [C, S], or [N, C,
    S]."""
    _require_clip(clip, AudioClip)
    return _made("_video", "audio_column", _fields(fields), clip)


@suggests
def function(
    name: str,
    dtype: Any,
    shape: Union[Sequence[int], None],
    make: Callable[[_core.Sample, int], Any],
    *,
    lock: bool = False,
) -> Column:
    """A column made by your function, row by row: [N, ...], or ragged without ``shape``.

    make: called as ``make(sample, random)`` by the loader's threads, by one at a time (with the
        GIL). It returns an array of this dtype and shape (of NumPy, torch, anything with a buffer),
        bytes, or numbers. random: a whole number of 128 bits, fixed by epoch and sample,
        independent of thread, batch and rank. Seed all random draws with it.
    lock: no two calls of functions with lock=True run at the same time; the calls run one after
        another. Needed where the function seeds, and draws from, a generator that all threads
        share, e.g. those of torch and random: while a call releases the GIL, another call would
        change the generator. A generator that the call itself makes needs no lock.

    The loader raises an exception of the function in place of the batch. Raise errors.BadField for
    a sample that may be left out (max_bad). A row of another shape makes a bad sample.

    Cost: threads wait for each other while they run Python; code that releases the GIL (much of
    NumPy, Pillow, torch) runs in parallel. A thread keeps its threading.local() for the epoch.

    >>> length = columns.function("length", "int64", (), lambda sample, random: len(sample["txt"]))
    >>> next(iter(shardwise.Loader(ds, columns=[length], batch_size=3)))["length"].shape
    (3,)
    """
    require("name", name, str, "name the column")
    make = _locked(_callable("make", make), lock)
    return _made("_core", "function_column", name, _dtype(dtype), _sizes(shape), make)


@suggests
def decoded(
    fields: str,
    dtype: Any,
    shape: Union[Sequence[int], None],
    decode: Callable[[builtins.bytes, int], Any],
    *,
    lock: bool = False,
) -> Column:
    """A column that your decoder makes from a field's bytes: [N, ...], or ragged without ``shape``.

    decode: called as ``decode(data, random)``, like the function of function(); ``data`` holds the
        bytes of the field, expanded if the field is compressed. lock: as that of function().

    If it raises an Exception, the bytes are bad: the loader raises BadField with its class and
    text, or leaves the sample out (max_bad). These end the batch unchanged: MemoryError,
    KeyboardInterrupt, errors of the program (NameError, ImportError, SyntaxError, SystemError,
    ReferenceError), and errors of shardwise except BadField.
    """
    decode = _locked(_callable("decode", decode), lock)
    return _made("_core", "decoded_column", _fields(fields), _dtype(dtype), _sizes(shape), decode)
