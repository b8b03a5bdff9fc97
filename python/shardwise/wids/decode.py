"""Decodes fields by the endings of their names, as transformations of a dataset.

Each function takes a sample and returns it; keys that begin with ``__`` stay unchanged. Libraries
that a field needs (Pillow, NumPy, torch, msgpack, safetensors) are imported at first use.
"""

from __future__ import annotations

import io
import json
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import BadField, Error, InvalidArgument, Unsupported
from .sample import Sample

MAX_GZ_BYTES = 1 << 30
"""Default limit of the bytes of a decompressed .gz field."""

_IMAGES = ("jpg", "png", "ppm", "pgm", "pbm", "pnm")
# This list equals that of wids. Programs open .jpeg and .webp themselves, and Pillow cannot open an
# image that is already open.


def check_keys(sample: dict[str, Any]) -> None:
    """Raises InvalidArgument if a field's name has no leading dot."""
    for key in sample:
        if not key.startswith((".", "__")):
            raise InvalidArgument(
                f"the name of the field {key!r} has no leading dot; name the field {'.' + key!r}"
            )


def _bytes(value: Any) -> bytes:
    """Returns the bytes of a field, or of a stream from its current position on."""
    return bytes(value.read()) if hasattr(value, "read") else bytes(value)


def _ending(key: str) -> str:
    """Returns the last part of a field's name, without the dot. For names that end with .gz,
    returns the part before it."""
    parts = key.lower().split(".")
    if parts[-1] == "gz" and len(parts) > 2:
        parts.pop()
    return parts[-1] if len(parts) > 1 else ""


def _fields(sample: dict[str, Any]) -> list[str]:
    return [key for key in sample if key.startswith(".")]


def _bad_field(sample: dict[str, Any], key: str, error: Exception) -> Exception:
    """Returns the exception to raise for a decoder's error: a BadField with the field's name.
    Errors of shardwise, of memory and of imports are returned unchanged."""
    if isinstance(error, (Error, ImportError, MemoryError)):
        return error
    where = f"sample {sample['__key__']!r}, " if "__key__" in sample else ""
    reason = str(error) or type(error).__name__
    return BadField(f"{where}field {key!r} cannot be decoded: {reason}")


def decompressed(data: bytes, max_bytes: int = MAX_GZ_BYTES) -> bytes:
    """Decompresses gzip data. Raises BadField if it is damaged, or expands beyond ``max_bytes``."""
    pieces: list[bytes] = []
    left = max_bytes
    while data:
        gzip = zlib.decompressobj(wbits=31)
        try:
            piece = gzip.decompress(data, left + 1)
        except zlib.error as error:
            raise BadField(
                f"the gzip data of the field is damaged: {error}; restore the shard"
            ) from None
        left -= len(piece)
        if left < 0:
            raise BadField(
                f"the .gz field expands to more than {max_bytes:,} bytes; to allow this, give "
                "decode_all_gz() a larger max_bytes"
            )
        if not gzip.eof:
            raise BadField("the gzip data of the field is truncated; restore the shard")
        pieces.append(piece)
        data = gzip.unused_data.lstrip(b"\0")
    return b"".join(pieces)


def decode_all_gz(
    sample: dict[str, Any],
    format: bool | str | None = True,
    update_key: bool = True,
    max_bytes: int = MAX_GZ_BYTES,
) -> dict[str, Any]:
    """Decompresses the fields whose names end in .gz, in place.

    update_key: drop the ending from the name. max_bytes: maximum size of a decompressed field: a
    few KB of gzip can expand to as many GB. Raises BadField.
    """
    check_keys(sample)
    for key in _fields(sample):
        parts = key.split(".")
        if parts[-1].lower() != "gz":
            continue
        if len(parts) == 2:
            warnings.warn(
                'the field named ".gz" was not decompressed, because no name remains '
                "without .gz; rename the field, e.g. to txt.gz",
                stacklevel=2,
            )
            continue
        stream = io.BytesIO(decompressed(_bytes(sample[key]), max_bytes))
        if update_key:
            del sample[key]
            sample[key[: -len(".gz")]] = stream
        else:
            sample[key] = stream
    return sample


def _npy(data: bytes, allow_pickle: bool = False) -> Any:
    import numpy

    return numpy.load(io.BytesIO(data), allow_pickle=allow_pickle)


def _msgpack(data: bytes) -> Any:
    import msgpack  # type: ignore[import-not-found, unused-ignore]

    return msgpack.unpackb(data, raw=False)


def _safetensors(data: bytes) -> Any:
    import safetensors.torch  # type: ignore[import-not-found, unused-ignore]

    return safetensors.torch.load(data)


