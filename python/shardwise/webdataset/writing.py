"""TarWriter and ShardWriter with the arguments of webdataset, over those of shardwise."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from ..arguments import suggests
from ..encoding import encoded
from ..errors import InvalidArgument, Unsupported
from ..writing import TarWriter as _TarWriter
from ..writing import WithBlock

_EMPTY_TAR = bytes(10240)


def torch_dumps(data: Any) -> bytes:
    """Returns the bytes that torch.save() writes."""
    import torch

    stream = io.BytesIO()
    torch.save(data, stream)
    return stream.getvalue()


def numpy_dumps(data: Any) -> bytes:
    """An array as .npy."""
    return encoded("npy", data)


def _msgpack(data: Any) -> bytes:
    import msgpack

    return bytes(msgpack.packb(data))


def _cbor(data: Any) -> bytes:
    import cbor  # type: ignore[import-not-found, unused-ignore]

    return bytes(cbor.dumps(data))


def _refuse_pickle(data: Any) -> bytes:
    raise Unsupported(
        'pickled fields are not written by default; give encoder={"pyd": pickle.dumps}, or store '
        "JSON or arrays"
    )


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "pth": torch_dumps,
    **dict.fromkeys(("mp", "msg", "msgpack"), _msgpack),
    "cbor": _cbor,
    **dict.fromkeys(("pyd", "pickle", "pkl"), _refuse_pickle),
}


def _encoded(name: str, value: Any) -> bytes:
    is_bytes = isinstance(value, (bytes, bytearray, memoryview))
    return encoded(name, value, None if is_bytes else _ENCODERS)


def _refuse(**given: Any) -> None:
    if given["compress"]:
        raise Unsupported(
            "compressed shards are not written, because samples are read in place; leave out "
            "compress; to compress a field, end its name with .gz, e.g. json.gz"
        )
    if given["keep_meta"]:
        raise Unsupported(
            "keep_meta is not supported, because readers skip fields that begin with _; write a "
            "field "
            'of another name, e.g. "meta.json"'
        )


def _as_bytes(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sample if all its values are bytes. Raises InvalidArgument otherwise."""
    for name, value in sample.items():
        if not name.startswith("_") and not isinstance(value, (bytes, bytearray, memoryview)):
            raise InvalidArgument(
                f"with encoder=False, fields must be bytes: {name!r} is a "
                f"{type(value).__name__}; encode the value, or leave out encoder"
            )
    return dict(sample)


def _encoder_of(encoder: Any) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    if encoder is False or encoder is None:
        return _as_bytes
    if isinstance(encoder, Mapping):
        return lambda sample: {name: _by_ending(name, sample[name], encoder) for name in sample}
    if encoder is True:
        return lambda sample: sample
    if not callable(encoder):
        raise InvalidArgument(
            f"not valid: encoder={encoder!r}; give True, False, a dict or a function"
        )
    return encoder  # type: ignore[no-any-return]


def _by_ending(name: str, value: Any, encoders: Mapping[str, Callable[[Any], bytes]]) -> Any:
    encode = encoders.get(name.rsplit(".", 1)[-1].lower())
    if name.startswith("_") or encode is None or isinstance(value, bytes):
        return value
    return encode(value)


