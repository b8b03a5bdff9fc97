"""Streams of large fields: like io.BytesIO, but they copy the bytes later."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import shardwise
from shardwise.wids import ShardListDataset
from shardwise.wids.streams import FieldStream
from wids_support import own_folders, write_tar  # noqa: F401

LARGE = b"".join(b"line %d\n" % i for i in range(4000))


@pytest.fixture
def dataset(tmp_path: Path) -> ShardListDataset[dict[str, Any]]:
    path = write_tar(tmp_path / "a.tar", [("a.txt", LARGE), ("a.small", b"s" * 16383)])
    return ShardListDataset([{"url": str(path), "nsamples": 1}], transformations=[])


@pytest.fixture
def stream(dataset: Any) -> Any:
    made = dataset[0][".txt"]
    assert type(made) is FieldStream and isinstance(made, io.BytesIO)
    return made


def test_small_fields_are_plain_streams(dataset: Any) -> None:
    assert type(dataset[0][".small"]) is io.BytesIO


CALLS: list[Callable[[Any], Any]] = [
    lambda s: s.read(),
    lambda s: s.read(5) + s.read1(5),
    lambda s: (s.readline(), s.tell()),
    lambda s: s.readlines()[-1],
    lambda s: (s.readinto(bytearray(9)), s.read(3)),
    lambda s: (s.readinto1(memoryview(bytearray(9))), s.tell()),
    lambda s: (s.seek(0, 2), s.tell()),
    lambda s: (s.seek(7), s.read(4)),
    lambda s: s.getvalue(),
    lambda s: bytes(s.getbuffer()),
    lambda s: list(s)[3],
    lambda s: next(s),
    lambda s: (s.truncate(10), s.getvalue()),
    lambda s: (s.write(b"xx"), s.getvalue()),
    lambda s: (s.writelines([b"x", b"y"]), s.read(4)),
    lambda s: (s.tell(), s.readable(), s.writable(), s.seekable(), s.closed),
    lambda s: [s.read(3) for s in [copy.copy(s)]],
    lambda s: pickle.loads(pickle.dumps(s)).getvalue(),
    lambda s: io.TextIOWrapper(s).readline(),
    lambda s: io.BufferedReader(s).peek(4)[:4],
]


@pytest.mark.parametrize("call", CALLS)
def test_each_method_gives_what_a_plain_stream_gives(
    stream: Any, call: Callable[[Any], Any]
) -> None:
    plain = io.BytesIO(LARGE)
    assert call(stream) == call(plain)
    if not stream.closed:
        assert (stream.tell(), stream.getvalue()) == (plain.tell(), plain.getvalue())


def test_no_method_of_a_plain_stream_is_forgotten() -> None:
    free_of_bytes = {
        "close",
        "closed",
        "detach",
        "fileno",
        "flush",
        "isatty",
        "readable",
        "seekable",
        "tell",
        "writable",
    }
    public = {name for name in dir(io.BytesIO) if not name.startswith("_")}
    assert public - free_of_bytes == {
        name for name in vars(FieldStream) if not name.startswith("_")
    }


def test_a_method_that_was_looked_up_before_goes_on(stream: Any) -> None:
    read = stream.read
    assert read(4) + read(4) + read() == LARGE


def test_a_closed_stream_stays_closed(stream: Any) -> None:
    with stream:
        pass
    assert stream.closed
    with pytest.raises(ValueError, match="closed"):
        stream.read()
    with pytest.raises(ValueError, match="closed"):
        stream.getvalue()


def test_a_pickled_stream_is_a_plain_one_where_it_stood(stream: Any) -> None:
    assert type(pickle.loads(pickle.dumps(stream))) is io.BytesIO
    stream.seek(5)
    again = pickle.loads(pickle.dumps(stream))
    assert type(again) is io.BytesIO and (again.tell(), again.getvalue()) == (5, LARGE)


def test_a_stream_outlives_its_dataset_and_its_file(dataset: Any, tmp_path: Path) -> None:
    stream = dataset[0][".txt"]
    dataset.close()
    del dataset
    gc.collect()
    os.unlink(tmp_path / "a.tar")
    assert stream.read() == LARGE


def test_a_shard_that_was_changed_in_place_is_an_error_when_it_is_read(
    dataset: Any, tmp_path: Path
) -> None:
    stream = dataset[0][".txt"]
    os.truncate(tmp_path / "a.tar", 1024)
    with pytest.raises((shardwise.errors.StaleIndex, OSError)):
        stream.read()