def _torch(data: bytes) -> Any:
    import torch  # type: ignore[import-not-found, unused-ignore]

    return torch.load(io.BytesIO(data), weights_only=False)


def _pickle(data: bytes) -> Any:
    import pickle

    return pickle.loads(data)


def _refuse_pickle(data: bytes) -> Any:
    raise Unsupported(
        "pickles are not read, because they can run code; if you trust the shards, set "
        "allow_pickle=True; transformations=[] leaves fields undecoded"
    )


DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text"), lambda data: str(data, "utf-8")),
    **dict.fromkeys(("cls", "cls2"), lambda data: int(str(data, "utf-8"))),
    "json": json.loads,
    "npy": _npy,
    "mp": _msgpack,
}
"""Decoders by ending, of shardwise.wids and shardwise.webdataset."""
_SAFE: dict[str, Callable[[bytes], Any]] = {
    **DECODERS,
    "safetensors": _safetensors,
    **dict.fromkeys(("pt", "pth", "pkl", "pickle"), _refuse_pickle),
}
_TRUSTING: dict[str, Callable[[bytes], Any]] = {
    **_SAFE,
    "npy": partial(_npy, allow_pickle=True),
    **dict.fromkeys(("pt", "pth"), _torch),
    **dict.fromkeys(("pkl", "pickle"), _pickle),
}


def decode_basic(
    sample: dict[str, Any], format: bool | str | None = True, allow_pickle: bool = False
) -> dict[str, Any]:
    """Decodes the fields that are text, numbers or arrays, in place.

    .txt .text (str), .cls .cls2 (int), .json, .npy (an array), .mp (msgpack), .safetensors. Pickles
    (.pkl .pickle .pt .pth) can run any code of their writer: without allow_pickle they are
    Unsupported. Each ending may be followed by .gz, if the field is already decompressed.
    """
    check_keys(sample)
    decoders = _TRUSTING if allow_pickle else _SAFE
    for key in _fields(sample):
        decode = decoders.get(_ending(key))
        if decode is None:
            continue
        data = _bytes(sample[key])
        try:
            sample[key] = decode(data)
        except Exception as error:
            raise _bad_field(sample, key, error) from error
    return sample


def _open_image(value: Any) -> Any:
    try:
        from PIL import Image  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise Unsupported(
            "decoding images needs Pillow; install Pillow, or give the data set your own "
            "transformations"
        ) from None
    return Image.open(value if hasattr(value, "read") else io.BytesIO(value))


def decode_images_to_pil(
    sample: dict[str, Any], format: bool | str | None = True
) -> dict[str, Any]:
    """Makes the images PIL.Image, in place: .jpg .png .ppm .pgm .pbm .pnm.

    Pillow reads the pixels at first use, and raises its errors then. Raises BadField for data that
    does not begin like an image.
    """
    check_keys(sample)
    for key in _fields(sample):
        if key.lower().rsplit(".", 1)[-1] in _IMAGES:
            try:
                sample[key] = _open_image(sample[key])
            except Exception as error:
                raise _bad_field(sample, key, error) from error
    return sample


def decode_images_to_numpy(
    sample: dict[str, Any], format: bool | str | None = True
) -> dict[str, Any]:
    """Makes the images NumPy arrays, in place: uint8 [H, W, C], or [H, W] of gray ones."""
    import numpy

    check_keys(sample)
    for key in _fields(sample):
        if key.lower().rsplit(".", 1)[-1] in _IMAGES:
            try:
                sample[key] = numpy.asarray(_open_image(sample[key]))
            except Exception as error:
                raise _bad_field(sample, key, error) from error
    return sample


def default_decoder(
    sample: dict[str, Any],
    format: bool | str | None = True,
    gz_update_key: bool = False,
    allow_pickle: bool = False,
) -> dict[str, Any]:
    """A decoded copy of a sample: .gz, the basic types, and images by ``format``.

    format: "PIL" or "numpy". gz_update_key: drop .gz from the names. Raises BadField, Unsupported
    (see decode_basic()), InvalidArgument for another format.
    """
    images = {"pil": decode_images_to_pil, "numpy": decode_images_to_numpy}
    decode_images = images.get(str(format).lower())
    if decode_images is None:
        raise InvalidArgument(f"not valid: format={format!r}; give 'PIL' or 'numpy'")
    result: dict[str, Any] = Sample(sample)
    decode_all_gz(result, update_key=gz_update_key)
    decode_basic(result, allow_pickle=allow_pickle)
    return decode_images(result)


__all__ = [
    "DECODERS",
    "MAX_GZ_BYTES",
    "check_keys",
    "decode_all_gz",
    "decode_basic",
    "decode_images_to_numpy",
    "decode_images_to_pil",
    "decompressed",
    "default_decoder",
]
