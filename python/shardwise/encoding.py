"""Encodes values as the bytes of fields. A value that a field cannot store without loss is
refused."""

from __future__ import annotations

import io
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from . import _core
from .errors import BadField, Error, InvalidArgument

Encoder = Callable[[Any], bytes]


def _text(value: Any) -> bytes:
    raise TypeError(f"the value is of type {type(value).__name__}; give a str or bytes")


def _number(value: Any) -> bytes:
    if hasattr(value, "mask") and has_mask(value):
        raise ValueError(
            "the number is masked, and the mask would be lost; give a number without a mask"
        )
    try:
        number = operator.index(value)
    except TypeError:  # a float, e.g. 5.0
        whole = int(value) if math.isfinite(value) else None
        if whole is None or whole != value:
            raise ValueError(f"the value is {value!r}; give a whole number") from None
        number = whole
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(
            f"the number has {number.bit_length()} bits; give a signed 64-bit integer, or a str"
        )
    return str(number).encode()


def _require_own_keys(value: Any) -> None:
    """Raises ValueError if two keys of an object become the same text in JSON, since readers keep
    only one of them."""
    import json

    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            if len(json.loads(json.dumps(dict.fromkeys(value)))) < len(value):
                keys = ", ".join(map(repr, value))
                raise ValueError(
                    f"two keys of the dict become the same text in JSON: {keys}; rename one key"
                )
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for item in value:
        _require_own_keys(item)


def _json(value: Any) -> bytes:
    import json

    text = json.dumps(value, allow_nan=False).encode()
    _require_own_keys(value)
    _core.require_json(text)
    return text


def _require_json(text: bytes) -> None:
    try:
        _core.require_json(text)
    except ValueError as error:
        raise ValueError(
            f"the str is not JSON: {error}; give the result of json.dumps(text)"
        ) from None


def _null_count(value: Any) -> int:
    """Returns the number of nulls in a column of Arrow, Polars or pandas; 0 for other values."""
    import numpy

    kind = getattr(value, "dtype", None)
    if hasattr(value, "isna") and kind is not None and not isinstance(kind, numpy.dtype):
        return int(value.isna().sum())
    count = getattr(value, "null_count", 0)
    if callable(count):
        count = count()
    return count if isinstance(count, int) else 0


def has_mask(value: Any) -> bool:
    """Whether an array made of the value would lose its mask or its nulls."""
    import numpy

    if isinstance(value, (list, tuple)):
        return any(map(has_mask, value))
    if isinstance(value, numpy.ndarray):
        return isinstance(value, numpy.ma.MaskedArray)
    # `columns` is a list of columns for an Arrow table, names for pandas and a function for Polars.
    columns = value.get_columns() if hasattr(value, "get_columns") else ()
    return any(map(_null_count, (value, *columns, *getattr(value, "columns", ()))))


def _names_of_columns(value: Any) -> list[Any]:
    """Returns the names of a table's columns. Returns [] for pandas' default column numbers."""
    import numpy

    if isinstance(value, (list, tuple)):
        return _names_of_columns(value[0]) if value else []
    if isinstance(value, numpy.ndarray):
        return []
    names = getattr(value, "column_names", getattr(value, "columns", ()))
    known = list(names) if hasattr(value, "__array__") else []
    return [] if known == list(range(len(known))) else known


def _is_plain(value: Any) -> bool:
    """Whether numpy.asarray() keeps all elements of the value unchanged."""
    import numpy

    kind = getattr(value, "dtype", None)
    is_known = isinstance(kind, numpy.dtype) or type(kind).__module__ == "torch"
    return is_known or isinstance(value, memoryview) or hasattr(value, "__array_interface__")


def _differs(made: Any, item: Any) -> bool:
    try:
        return bool(made != item and item == item)
    except TypeError:  # pandas.NA has no truth value
        return True


