"""Changes after shardwise.ray.read() has made its tasks: the tasks deliver the planned rows, or an
error that names the change."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FileServer, needs, part_of, write_shard
from ray_runs import SHUFFLED

import shardwise
from shardwise import errors

needs("ray.data")

import ray

import shardwise.ray as sr

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytest_plugins = ["ray_runs"]
pytestmark = pytest.mark.usefixtures("cluster")

LENGTHS = [30, 20, 10]
COLUMNS = ["bin", "a", "__key__", "__index__"]
INDEXED = {"columns": ["a=json:$.a"], "threads": 0}
NAMED = f"on the node {re.escape(socket.gethostname())}: "
TIME = 1_700_000_000


def make_shard(path: Path, version: int, length: int | None = None) -> None:
    """Writes a shard. Each version has the same size and headers, but another modification time."""
    shard = int(path.name[:6])
    samples = []
    for i in range(LENGTHS[shard] if length is None else length):
        values = json.dumps({"a": 100 + i, "b": 200 + i}).encode()
        content = b"%d-%d-%02d" % (version, shard, i)
        samples.append((f"{shard}-{i:02}", {"bin": content, "json": values}))
    write_shard(path, samples)
    os.utime(path, (TIME + version, TIME + version))


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """An index that a test may damage, and its rows."""
    (tmp_path / "shards").mkdir()
    for shard in range(len(LENGTHS)):
        make_shard(tmp_path / f"shards/{shard:06}.tar", 0)
    shardwise.index(tmp_path / "a.idx", tmp_path / "shards", **INDEXED)
    yield tmp_path / "a.idx", sr.read(tmp_path / "a.idx", columns=COLUMNS).take_all()


def in_other_processes(folder: Path) -> dict[str, Any]:
    """Returns options of tasks for which Ray starts new workers, which have no shard open."""
    return {"runtime_env": {"env_vars": {"SHARDWISE_TEST": str(folder)}}}


def replaced(shard: Path) -> None:
    """Replaces the shard like an upload: by another file of the same name."""
    make_shard(shard.with_name("000001.new"), 1)
    os.rename(shard.with_name("000001.new"), shard)


def replaced_by_a_copy(shard: Path) -> None:
    """Replaces the shard by a copy with the same bytes and another modification time."""
    shutil.copy(shard, shard.with_name("new"))
    os.rename(shard.with_name("new"), shard)


def edited(shard: Path) -> None:
    """Overwrites a byte of a sample. Size and headers stay the same."""
    with open(shard, "r+b") as file:
        file.seek(512)
        file.write(b"X")


def cut(shard: Path) -> None:
    os.truncate(shard, shard.stat().st_size // 2)


def longer(shard: Path) -> None:
    make_shard(shard, 1, LENGTHS[1] + 10)


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (replaced, r"the shard changed .*: .*000001.tar' \(modified .*run shardw"),
    (replaced_by_a_copy, r"the shard changed .*: .*000001.tar' \(modified .*run"),
    (edited, r"the shard changed .*: .*000001.tar' \(modified .*run shardwise"),
    (cut, r"the shard changed .*: .*000001.tar' \([\d,]+ bytes now, .*run shardw"),
    (longer, r"the shard changed .*: .*000001.tar' \([\d,]+ bytes now, .*run sha"),
]


@pytest.mark.parametrize(("change", "text"), part_of(CHANGES, 2))
def test_a_shard_that_changed_after_the_plan_is_named_by_every_task(
    planned: tuple[Path, list[dict[str, Any]]], change: Callable[[Path], None], text: str
) -> None:
    index, rows = planned
    options: Any = {
        "columns": COLUMNS,
        "order": SHUFFLED,
        "ray_remote_args": in_other_processes(index.parent),
    }
    whole = sr.read(index, override_num_blocks=1, **options)
    parts = sr.read(index, override_num_blocks=6, **options)
    others = sr.read(index, where="shard != 1", **options)
    change(index.parent / "shards/000001.tar")
    for data in (whole, parts):
        with pytest.raises(errors.StaleIndex, match=NAMED + text):
            data.take_all()
    # Rows from other shards are unchanged.
    there = {row["__key__"]: row["bin"] for row in others.take_all()}
    assert there == {row["__key__"]: row["bin"] for row in rows if row["__key__"][0] != "1"}


@pytest.mark.parametrize(("change", "text"), part_of(CHANGES, 2))
def test_a_task_of_a_worker_that_has_the_shard_open_gives_what_was_planned_or_names_it(
    planned: tuple[Path, list[dict[str, Any]]], change: Callable[[Path], None], text: str
) -> None:
    index, rows = planned
    data = sr.read(index, columns=COLUMNS, override_num_blocks=3)
    assert data.take_all() == rows  # the workers have read everything
    change(index.parent / "shards/000001.tar")
    given: Any = None
    try:
        given = data.take_all()
    except errors.StaleIndex as error:
        assert re.search(NAMED + "the shard('s file)? .*000001.tar'.*; ", str(error))
    if change in (edited, cut, longer):  # these changed the open file itself
        assert given is None
    assert given in (None, rows)


def test_a_shard_that_changed_behind_a_server_is_named_and_what_a_cache_has_is_as_planned(
    planned: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    index, rows = planned[0].with_name("remote.idx"), planned[1]
    shard = tmp_path / "shards/000001.tar"
    with FileServer(tmp_path / "shards") as server:
        full, empty = tmp_path / "full", tmp_path / "empty"
        shardwise.index(index, server.url + "/{000000..000002}.tar", **INDEXED)
        options: Any = {"columns": COLUMNS, "ray_remote_args": in_other_processes(tmp_path)}
        kept = sr.read(index, cache=full, **options)
        assert kept.take_all() == rows
        fetched = sr.read(index, cache=empty, override_num_blocks=4, **options)
        replaced(shard)
        with pytest.raises(errors.StaleIndex, match=NAMED + ".*/000001.tar.*run shardwise.update"):
            fetched.take_all()
        assert kept.take_all() == rows
        # Also test it in a worker that has no shard open.
        options["ray_remote_args"] = in_other_processes(tmp_path / "others")
        assert sr.read(index, cache=full, **options).take_all() == rows


def test_an_index_that_was_built_again_of_other_samples_is_named(
    planned: tuple[Path, list[dict[str, Any]]],
) -> None:
    index, rows = planned
    others = in_other_processes(index.parent)
    data = sr.read(index, columns=COLUMNS, ray_remote_args=others, override_num_blocks=5)
    longer(index.parent / "shards/000001.tar")
    shardwise.index(index, index.parent / "shards", **INDEXED)
    text = ".*pickled.*a.idx.*fingerprint"
    with pytest.raises(errors.Mismatch, match=NAMED + text):
        data.take_all()
    again = sr.read(index, columns=COLUMNS, ray_remote_args=others).take_all()
    assert len(again) == len(rows) + 10


AGAIN = r".*since .*read\(\) was called: .*a.idx'.*read\(\) ag"


@pytest.mark.parametrize("is_edited", [True, False])
def test_an_index_that_was_built_again_and_has_the_same_fingerprint_is_named(
    planned: tuple[Path, list[dict[str, Any]]], is_edited: bool
) -> None:
    """The new index is of a shard with the same headers, or has a column with another meaning."""
    index, rows = planned
    before = shardwise.open(index)
    others = in_other_processes(index.parent)
    data = sr.read(index, columns=COLUMNS, ray_remote_args=others, override_num_blocks=5)
    if is_edited:
        edited(index.parent / "shards/000001.tar")
        shardwise.index(index, index.parent / "shards", **INDEXED)
    else:
        shardwise.index(index, index.parent / "shards", columns=["a=json:$.b"], threads=0)
    assert shardwise.open(index).fingerprint == before.fingerprint
    assert shardwise.open(index).version != before.version
    with pytest.raises(errors.Mismatch, match=NAMED + AGAIN):
        data.take_all()
    again = sr.read(index, columns=COLUMNS, ray_remote_args=others).take_all()
    assert again != rows
    assert [row["__key__"] for row in again] == [row["__key__"] for row in rows]


def test_workers_that_have_the_index_of_before_open_the_new_one(
    planned: tuple[Path, list[dict[str, Any]]],
) -> None:
    index, rows = planned
    assert sr.read(index, columns=COLUMNS, override_num_blocks=3).take_all() == rows
    edited(index.parent / "shards/000001.tar")
    shardwise.index(index, index.parent / "shards", **INDEXED)
    again = sr.read(index, columns=COLUMNS, override_num_blocks=3).take_all()
    assert [row["bin"] for row in again if row["__key__"] == "1-00"] == [b"X-1-00"]
    assert [row for row in again if row["__key__"] != "1-00"] == [
        row for row in rows if row["__key__"] != "1-00"
    ]


def test_an_index_that_was_touched_only_or_moved_to_other_times_is_taken_with_accept_times(
    planned: tuple[Path, list[dict[str, Any]]],
) -> None:
    index, rows = planned
    options: Any = {"columns": COLUMNS, "ray_remote_args": in_other_processes(index.parent)}
    data = sr.read(index, accept_times=True, **options)
    shutil.copytree(index.parent / "shards", index.parent / "copies")  # with new modification times
    shutil.rmtree(index.parent / "shards")
    os.rename(index.parent / "copies", index.parent / "shards")
    assert data.take_all() == rows
    shardwise.index(index, index.parent / "shards", accept_times=True, **INDEXED)
    assert data.take_all() == rows
