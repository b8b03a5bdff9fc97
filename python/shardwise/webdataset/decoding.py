"""Decoding of fields by their names' endings.

A handler is called with "." + the field's name, and with the field's bytes. It returns the decoded
value; or None, if it does not decode such fields; or Continue(name, bytes), which the next handlers
decode. A package that a field needs (Pillow, NumPy, torch ...) is imported at its first use.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from .._core import decode_image
from ..errors import BadField, InvalidArgument, Unsupported
from ..wids.decode import DECODERS, decompressed

Handler = Callable[[str, bytes], Any]

IMAGE_EXTENSIONS = (
    "blp bmp dib bufr cur pcx dcx dds ps eps fit fits fli flc ftc ftu gbr gif grib h5 hdf png apng "
    "jp2 j2k jpc jpf jpx j2c icns ico im iim tif tiff jfif jpe jpg jpeg mpg mpeg msp pcd pxr pbm "
    "pgm ppm pnm psd bw rgb rgba sgi ras tga icb vda vst webp wmf emf xbm xpm"
).split()
"""The extensions of images that Pillow opens."""


class Continue:
    """Returned by a handler for a field that the next handlers are to decode, under the name
    ``key``."""

    def __init__(self, key: str, data: Any) -> None:
        self.key, self.data = key, data


class DecodingError(Exception):
    """A field could not be decoded; the reason is its __cause__."""

    def __init__(self, url: Any = None, key: Any = None, k: Any = None, sample: Any = None) -> None:
        super().__init__(f"cannot decode: sample {key!r}, field {k!r}, shard {url!r}")
        self.url, self.key, self.k, self.sample = url, key, k, sample

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.key, self.k)  # omits the sample, which may not pickle


def _extension(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def gzfilter(key: str, data: bytes) -> Continue | None:
    """Decompresses fields that end in .gz, to 1 GiB at most, for the handlers after it."""
    return Continue(key[:-3], decompressed(data)) if key.endswith(".gz") else None


def _refuse_pickle(data: bytes) -> Any:
    raise Unsupported(
        "pickles are not read, because they can run code; if you trust the shards, give "
        ".decode(...) "
        'wds.handle_extension("pkl pickle pyd", pickle.loads)'
    )


def _no_decoder(name: str) -> Callable[[bytes], Any]:
    def refuse(data: bytes) -> Any:
        raise Unsupported(
            f"the field .{name} has no decoder; give .decode(...) a function: "
            f"wds.handle_extension({name!r}, f)"
        )

    return refuse


def torch_loads(data: bytes) -> Any:
    """Loads tensors and plain containers of torch.save(), to the CPU (weights_only)."""
    import torch

    return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def _npz(data: bytes) -> Any:
    return dict(DECODERS["npy"](data))


def _cbor(data: bytes) -> Any:
    import cbor  # type: ignore[import-not-found, unused-ignore]

    return cbor.loads(data)


decoders: dict[str, Callable[[bytes], Any]] = {
    **DECODERS,
    "transcript": DECODERS["txt"],
    **dict.fromkeys(("index", "inx", "id"), DECODERS["cls"]),
    "jsn": DECODERS["json"],
    "msg": DECODERS["mp"],
    **dict.fromkeys(("pkl", "pickle", "pyd"), _refuse_pickle),
    "pth": torch_loads,
    "ten": _no_decoder("ten"),
    "tb": _no_decoder("tb"),
    "npz": _npz,
    "cbor": _cbor,
}
"""Functions of basichandlers() by ending; may be changed."""


def basichandlers(key: str, data: bytes) -> Any:
    """A handler for text, numbers, JSON, arrays and tensors; see ``decoders``. Raises Unsupported
    for pickles."""
    decode = decoders.get(_extension(key))
    return None if decode is None else decode(data)


def _call_for(key: str, data: bytes, f: Callable[[bytes], Any], endings: list[list[str]]) -> Any:
    parts = key.lower().split(".")
    for ending in endings:
        if parts[-len(ending) :] == ending:
            return f(data)
    return None


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Handler:
    """Returns a handler that calls ``f(bytes)`` for fields with these endings. extensions: one
    ending, or several separated by spaces; "seg.jpg" matches fields whose last parts are seg and
    jpg."""
    endings = [one.split(".") for one in extensions.lower().split()]
    return partial(_call_for, f=f, endings=endings)


imagespecs = {
    **{f"{mode}8": ("numpy", False, mode) for mode in ("l", "rgb", "rgba")},
    **{mode: ("numpy", True, mode) for mode in ("l", "rgb", "rgba")},
    **{f"torch{mode}8": ("torch", False, mode) for mode in ("l", "rgb", "rgba")},
    **{f"torch{mode}": ("torch", True, mode) for mode in ("l", "rgb", "rgba")},
    **{f"pil{mode}": ("pil", False, mode) for mode in ("l", "rgb", "rgba")},
    "torch": ("torch", True, "rgb"),
    "pil": ("pil", False, "rgb"),
}
"""Forms of decoded images, by the names for .decode(): library, float or not, mode."""


def _rgb_of_jpeg(data: bytes) -> Any:
    """Returns the pixels of a JPEG, which equal Pillow's. Returns None if Pillow must decode the
    data, or raise the error."""
    if not data.startswith(b"\xff\xd8"):
        return None
    try:
        return decode_image(data)
    except BadField:
        return None


class ImageHandler:
    """Decodes images as ``imagespec`` says: [torch | pil](l | rgb | rgba)[8], "pil" or "torch".

    The prefix "torch" gives tensors [C, H, W], "pil" gives Pillow's images, and no prefix gives
    NumPy arrays [H, W, C]. With the suffix 8, values are uint8, otherwise float32 in [0, 1].
    """

    def __init__(self, imagespec: str, extensions: Iterable[str] = IMAGE_EXTENSIONS) -> None:
        spec = imagespec.lower()
        if spec not in imagespecs:
            raise InvalidArgument(
                f"unknown image decoding: {imagespec!r}; choose one of " + ", ".join(imagespecs)
            )
        self.imagespec, self.extensions = spec, set(extensions)

    def __call__(self, key: str, data: bytes) -> Any:
        if _extension(key).lower() not in self.extensions:
            return None
        kind, is_float, mode = imagespecs[self.imagespec]
        mode = mode.upper()
        pixels = _rgb_of_jpeg(data) if kind != "pil" and mode == "RGB" else None
        if pixels is None:
            from PIL import Image

            with Image.open(io.BytesIO(data)) as opened:
                if kind == "pil":
                    return opened.convert(mode)
                import numpy

                pixels = numpy.asarray(opened if opened.mode == mode else opened.convert(mode))
        if kind == "torch":
            import numpy
            import torch

            pixels = pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels
            pixels = numpy.array(pixels, numpy.float32 if is_float else None, order="C")
            return torch.from_numpy(pixels).div_(255) if is_float else torch.from_numpy(pixels)
        return pixels.astype("float32") / 255.0 if is_float else pixels


def imagehandler(imagespec: str, extensions: Iterable[str] = IMAGE_EXTENSIONS) -> ImageHandler:
    """ImageHandler(imagespec, extensions)."""
    return ImageHandler(imagespec, extensions)


def _from_file(extension: str, data: bytes, load: Callable[[str], Any]) -> Any:
    """Writes the bytes to a temporary file with this suffix, and returns ``load(path)``."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"file.{extension}")
        with open(path, "wb") as file:
            file.write(data)
        return load(path)