def _require_equal(array: Any, value: Any, name: str) -> None:
    """Raises ValueError if the array's values differ from the given ones: NumPy turns large whole
    numbers and pandas.NA into floats, and numbers in a list with texts into texts."""
    import numpy

    if array.dtype.kind in "mM" and not isinstance(value, (list, tuple)):
        return  # pandas' classes for dates differ from NumPy's
    exact = value
    if hasattr(value, "astype"):  # pandas turns a table's NA into float for any dtype
        exact = value.astype(object)
    elif hasattr(value, "to_list"):  # Polars: nested nulls become floats, or there are only names
        exact = value.to_list()
    given = [
        item.item() if isinstance(item, numpy.generic) else item
        for item in numpy.asarray(exact, dtype=object).ravel().tolist()
    ]
    is_of_ints = array.dtype.kind in "iu"
    if array.dtype.kind in "biufc" and set(map(type, given)) <= ({int} if is_of_ints else {float}):
        return
    for made, item in zip(array.ravel().tolist(), given, strict=True):
        if _differs(made, item):
            raise ValueError(
                f"{name} would have {made!r} where the {type(value).__name__} has {item!r}; "
                "convert it to an array"
            )


def _is_kept(kind: Any) -> bool:
    """Whether a .npy file restores this dtype; false for ml_dtypes, e.g. bfloat16."""
    import numpy

    form = numpy.lib.format
    try:
        kept = form.descr_to_dtype(form.dtype_to_descr(kind))
    except TypeError:
        return False
    return bool(kept == kind) and not (kind.kind == "V" and kind.names is None)


def _array(value: Any, name: str = "the array") -> Any:
    import numpy

    if has_mask(value):
        raise ValueError(
            f"{name} has a mask or nulls, which would be lost; fill the values, and store the mask "
            "as another array"
        )
    names = _names_of_columns(value)
    if names:
        shown = ", ".join(map(repr, names[:4])) + (" ..." if len(names) > 4 else "")
        raise ValueError(
            f"{name} would lose the names of columns of the {type(value).__name__}: {shown}; give "
            "only its values, e.g. to_numpy(), or an npz of the columns"
        )
    array = numpy.asarray(value)
    kind = array.dtype
    if kind.hasobject:
        raise ValueError(
            f"{name} has Python objects, which only a pickle can store; convert the "
            "array to numbers or text"
        )
    if not _is_kept(kind):
        raise TypeError(
            f"{name} is of {kind}, which NumPy's format lacks; convert it, or store its bits as "
            "array.view() of uint8 or uint16"
        )
    if not _is_plain(value):
        _require_equal(array, value, name)
    return array


def _npy(value: Any) -> bytes:
    import numpy

    stream = io.BytesIO()
    numpy.lib.format.write_array(stream, _array(value), allow_pickle=False)
    return stream.getvalue()


def _npz(value: Any) -> bytes:
    import zipfile

    import numpy

    if not isinstance(value, Mapping):
        raise TypeError(
            f"the value is of type {type(value).__name__}; give a dict of arrays by name"
        )
    stream = io.BytesIO()
    # numpy.savez_compressed() would take some names of arrays as its own options.
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, item in value.items():
            if not isinstance(name, str) or "\0" in name:
                raise ValueError(f"the name of an array is {name!r}; give a str without NUL")
            if name.endswith(".npy") and name[:-4] in value:
                raise ValueError(
                    f"NumPy cannot distinguish the names {name!r} and {name[:-4]!r}; rename one "
                    "array"
                )
            array = _array(item, f"the array {name!r}")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                numpy.lib.format.write_array(member, array, allow_pickle=False)
    return stream.getvalue()


