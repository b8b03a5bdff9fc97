"""Writing shards: ShardWriter, TarWriter, and how values become bytes."""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from . import _core
from .arguments import columns_of, path_of, require
from .errors import BadField, InvalidArgument
from .records import PackReport, Progress

Encoder = Callable[[Any], bytes]

_NO_LIMIT = 1 << 62


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"wanted str, bytes or a number, got {type(value).__name__}")
    return value.encode()


def _number(value: Any) -> bytes:
    number = int(value) if math.isfinite(value) else None
    if number is None or number != value:
        raise ValueError(f"wanted a whole number, got {value!r}")
    return str(number).encode()


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value, allow_nan=False).encode()


def _npy(value: Any) -> bytes:
    import numpy

    stream = io.BytesIO()
    numpy.lib.format.write_array(stream, numpy.asarray(value), allow_pickle=False)
    return stream.getvalue()


def _npz(value: Any) -> bytes:
    import numpy

    arrays: dict[str, Any] = {name: numpy.asarray(array) for name, array in value.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(f"the array {name!r} has objects, which need a pickle")
    stream = io.BytesIO()
    numpy.savez_compressed(stream, **arrays)
    return stream.getvalue()


def _pixels(array: Any) -> Any:
    """As uint8. As in webdataset, floats are of [0, 1], and may be a thousandth beyond."""
    if array.dtype == "uint8":
        return array
    if array.dtype.kind in "biu":
        largest, scale, beyond = (1, 255, 0.0) if array.dtype.kind == "b" else (255, 1, 0.0)
    elif array.dtype.kind == "f":
        largest, scale, beyond = 1, 255, 1e-3
    else:
        raise TypeError(f"pixels are uint8, or floats in [0, 1], and not {array.dtype}")
    if array.size and not (array.min() >= -beyond and array.max() <= largest + beyond):
        raise ValueError(f"pixels of {array.dtype} go from 0 to {largest}, and some do not")
    return (array.clip(0, largest) * scale).astype("uint8")


def _image(kind: str, **options: Any) -> Encoder:
    def encode(value: Any) -> bytes:
        import numpy
        from PIL import Image

        if not isinstance(value, Image.Image):
            value = Image.fromarray(_pixels(numpy.asarray(value)))
        if kind in ("JPEG", "PPM"):
            value = value.convert("RGB")
        stream = io.BytesIO()
        value.save(stream, format=kind, **options)
        return stream.getvalue()

    return encode


_ENCODERS: dict[str, Encoder] = {
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _number),
    **dict.fromkeys(("json", "jsn"), _json),
    "npy": _npy,
    "npz": _npz,
    **dict.fromkeys(("jpg", "jpeg", "img", "image"), _image("JPEG", quality=100)),
    "png": _image("PNG"),
    "ppm": _image("PPM"),
    "webp": _image("WEBP", lossless=True),
}


def encoded(field: str, value: Any, encoders: Mapping[str, Encoder] | None = None) -> bytes:
    """The bytes that a value is stored as in a field, by the last part of the field's name.

    bytes (and other buffers that are no array) stay as they are, and str in every field is UTF-8.
    Otherwise txt: str; cls, id, index: a whole number (5.0 is one); json: JSON, which has no NaN;
    npy, npz: NumPy's (no pickles); jpg, png, ppm, webp: an image of PIL, or an array [H, W, 3] of
    whole numbers from 0 to 255, or of floats in [0, 1]; with ".gz" behind it, compressed. Pickled
    fields (pkl, pt, pth) are not written: reading them runs code. encoders: your own by the last
    part of a field's name; they come first.

    Raises BadField if a value cannot be stored so.
    """
    kind = field.rsplit(".", 1)[-1].lower()
    try:
        if encoders is not None and kind in encoders:
            made = encoders[kind](value)
            if not isinstance(made, (bytes, bytearray, memoryview)):
                raise TypeError(f"its encoder gave a {type(made).__name__}, and not bytes")
            return bytes(made)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if kind == "gz" and "." in field:
            import gzip

            inner = field.rsplit(".", 1)[0]
            return gzip.compress(encoded(inner, value, encoders), mtime=0)
        if isinstance(value, str):
            return value.encode()
        if kind not in _ENCODERS:
            raise TypeError(f"nothing here encodes a {type(value).__name__}; give bytes")
        return _ENCODERS[kind](value)
    except (TypeError, ValueError, OSError, ImportError) as error:
        raise BadField(f"the field {field!r} cannot be stored: {error}") from error


