"""Single tars: their members by number and name, and their samples, without an index file."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import re
import warnings
from collections.abc import Callable, Iterator, KeysView, Sequence
from typing import Any, BinaryIO

from ..arguments import path_of
from ..building import index
from ..errors import InvalidArgument, Mismatch, Unsupported
from .sample import Sample

_NAME = re.compile(r"((?:.*/)?[^/.]*)(\.[^/]*)", re.DOTALL)


def splitname(fname: str) -> tuple[str, str]:
    """The key in a member's name, and the field with its dot: ``a/b.seg.png`` is a/b, .seg.png."""
    match = _NAME.fullmatch(fname)
    if match is None:
        raise InvalidArgument(f"the name {fname!r} has no extension")
    return match[1], match[2]


def group_by_key(names: Sequence[str]) -> list[list[int]]:
    """The places of names that follow each other and have one key, a list for each sample.

    Names without an extension, and those of hidden files, are left out, with a warning.
    """
    groups: list[list[int]] = []
    last: str | None = None
    for place, name in enumerate(names):
        match = _NAME.fullmatch(name)
        if match is None or match[1].endswith("/") or not match[1]:
            what = "has no extension" if match is None else "is a hidden file"
            warnings.warn(f"{name!r} {what}, and is left out", stacklevel=2)
            continue
        key = match[1]
        if key != last:
            groups.append([])
            last = key
        groups[-1].append(place)
    return groups


def compute_file_md5sum(fname: str | BinaryIO, chunksize: int = 1 << 20) -> str:
    """The MD5 of a file, or of all of an open stream, in hexadecimal digits."""
    if isinstance(fname, (str, os.PathLike)):
        with open(fname, "rb") as file:
            return compute_file_md5sum(file, chunksize)
    md5 = hashlib.md5(usedforsecurity=False)
    fname.seek(0)
    while chunk := fname.read(chunksize):
        md5.update(chunk)
    return md5.hexdigest()


def compute_num_samples(fname: str | os.PathLike[str]) -> int:
    """The samples in a shard, as an index counts them.

    Costs a pass over the headers. Raises NotFound, CorruptShard with the place of what is wrong.
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return index(os.path.join(folder, "one.idx"), fname, threads=0).num_samples


class MMIndexedTar:
    """The plain files in a tar, mapped: by their number, and by their name.

    fname: a path, or an open file. Of several members with one name, the last one is found by it.
    Raises Unsupported for a sparse member.
    """

    def __init__(
        self,
        fname: str | os.PathLike[str] | BinaryIO,
        index_file: object = None,
        verbose: bool = True,
        cleanup_callback: Callable[[str | None, int, str], object] | None = None,
    ) -> None:
        import tarfile

        self.verbose = verbose
        self.cleanup_callback = cleanup_callback
        if isinstance(fname, (str, os.PathLike)):
            self.fname: str | None = path_of(fname)
            self.stream: BinaryIO = open(self.fname, "rb")
        else:
            self.fname, self.stream = None, fname
        self.mmapped_file = mmap.mmap(self.stream.fileno(), 0, access=mmap.ACCESS_READ)
        if cleanup_callback is not None:
            cleanup_callback(self.fname, self.stream.fileno(), "start")
        self.by_index: list[tuple[str, int, int]] = []
        """Of each member its name, and where its bytes begin and how many they are."""
        self.stream.seek(0)
        with tarfile.open(fileobj=self.stream, mode="r:") as tar:
            for member in tar:
                if member.issparse():
                    raise Unsupported(
                        f"the member is sparse: its bytes do not lie in the shard as they are: "
                        f"{self.fname or fname!r}, member {member.name!r}; repack the shard with "
                        "plain files only"
                    )
                if member.isreg():
                    self.by_index.append((member.name, member.offset_data, member.size))
        self.by_name = {name: place for place, (name, _, _) in enumerate(self.by_index)}

    def close(self, dispose: bool = False) -> None:
        """Closes the file."""
        if self.stream.closed:
            return
        if self.cleanup_callback is not None:
            self.cleanup_callback(self.fname, self.stream.fileno(), "end")
        self.mmapped_file.close()
        self.stream.close()

    def names(self) -> KeysView[str]:
        """The members' names, each once."""
        return self.by_name.keys()

    def get_at_index(self, index: int) -> tuple[str, bytes]:
        """The name of a member by its number, and a copy of its bytes."""
        name, begin, size = self.by_index[index]
        return name, self.mmapped_file[begin : begin + size]

    def get_by_name(self, name: str) -> tuple[str, bytes]:
        """The same by its name. Raises KeyError."""
        return self.get_at_index(self.by_name[name])

    def get_file(self, i: int) -> tuple[str, io.BytesIO]:
        """The name of a member by its number, and a stream of its bytes."""
        name, data = self.get_at_index(i)
        return name, io.BytesIO(data)

    def __getitem__(self, key: int | str) -> tuple[str, bytes]:
        return self.get_at_index(key) if isinstance(key, int) else self.get_by_name(key)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return (self.get_at_index(i) for i in range(len(self.by_index)))

    def __len__(self) -> int:
        return len(self.by_index)