def _pixels(array: Any) -> Any:
    """Returns the pixels as uint8. Floats must be in [0, 1], with a tolerance of 0.001, as in
    webdataset."""
    if array.ndim != 2 and not (array.ndim == 3 and 2 <= array.shape[2] <= 4):
        raise ValueError(
            f"the array has the shape {list(array.shape)}; give an image [H, W], [H, W, 3], or "
            "[H, W, 2 or 4] with alpha"
        )
    if array.dtype == "uint8":
        return array
    if array.dtype.kind in "biu":
        largest, scale, beyond = (1, 255, 0.0) if array.dtype.kind == "b" else (255, 1, 0.0)
    elif array.dtype.kind == "f":
        largest, scale, beyond = 1, 255, 1e-3
    else:
        raise TypeError(f"the pixels are of type {array.dtype}; give uint8, or floats in [0, 1]")
    if array.size and not (array.min() >= -beyond and array.max() <= largest + beyond):
        raise ValueError(
            f"pixels of type {array.dtype} are outside of 0 to {largest}; scale or clip the pixels"
        )
    return (array.clip(0, largest) * scale).astype("uint8")


_ORIENTATION = 0x0112  # the Exif tag


def _upright(image: Any) -> Any:
    """Returns an image's only frame, turned as its orientation says, because no stored field keeps
    the orientation. Refuses an oriented image that was changed or copied since its file was opened:
    it still has the tag, whether or not it was turned."""
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        raise ValueError(
            f"the image has {frames} frames, but a field stores one frame; give the bytes of the "
            "file, or image.copy() of one frame"
        )
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # like viewers, ignore damaged Exif data
        orientation = 1
    if orientation not in range(2, 9):
        return image
    if image.format is None:
        raise ValueError(
            f"the image was changed, but still has the orientation {orientation} of its file; "
            "call PIL.ImageOps.exif_transpose() before changing or copying the image, or drop "
            "the Exif data"
        )
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _fitted(image: Any, kind: str) -> Any:
    """Converts the image to a mode of the format, without loss."""
    if image.mode == "I" and kind == "PNG":
        least, most = image.getextrema()
        if least < 0 or most > 0xFFFF:
            raise ValueError(
                f"pixels from {least} to {most} do not fit the 16 bits of png; "
                "store the image in a field npy"
            )
        return image.convert("I;16")
    if kind == "PNG":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        raise ValueError(
            f"pixels of mode {image.mode} have more than the 8 bits of {kind}; store the image "
            "in a field png (16 bits) or npy, or convert the pixels"
        )
    if kind == "WEBP":  # in mode RGB, Pillow would drop the transparent colour
        is_keyed = image.mode == "RGB" and image.has_transparency_data
        return image.convert("RGBA") if is_keyed else image
    if image.has_transparency_data:
        if image.convert("RGBA").getchannel("A").getextrema()[0] < 255:
            raise ValueError(
                f"the image has transparent pixels, which {kind} cannot store; use a field png "
                'or webp, or give image.convert("RGB")'
            )
    return image.convert("RGB")


def _image(kind: str, **options: Any) -> Encoder:
    def encode(value: Any) -> bytes:
        from PIL import Image

        if not isinstance(value, Image.Image):
            value = Image.fromarray(_pixels(_array(value)))
        if 0 in value.size:
            raise ValueError(
                "the image has no pixels; give an image with a height and width of at least 1"
            )
        upright = _upright(value)
        stream = io.BytesIO()
        # Pillow would store the profile by default. After conversion to RGB, only an RGB profile
        # fits.
        profile = value.info.get("icc_profile")
        if kind in ("JPEG", "WEBP") and profile and value.mode in ("RGB", "RGBA", "P"):
            _fitted(upright, kind).save(stream, format=kind, icc_profile=profile, **options)
        else:
            _fitted(upright, kind).save(stream, format=kind, **options)
        return stream.getvalue()

    return encode


_BINARY: dict[str, Encoder] = {
    "npy": _npy,
    "npz": _npz,
    **dict.fromkeys(("jpg", "jpeg", "img", "image"), _image("JPEG", quality=100)),
    "png": _image("PNG"),
    "webp": _image("WEBP", lossless=True, exact=True),
}
_OF_NAME: dict[str, Encoder] = {"ppm": _image("PPM"), **_BINARY}
_OF_KIND: dict[str, Encoder] = {"text": _text, "integer": _number, "json": _json}


def _encoder_of(name: str) -> Encoder | None:
    """Returns the encoder for the last part of a field's name, or None."""
    return _OF_NAME.get(name) or _OF_KIND.get(_core.field_kind(name))