_VIDEOS = "mp4 ogv mjpeg avi mov h264 mpg webm wmv".split()
_SOUNDS = "flac mp3 sox wav m4a ogg wma".split()


def torch_video(key: str, data: bytes) -> Any:
    """A handler for videos: (frames [T, H, W, C], sound [C, S], info), as
    torchvision.io.read_video() gives. It needs torchvision before 0.24, or PyAV."""
    extension = _extension(key).lower()
    if extension not in _VIDEOS:
        return None
    try:
        from torchvision.io import read_video  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from .videos import read_video

        return read_video(data)
    return _from_file(extension, data, lambda path: read_video(path, pts_unit="sec"))


def torch_audio(key: str, data: bytes) -> Any:
    """A handler for sounds: (samples [C, S], rate), as torchaudio.load() gives, which it needs."""
    extension = _extension(key).lower()
    if extension not in _SOUNDS:
        return None
    try:
        import torchaudio  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise Unsupported(
            "torch_audio needs torchaudio; install torchaudio, or use a shardwise.Loader with "
            "columns.audio(field)"
        ) from None
    return _from_file(extension, data, torchaudio.load)


default_pre_handlers: list[Handler] = [gzfilter]
default_post_handlers: list[Handler] = [basichandlers]


class Decoder:
    """Decodes the fields of a sample, each by the first handler that does not return None.

    handlers: functions, and texts for ImageHandler(). pre: handlers before them, by default
        gzfilter(). post: handlers after them, by default basichandlers().
    only: the fields to decode. partial: keep values that are not bytes; by default they are an
        error.

    Raises DecodingError.
    """

    def __init__(
        self,
        handlers: Sequence[Any],
        pre: Sequence[Handler] | None = None,
        post: Sequence[Handler] | None = None,
        only: str | Iterable[str] | None = None,
        partial: bool = False,
    ) -> None:
        made = [ImageHandler(one) if isinstance(one, str) else one for one in handlers]
        pre = default_pre_handlers if pre is None else pre
        post = default_post_handlers if post is None else post
        self.handlers: list[Handler] = [*pre, *made, *post]
        for handler in self.handlers:
            if not callable(handler):
                raise InvalidArgument(f".decode() got {handler!r}; give functions of (key, data)")
        only = only.split() if isinstance(only, str) else only
        self.only = None if only is None else set(only)
        self.partial = partial

    def decode1(self, key: str, data: Any) -> Any:
        """The value of one field, or its bytes if no handler knows it."""
        key = "." + key
        for handler in self.handlers:
            result = handler(key, data)
            if isinstance(result, Continue):
                key, data = result.key, result.data
            elif result is not None:
                return result
        return data

    def decode(self, sample: dict[str, Any]) -> dict[str, Any]:
        """The sample, decoded."""
        decoded: dict[str, Any] = {}
        for name, value in sample.items():
            try:
                decoded[name] = self._value(name, value)
            except Exception as error:
                raise DecodingError(
                    url=sample.get("__url__"), key=sample.get("__key__"), k=name, sample=sample
                ) from error
        return decoded

    def _value(self, name: str, value: Any) -> Any:
        if name.startswith("__"):
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if self.only is not None and name not in self.only:
            return value
        if isinstance(value, bytes):
            return self.decode1(name, value)
        if not self.partial or value is None:
            raise InvalidArgument(
                f"the field is already a {type(value).__name__}, not bytes; call .decode() only "
                "once, or give .decode(..., partial=True)"
            )
        return value

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return self.decode(sample)


__all__ = [
    "IMAGE_EXTENSIONS",
    "Continue",
    "Decoder",
    "DecodingError",
    "ImageHandler",
    "basichandlers",
    "decoders",
    "default_post_handlers",
    "default_pre_handlers",
    "gzfilter",
    "handle_extension",
    "imagehandler",
    "imagespecs",
    "torch_audio",
    "torch_loads",
    "torch_video",
]
