"""Shards that are written aside, and get their names when all of them are whole.

A write of shards PREFIX-000000.tar ... has a folder beside them:

    .PREFIX.writing/lock           locked while the process that writes lives
    .PREFIX.writing/RANDOM/        what its tasks write, and the parts of the index
    .PREFIX.writing/decided.json   what RANDOM/ becomes; from then on the write is decided

The order is:

1. Tasks write shards into RANDOM/. Of tasks that died, or were done twice, some lie there for
   nothing.
2. The shards of the tasks that count get their names, in RANDOM/, but for a suffix.
3. Tasks index them there, and the samples are counted.
4. decided.json appears.
5. The shards move out of RANDOM/, each in the place of one of its name, if they replace shards.
6. Shards that are replaced, and have no successor of their name, are removed.
7. The parts of the index learn where the shards are, and are merged into the index.
8. decided.json goes, and then all of the folder.

A write that ends before 4, by an error or a kill, has changed nothing that was there; what it left
in the folder is removed by the next. One that ends after 4 lacks names or the index, but no byte:
each step from 5 on can be done again, and the next write begins with them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..errors import Error, InvalidArgument, Io, Mismatch, NoSpace, NotFound
from .indexing import Parts


SUFFIX = ".new"
"""Of what is not yet a shard."""


class WriteReport(NamedTuple):
    """What writing a dataset made."""

    paths: list[str]
    """Of the shards, in order."""
    num_samples: int


class _Decided(NamedTuple):
    """What decided.json says."""

    folder: str
    """RANDOM."""
    shards: list[str]
    """Names, in order."""
    num_samples: int
    replaced: list[str]
    """Names of the shards that were there."""
    index_path: str | None
    columns: list[str]
    num_parts: int
    hashes: bool = False


class Aside:
    """The folder of one write, as a context: entered before its tasks begin.

    prefix, replace: as of write(). Raises InvalidArgument if another write is at work; if there are
    shards, and they are not to be replaced; and if an earlier write was decided, which it finishes
    then, unless its shards are to be replaced.
    """

    def __init__(self, directory: str, prefix: str, replace: bool) -> None:
        self._directory = directory
        self._prefix = prefix
        self._replace = replace
        self._root = os.path.join(directory, f".{prefix}.writing")
        self._name = os.urandom(6).hex()
        self._lock = -1

    @property
    def folder(self) -> str:
        """Where tasks write."""
        return os.path.join(self._root, self._name)

    def __enter__(self) -> Self:
        self._lock = _locked(self._root)
        try:
            decided = self._decided()
            if decided is not None and not self._replace:
                self._finish(decided)
                index = decided.index_path
                made = "" if index is None else f", and the index {index!r}"
                raise InvalidArgument(
                    f"an earlier write to {self._directory!r} had all its rows, and ended before "
                    f"its shards had their names; it is complete now: {len(decided.shards)} shards "
                    f"of {decided.num_samples} samples{made}; use these, or give replace=True, "
                    "which writes anew"
                )
            self._sweep()
            self._require_room()
            os.mkdir(self.folder)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def put(
        self,
        paths: list[str],
        num_samples: int,
        index: str | None,
        columns: list[str],
        hashes: bool,
        options: dict[str, Any],
    ) -> WriteReport:
        """Steps 2 to 8, for the shards that count, in order; `options` are of the tasks that index.
        Raises what indexing raises, Mismatch if the shards have another number of samples, and of a
        failure after 4 what has to be done.
        """
        names = [f"{self._prefix}-{number:06}.tar" for number in range(len(paths))]
        named = [self._waiting(self._name, name) for name in names]
        for path, new in zip(paths, named, strict=True):
            os.rename(path, new)
        num_parts = 0
        if index is not None:
            if not paths:
                raise InvalidArgument(
                    f"there are no rows, and so no shards for the index {index!r}; leave out "
                    "index, or write a dataset that has rows"
                )
            content = {"columns": columns, "hashes": hashes}
            parts = Parts(self._parts_path(self._name), None, content)
            _require_samples(num_samples, parts.build(named, options), self._directory)
            num_parts = len(parts.paths)
        self._require_room()  # since the beginning
        replaced = [os.path.basename(path) for path in self._shards()]
        decided = _Decided(
            self._name, names, num_samples, replaced, index, columns, num_parts, hashes
        )
        self._decide(decided)
        return self._finish(decided)

    # What is there.

    def _shards(self) -> list[str]:
        """Shards of this prefix; those of "a-b" are not of "a"."""
        wanted = re.compile(re.escape(self._prefix) + r"-[0-9]{6,}\.tar", re.DOTALL)
        names = sorted(name for name in os.listdir(self._directory) if wanted.fullmatch(name))
        return [os.path.join(self._directory, name) for name in names]

    def _require_room(self) -> None:
        shards = [] if self._replace else self._shards()
        if shards:
            raise InvalidArgument(
                f"there is a shard already: {shards[0]!r}; write elsewhere, or give replace=True"
            )

    # What was decided.

    @property
    def _decided_path(self) -> str:
        return os.path.join(self._root, "decided.json")

    def _waiting(self, folder: str, name: str) -> str:
        """Where a shard waits for its name: whoever looks for .tar below the directory skips it."""
        return os.path.join(self._root, folder, name + SUFFIX)

    def _parts_path(self, name: str) -> str:
        return os.path.join(self._root, name, "index")

    def _decided(self) -> _Decided | None:
        try:
            with open(self._decided_path, encoding="utf-8") as file:
                return _Decided(**json.load(file))
        except FileNotFoundError:
            return None

    def _decide(self, decided: _Decided) -> None:
        with open(self._decided_path + ".new", "w", encoding="utf-8") as file:
            json.dump(decided._asdict(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._decided_path + ".new", self._decided_path)

    def _finish(self, decided: _Decided) -> WriteReport:
        """Steps 5 to 8, from where they were."""
        paths = [os.path.join(self._directory, name) for name in decided.shards]
        try:
            for name in decided.shards:
                self._give(name, decided)
            for name in sorted(set(decided.replaced) - set(decided.shards)):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._directory, name))
            if decided.index_path is not None:
                content = {"columns": decided.columns, "hashes": decided.hashes}
                parts = Parts(self._parts_path(decided.folder), decided.num_parts, content)
                _require_samples(decided.num_samples, parts.move(paths), self._directory)
                parts.merge(decided.index_path)
            os.unlink(self._decided_path)
        except (Error, OSError) as error:
            raise self._unfinished(decided, error) from error
        return WriteReport(paths, decided.num_samples)

    def _give(self, name: str, decided: _Decided) -> None:
        """A shard its name, if it does not have it yet."""
        path = self._waiting(decided.folder, name)
        new = os.path.join(self._directory, name)
        if not os.path.exists(path):
            if not os.path.exists(new):
                raise NotFound(f"a shard that was written is gone: {new!r}")
            return
        if name not in decided.replaced and os.path.exists(new):
            raise InvalidArgument(f"there is a shard already: {new!r}")
        os.rename(path, new)

    def _unfinished(self, decided: _Decided, error: Error | OSError) -> Error:
        kind: type[Error] = Io
        if isinstance(error, Error):
            kind = type(error)
        elif error.errno == errno.ENOSPC:
            kind = NoSpace
        left = [self._waiting(decided.folder, name) for name in decided.shards]
        waiting = sum(map(os.path.exists, left))
        if waiting:
            what = f"{waiting} of {len(decided.shards)} shards have no name yet"
        elif decided.index_path is not None:
            what = (
                f"the shards have their names, but the index {decided.index_path!r} is not made, "
                "which `shardwise index` can do, too"
            )
        else:
            what = "the shards have their names, but not all is tidied up"
        return kind(
            f"{error}: all rows are written to {self._directory!r}; {what}; mend that and write "
            "there again, which first finishes this, or give replace=True, which writes anew"
        )

    # Its end.

    def _sweep(self) -> None:
        """Removes what no decided write needs."""
        decided = self._decided()
        kept = {"lock"} if decided is None else {"lock", "decided.json", decided.folder}
        for name in set(os.listdir(self._root)) - kept:
            path = os.path.join(self._root, name)
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)  # a task may be writing there yet
            else:
                os.unlink(path)

    def _leave(self) -> None:
        """Removes the folder, unless a decided write needs it, and unlocks it."""
        try:
            self._sweep()
            if self._decided() is None:
                os.unlink(os.path.join(self._root, "lock"))
                with suppress(OSError):  # somebody writes into it already
                    os.rmdir(self._root)
        finally:
            os.close(self._lock)


def _require_samples(written: int, indexed: int, directory: str) -> None:
    if indexed != written:
        raise Mismatch(
            f"{written} rows were written to {directory!r}, and their shards have {indexed} "
            "samples: a shard was changed before it had its name, or a part of it was lost; write "
            "again, to a file system that keeps what all nodes write"
        )


def _locked(root: str) -> int:
    """Makes the folder, and locks it; what holds the lock. Raises InvalidArgument if it is locked.

    Where a file system has no locks, the lock is whoever made its file, living or not.
    """
    path = os.path.join(root, "lock")
    while True:
        os.makedirs(root, exist_ok=True)
        is_new = not os.path.exists(path)
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_EXCL if is_new else 0), 0o666)
        except (FileExistsError, FileNotFoundError):  # somebody came, or went, meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise InvalidArgument(
                f"another write is at work there: {root!r} is locked; wait for its end, or choose "
                "another prefix"
            ) from None
        except OSError as error:
            if is_new:
                return lock
            os.close(lock)
            raise InvalidArgument(
                f"another write is at work there, or its process died, and the file system has no "
                f"locks to tell: {root!r} ({error.strerror}); if none is at work, remove {path!r}, "
                "and write again"
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        os.close(lock)  # of one that went when this one had opened it