def _field_of(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"a field is named by a str, and not by {name!r}")
    return name


class _Closing:
    """What is closed at the end of a with block, unless an exception ends it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def close(self) -> None:
        raise NotImplementedError

    def _abandon(self) -> None:
        raise NotImplementedError


class _Abandoned:
    """In the place of a writer whose block was left by an exception."""

    def __init__(self, paths: list[str], num_samples: int) -> None:
        self.paths = paths
        self.num_samples = num_samples

    def write(self, key: str, fields: Mapping[str, Any]) -> None:
        raise InvalidArgument("an exception has ended this writer: make another one")

    def close(self) -> None:
        pass


class ShardWriter(_Closing):
    """Writes samples into tar shards, one after another, and an index beside them if asked.

    >>> with shardwise.ShardWriter("new-%06d.tar", index="new-shards.idx") as sink:
    ...     for i in range(10):
    ...         sink.write({"__key__": f"{i:06}", "json": {"number": i}, "cls": i % 3})
    >>> shardwise.open("new-shards.idx")[5].json("json")
    {'number': 5}

    Equal samples make equal bytes on every machine. A shard appears under its name when it is full,
    whole or not at all. Leaving the block by an exception leaves the shards that were full, and
    makes no index.

    pattern: one number, "train-%06d.tar" or "train-{:06}.tar". max_samples, max_bytes: of a shard,
    at most. replace: replace shards that are there, instead of raising. index: a path. columns:
    metadata that the index takes from fields. encoders: as of encoded().
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        max_samples: int = 100_000,
        max_bytes: float = 3e9,
        *,
        replace: bool = False,
        index: str | os.PathLike[str] | None = None,
        columns: tuple[str, ...] | list[str] = (),
        encoders: Mapping[str, Encoder] | None = None,
    ) -> None:
        pattern = path_of(pattern)
        _refuse_compressed(pattern)
        self._core: _core.ShardWriter | _Abandoned = _core.ShardWriter(
            pattern,
            max_samples=max_samples,
            max_bytes=int(min(max_bytes, _NO_LIMIT)),
            replace=replace,
        )
        self._index = None if index is None else path_of(index)
        self._columns = columns_of(columns)
        self._encoders = encoders
        self._closed = False

    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes a sample: "__key__", and values by field. Other names with "__" are left out.

        Raises InvalidArgument if a reader would not find this key with these fields; BadField.
        """
        require("sample", sample, Mapping, 'give a dict of "__key__" and of values by field')
        if "__key__" not in sample:
            raise InvalidArgument(
                "a sample has a \"__key__\"; this one has " + ", ".join(map(str, sample))
            )
        fields = {
            name: encoded(name, value, self._encoders)
            for name, value in sample.items()
            if not _field_of(name).startswith("__")
        }
        self._core.write(sample["__key__"], fields)

    @property
    def paths(self) -> list[str]:
        """Of the shards that are finished."""
        return self._core.paths

    @property
    def num_samples(self) -> int:
        """Written so far."""
        return self._core.num_samples

    def close(self) -> None:
        """Finishes the last shard, and makes the index."""
        if self._closed:
            return
        self._closed = True
        self._core.close()
        if self._index is not None:
            from .building import index

            index(self._index, *self.paths, columns=self._columns)

    def _abandon(self) -> None:
        self._closed = True
        self._core = _Abandoned(self._core.paths, self._core.num_samples)


class TarWriter(_Closing):
    """Writes samples into one shard, which appears when it is closed. As ShardWriter otherwise."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        replace: bool = False,
        index: str | os.PathLike[str] | None = None,
        columns: tuple[str, ...] | list[str] = (),
        encoders: Mapping[str, Encoder] | None = None,
    ) -> None:
        self._path = path_of(path)
        _refuse_compressed(self._path)
        self._replace = replace
        if os.path.exists(self._path) and not replace:
            raise self._there_already()
        # The writer numbers its shards; this one is renamed when it is whole.
        folder, name = os.path.split(os.path.abspath(self._path))
        self._part = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.part-")
        self._writer = ShardWriter(
            self._part.replace("%", "%%") + "%d.tar",
            max_samples=_NO_LIMIT,
            max_bytes=_NO_LIMIT,
            replace=True,
            encoders=encoders,
        )
        self._index = None if index is None else path_of(index)
        self._columns = columns_of(columns)
        self._closed = False

    def write(self, sample: Mapping[str, Any]) -> None:
        """As ShardWriter.write()."""
        self._writer.write(sample)

    def close(self) -> None:
        """Finishes the shard, and makes the index."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        if not self._writer.paths:
            raise InvalidArgument(f"no sample was written: {self._path!r}")
        self._take_place(self._writer.paths[0])
        if self._index is not None:
            from .building import index

            index(self._index, self._path, columns=self._columns)

    def _abandon(self) -> None:
        self._closed = True
        self._writer._abandon()

    def _there_already(self) -> InvalidArgument:
        return InvalidArgument(f"the file is there already: {self._path!r}; or give replace=True")

    def _take_place(self, part: str) -> None:
        """Gives the shard its name, which another writer may have taken meanwhile."""
        try:
            if not self._replace:
                try:
                    os.link(part, self._path)
                    return
                except FileExistsError:
                    raise self._there_already() from None
                except OSError:  # a file system without links
                    if os.path.lexists(self._path):
                        raise self._there_already() from None
            os.replace(part, self._path)
        finally:
            with contextlib.suppress(FileNotFoundError):  # which it is under its new name
                os.unlink(part)


def _refuse_compressed(path: str) -> None:
    if path.endswith((".gz", ".tgz", ".bz2", ".xz", ".zst", ".lz4")):
        raise InvalidArgument(
            f"shards are written uncompressed, so that samples can be read in place: {path!r}; "
            "end the name in .tar, and compress fields where that pays"
        )


def pack(
    pattern: str | os.PathLike[str],
    *,
    images: str | os.PathLike[str] | None = None,
    files: str | os.PathLike[str] | None = None,
    max_samples: int = 1000,
    max_bytes: float = float("inf"),
    shuffle: bool = False,
    seed: int = 0,
    replace: bool = False,
    index: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> PackReport:
    """Makes shards from files, as `shardwise pack` does: the same files give the same shards.

    images: a folder with one folder of images per class; the class, from 0 in the order of the
        folders' names, becomes the field cls. files: a folder of files that are grouped by their
        names up to the first dot. One of the two.
    pattern, max_samples, max_bytes, replace, index: as of ShardWriter. shuffle: mixes the samples,
        by seed.
    progress: is called once a shard.

    Raises NotFound (no folder, no sample), InvalidArgument, OSError.
    """
    if (images is None) == (files is None):
        raise InvalidArgument("what is to be packed is one of images and files: give one of them")
    folder = images if images is not None else files
    assert folder is not None
    samples, classes, left_out = _core.list_to_pack(path_of(folder), images is not None)
    if shuffle:
        samples = _core.shuffled(samples, seed)
    with ShardWriter(pattern, max_samples, max_bytes, replace=replace, index=index) as sink:
        shards = 0
        for key, members, class_number in samples:
            sample: dict[str, Any] = {"__key__": key}
            for field, path in members:
                with open(path, "rb") as file:
                    sample[field] = file.read()
            if class_number is not None:
                sample["cls"] = class_number
            sink.write(sample)
            if progress is not None and len(sink.paths) != shards:
                shards = len(sink.paths)
                progress(Progress(0, 0, shards, 0, sink.num_samples))
    return PackReport(sink.paths, sink.num_samples, classes, left_out)