def encoders_of(encoders: Mapping[str, Encoder] | None) -> Mapping[str, Encoder] | None:
    """Returns the encoders. Raises InvalidArgument for a key that no field's name can end with."""
    for kind, encode in (encoders or {}).items():
        if not isinstance(kind, str) or kind != kind.lower() or "." in kind or not callable(encode):
            raise InvalidArgument(
                f"not valid: encoders={{{kind!r}: {encode!r}}}; give a dict of functions, whose "
                'keys are the last parts of field names in lower case, e.g. "npy"'
            )
    return encoders


def _is_bytes(value: Any, kind: str) -> bool:
    """Whether the value is stored unchanged: bytes and buffers of bytes. A buffer of other values
    counts only if the field's kind has no encoder."""
    if isinstance(value, memoryview) and _encoder_of(kind):
        return value.ndim == 1 and value.format in ("B", "b", "c")
    return isinstance(value, (bytes, bytearray, memoryview))


def _bytes_of(field: str, value: Any, encoders: Mapping[str, Encoder] | None) -> bytes:
    kind = field.rsplit(".", 1)[-1].lower()
    if encoders is not None and kind in encoders:
        made = encoders[kind](value)
        if not isinstance(made, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"the encoder returned a value of type {type(made).__name__}; return bytes"
            )
        return bytes(made)
    if _is_bytes(value, kind):
        return bytes(value)
    if kind == "gz" and "." in field:
        import gzip

        return gzip.compress(_bytes_of(field.rsplit(".", 1)[0], value, encoders), mtime=0)
    if isinstance(value, str):
        if kind in _BINARY:
            raise TypeError("the value is a str; give an array, an image, or the bytes of a file")
        text = value.encode()
        if _encoder_of(kind) is _json:
            _require_json(text)
        return text
    encode = _encoder_of(kind)
    if encode is None:
        raise TypeError(
            f"the field has no encoder for values of type {type(value).__name__}; give bytes, or "
            f"encoders={{{kind!r}: function}}"
        )
    return encode(value)


def encoded(field: str, value: Any, encoders: Mapping[str, Encoder] | None = None) -> bytes:
    """Encodes a value as the bytes of a field; the last part of the field's name selects the
    encoding.

    bytes, and buffers that are not arrays, are stored unchanged. A str is stored as UTF-8 in every
    field that can be text; in json it must already be JSON.

    ``txt``: a str.
    ``cls``, ``id``, ``index``: a whole number of 64 bits; also a float without a fraction, e.g.
    5.0.
    ``json``: JSON as Sample.json() reads it.
    ``npy``, ``npz``: arrays in NumPy's formats. Refused are arrays that need pickles, masks, nulls,
    types that NumPy lacks (e.g. bfloat16), and tables with named columns.
    ``jpg``, ``png``, ``ppm``, ``webp``: an image of PIL, or an array [H, W, 3] of whole numbers
    from 0 to 255 or of floats in [0, 1].
    A name that ends with ".gz" compresses the field. Pickled fields (pkl, pt, pth) are refused,
    because reading them runs code.

    encoders: your encoders by the last part of a field's name; they take precedence.

    An image keeps its pixels, turned as its orientation says, and its colour profile where the
    format has one; other metadata is dropped. An image that was changed or copied since its file
    was opened, and still has an orientation, is refused: call PIL.ImageOps.exif_transpose() first.
    Images of several frames, transparent pixels in jpg and ppm, and more than 8 bits outside png
    are refused.

    Raises BadField if a value cannot be stored this way.
    """
    try:
        return _bytes_of(field, value, encoders)
    except Exception as error:
        if isinstance(error, (MemoryError, Error)) and not isinstance(error, BadField):
            raise
        is_plain = isinstance(error, (TypeError, ValueError)) and str(error)
        reason = str(error) if is_plain else f"{type(error).__name__}: {error}"
        raise BadField(f"the field {field!r} cannot be stored: {reason}") from error