@suggests
class TarWriter(WithBlock):
    """Writes samples into one shard: a path, or an open file. It appears when it is closed.

    encoder: True (by the fields' names), False (values are bytes), a dict of functions by ending,
        or a function of the sample. user, group, mode, mtime and format are ignored, so equal
        samples make equal bytes.
    """

    def __init__(
        self,
        fileobj: Any,
        user: str = "bigdata",
        group: str = "bigdata",
        mode: int = 0o444,
        compress: Any = None,
        encoder: Any = True,
        keep_meta: bool = False,
        mtime: float | None = None,
        format: Any = None,  # noqa: A002
    ) -> None:
        _refuse(compress=compress, keep_meta=keep_meta)
        if isinstance(fileobj, str) and fileobj.startswith("pipe:"):
            raise Unsupported(
                f"a shard cannot be written to a command: {fileobj!r}; write a file, or give the "
                "open file subprocess.Popen(...).stdin"
            )
        self._encoder = _encoder_of(encoder)
        self._file: Any = None if isinstance(fileobj, (str, os.PathLike)) else fileobj
        self._folder = tempfile.mkdtemp() if self._file is not None else None
        self._path = os.fspath(fileobj) if self._folder is None else f"{self._folder}/shard.tar"
        self._writer: _TarWriter | None = _TarWriter(self._path, replace=True)
        self._is_empty = True

    def write(self, obj: Mapping[str, Any]) -> int:
        """Writes a sample, a dict with a ``__key__``. Returns the total number of bytes of its
        fields. Raises InvalidArgument, BadField."""
        if self._writer is None:
            raise InvalidArgument("the writer is closed; make another writer")
        fields = {
            name: value
            for name, value in self._encoder(obj).items()
            if name == "__key__" or not name.startswith("_")
        }
        fields.update({name: _encoded(name, fields[name]) for name in fields if name != "__key__"})
        self._writer.write(fields)
        self._is_empty = False
        return sum(len(value) for name, value in fields.items() if name != "__key__")

    def close(self) -> None:
        """Finishes the shard."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            if self._is_empty:
                writer._abandon()
                with open(self._path, "wb") as file:
                    file.write(_EMPTY_TAR)
            else:
                writer.close()
            if self._folder is not None:
                with open(self._path, "rb") as file:
                    shutil.copyfileobj(file, self._file)
        finally:
            self._abandon()
            self._file = None  # closes the opener's file before post() is called

    def _abandon(self) -> None:
        if self._writer is not None:
            self._writer._abandon()
            self._writer = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


@suggests
class ShardWriter(WithBlock):
    """Writes samples into shards, one after another: ``ShardWriter("train-%06d.tar")``.

    maxcount, maxsize: largest number of samples, and of bytes, in a shard. start_shard: number of
        the first shard.
    post: called with the path of each finished shard. opener: returns an open file for a path.

    Further options are those of TarWriter. The attributes ``shard``, ``fname``, ``count``, ``size``
    and ``total`` describe the writer's position. shardwise.ShardWriter also makes an index.
    """

    def __init__(
        self,
        pattern: Any,
        maxcount: int = 100_000,
        maxsize: float = 3e9,
        post: Callable[[str], Any] | None = None,
        start_shard: int = 0,
        verbose: int = 0,
        opener: Callable[[str], Any] | None = None,
        **kw: Any,
    ) -> None:
        self.pattern, self.maxcount, self.maxsize = os.fspath(pattern), maxcount, maxsize
        self.post, self.opener, self.verbose, self.kw = post, opener, verbose, kw
        self.shard, self.total, self.count, self.size = start_shard, 0, 0, 0
        self.fname: str | None = None
        self.tarstream: TarWriter | None = None
        self.next_stream()

    def next_stream(self) -> None:
        """Begins the next shard."""
        self.finish()
        self.fname = self.pattern % self.shard
        if self.verbose:
            print("# writing", self.fname, self.count, f"{self.size / 1e9:.1f} GB", self.total)
        self.shard += 1
        target = self.fname if self.opener is None else self.opener(self.fname)
        self.tarstream = TarWriter(target, **self.kw)
        self.count = self.size = 0

    def write(self, obj: Mapping[str, Any]) -> None:
        """Writes a sample, a dict with a ``__key__``."""
        if self.tarstream is None or self.count >= self.maxcount or self.size >= self.maxsize:
            self.next_stream()
        assert self.tarstream is not None
        self.size += self.tarstream.write(obj)
        self.count += 1
        self.total += 1

    def finish(self) -> None:
        """Finishes the shard that is written."""
        stream, self.tarstream = self.tarstream, None
        if stream is None:
            return
        stream.close()
        if self.post is not None:
            self.post(str(self.fname))

    def close(self) -> None:
        """Finishes the last shard."""
        self.finish()

    def _abandon(self) -> None:
        if self.tarstream is not None:
            self.tarstream._abandon()
            self.tarstream = None


__all__ = ["ShardWriter", "TarWriter", "numpy_dumps", "torch_dumps"]