class IndexedTarSamples:
    """The samples in one tar, by number: dicts of BytesIO, with ``__key__``.

    path or stream: the tar. md5sum, expected_size: what it has to be; Mismatch is raised if it is
    not. Reads all headers when it is made; a ShardListDataset does not.
    """

    def __init__(
        self,
        *,
        path: str | os.PathLike[str] | None = None,
        stream: BinaryIO | None = None,
        md5sum: str | None = None,
        expected_size: int | None = None,
        use_mmap: bool = True,
        index_file: object = None,
    ) -> None:
        if path is None and stream is None:
            raise InvalidArgument("IndexedTarSamples needs a path or a stream")
        self.path = path
        self.stream: BinaryIO = stream if stream is not None else open(path_of(path or ""), "rb")
        if md5sum is not None:
            found = compute_file_md5sum(self.stream)
            if found != md5sum:
                raise Mismatch(f"{self} has the MD5 {found}, and not {md5sum}")
        self.reader = MMIndexedTar(self.stream)
        self.samples = group_by_key([name for name, _, _ in self.reader.by_index])
        if expected_size is not None and len(self) != expected_size:
            raise Mismatch(f"{self} has {len(self)} samples, and not {expected_size}")

    def close(self) -> None:
        """Closes the tar."""
        self.reader.close()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        sample = Sample()
        key = ""
        for place in self.samples[idx]:
            name, stream = self.reader.get_file(place)
            key, field = splitname(name)
            sample[field] = stream
        sample["__key__"] = key
        return sample

    def __repr__(self) -> str:
        return f"<IndexedTarSamples {self.path or getattr(self.stream, 'name', self.stream)}>"


def keep_while_reading(
    fname: str | os.PathLike[str] | None, fd: int, phase: str, delay: float = 0.0
) -> None:
    """A cleanup_callback for MMIndexedTar: removes the file when its last reader is done with it.

    phase: "start" or "end" of reading.
    """
    import fcntl

    if delay != 0.0:
        raise InvalidArgument(f"delay {delay}: a file can only be removed at once")
    if phase not in ("start", "end"):
        raise InvalidArgument(f"phase {phase!r}: it is 'start' or 'end'")
    if fd < 0 or fname is None:
        return
    if phase == "start":
        fcntl.flock(fd, fcntl.LOCK_SH)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # others read it
    try:
        os.unlink(fname)
    except FileNotFoundError:
        pass


__all__ = [
    "IndexedTarSamples",
    "MMIndexedTar",
    "compute_file_md5sum",
    "compute_num_samples",
    "group_by_key",
    "keep_while_reading",
    "splitname",
]
