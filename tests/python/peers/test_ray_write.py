"""shardwise.ray.write() and index(): shards in order, no sample twice, one index from many
parts."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import FileHandler, FileServer, needs, write_shard, write_shards
from peer_runs import NUM_SAMPLES
from ray_runs import SHUFFLED, numbers_of

import shardwise
from shardwise import Sampler, errors

needs("ray.data")

import pyarrow as pa
import ray

import shardwise.ray as sr
from shardwise.ray import writing
from shardwise.ray.indexing import Parts

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytest_plugins = ["ray_runs"]
pytestmark = pytest.mark.usefixtures("cluster")


# Writing.


def test_what_is_written_is_read_again(train: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def double(row: dict[str, Any]) -> dict[str, Any]:
        if row["__index__"] == 700 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return row | {"twice": row["bin"] * 2, "none": None}

    data = sr.read(train, order=SHUFFLED, override_num_blocks=8).map(double)
    report = sr.write(
        data, tmp_path / "new", fields=["twice", "cls", "none"], prefix="half", max_bytes=9000
    )
    assert killed.exists()
    assert report.num_samples == NUM_SAMPLES
    assert [os.path.basename(path) for path in report.paths] == [
        f"half-{number:06}.tar" for number in range(len(report.paths))
    ]
    assert sorted(os.listdir(tmp_path / "new")) == sorted(map(os.path.basename, report.paths))
    sr.index(tmp_path / "new.idx", *report.paths, columns=["cls"], hashes=True, parts=3)
    assert shardwise.verify(tmp_path / "new.idx", full=True) == []
    old, new = shardwise.open(train), shardwise.open(tmp_path / "new.idx")
    order = list(Sampler(old, SHUFFLED))
    assert new.column("cls") == order
    for place in (0, 1, 999, 2000):
        sample = old[order[place]]
        assert (new[place].key, new[place].bytes("twice")) == (sample.key, sample.bytes("bin") * 2)
        assert new[place].keys() == ["twice", "cls"]
    assert numbers_of(sr.read(tmp_path / "new.idx")) == list(range(NUM_SAMPLES))
    assert len(report.paths) > 4


def test_the_index_of_a_write_is_as_it_was_asked_for(
    train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    build = Parts.build

    def watched(self: Parts, sources: list[str], options: dict[str, Any]) -> int:
        seen.append(options)
        return build(self, sources, options)

    monkeypatch.setattr(Parts, "build", watched)
    few = sr.read(train, where="sample < 40", override_num_blocks=1)
    index, options = tmp_path / "new.idx", {"num_cpus": 0.5}
    sr.write(few, tmp_path / "new", index=index, hashes=True, ray_remote_args=options)
    assert seen == [options]
    assert shardwise.verify(index, full=True) == []
    shard = Path(shardwise.open(index).shards[0].path)
    content = bytearray(shard.read_bytes())
    content[512] ^= 1  # a byte of the first field
    shard.write_bytes(content)
    assert len(shardwise.verify(index, full=True)) > 0
    with pytest.raises(errors.InvalidArgument, match="hashes.*index="):
        sr.write(few, tmp_path / "other", hashes=True)
    with pytest.raises(errors.InvalidArgument, match="not valid: hashes='yes'; .*True or False"):
        sr.write(few, tmp_path, index=tmp_path / "b.idx", hashes="yes")  # type: ignore[arg-type]


def test_a_write_goes_to_a_fresh_folder_and_its_index_to_a_free_name(
    train: Path, tmp_path: Path
) -> None:
    few = sr.read(train, where="sample < 30", override_num_blocks=1)
    first = sr.write(few, tmp_path / "new", max_samples=10, fields={"bin": "data"})
    assert len(first.paths) == 3
    with pytest.raises(errors.InvalidArgument, match="shards: .*0.tar"):
        sr.write(few, tmp_path / "new", prefix="other")
    with pytest.raises(errors.InvalidArgument, match="index would replace .*tar'"):
        sr.write(few, tmp_path / "other", index=first.paths[0])
    assert not (tmp_path / "other").exists()
    assert sorted(os.listdir(tmp_path / "new")) == sorted(map(os.path.basename, first.paths))


class Task:
    def __init__(self, number: int) -> None:
        self.task_idx = number


class Result:
    def __init__(self, *write_returns: Any) -> None:
        self.write_returns = write_returns


def block(first: int, count: int = 10) -> Any:
    numbers = list(range(first, first + count))
    return pa.table({"__key__": [f"{i:06}" for i in numbers], "cls": numbers})


def write_here(directory: Path, rows_lost: int = 0) -> None:
    """Does the same as write(), without Ray: two tasks write 20 rows, and one task runs twice."""
    with writing._staging(str(directory)) as staging:
        sink = writing.ShardSink(staging, None, 4, 1 << 20)
        second = sink.write([block(10)], Task(1))
        sink.write([block(0)], Task(0))  # by a worker that died before it returned
        sink.on_write_complete(Result(second, sink.write([block(0)], Task(0))))
        if rows_lost:
            write_shard(Path(second.paths[0]), [("a", {"cls": b"1"})])
        index = str(directory / "a.idx")
        writing._publish(staging, sink.written, "a", index, {"columns": ["cls"]}, {})


def test_a_write_that_fails_at_any_step_leaves_nothing_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_here(self: Parts, sources: list[str], options: dict[str, Any]) -> int:
        numbered = enumerate(self.paths, start=1)
        count = len(self.paths)
        return sum(
            shardwise.index(path, *sources, part=(i, count), columns=["cls"], threads=0).num_samples
            for i, path in numbered
        )

    monkeypatch.setattr(Parts, "build", build_here)
    left = 0

    def stepping(real: Any) -> Any:
        def step(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.ENOSPC, "the disk is full")
            return real(*arguments)

        return step

    for where, name in ((os, "rename"), (Parts, "build"), (Parts, "merge")):
        monkeypatch.setattr(where, name, stepping(getattr(where, name)))
    new = tmp_path / "new"
    for step in range(8):  # 6 renames, building a part, merging
        left = step
        with pytest.raises(OSError, match="the disk is full"):
            write_here(new)
        assert os.listdir(new) == []
    with pytest.raises(errors.Mismatch, match="20 rows .*shards have 17 samples"):
        write_here(new, rows_lost=3)
    assert os.listdir(new) == []
    write_here(new)
    assert sorted(path.name for path in new.glob("*.tar")) == [f"a-{i:06}.tar" for i in range(6)]
    assert shardwise.open(new / "a.idx").column("cls") == list(range(20))
    assert shardwise.verify(new / "a.idx") == []
    assert not (new / writing._STAGING).exists()


def test_two_writes_to_one_folder_at_a_time_are_refused(train: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with writing._staging(str(new)):
        with pytest.raises(errors.InvalidArgument, match="write to '"):
            sr.write(sr.read(train), new)
    assert os.listdir(new) == []


def test_a_task_without_the_folder_of_its_write_says_so(tmp_path: Path) -> None:
    sink = writing.ShardSink(str(tmp_path / "gone"), None, 4, 1 << 20)
    with pytest.raises(errors.NotFound, match="on the node .*all nodes"):
        sink.write([block(0)], Task(0))
    assert os.listdir(tmp_path) == []


KILLED_DRIVER = """
import os, shutil, signal, sys
import ray
address, index, folder, moment = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
import shardwise.ray
from shardwise.ray.indexing import Parts

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

where = {"rename": os, "build": Parts, "merge": Parts, "rmtree": shutil}[moment]
setattr(where, moment, die)
few = shardwise.ray.read(index, where="sample < 30", override_num_blocks=1)
index = {"index": folder + ".idx", "columns": ["cls"], "hashes": True}
shardwise.ray.write(few, folder, max_samples=10, **index)
"""


def test_what_a_killed_driver_leaves_has_an_index_only_if_it_is_whole(
    train: Path, tmp_path: Path
) -> None:
    address = ray.get_runtime_context().gcs_address
    few = sr.read(train, where="sample < 30", override_num_blocks=1)
    shards = {"rename": 0, "build": 3, "merge": 3, "rmtree": 3}
    for moment, num_shards in shards.items():
        new, index = tmp_path / moment, tmp_path / f"{moment}.idx"
        command = [sys.executable, "-c", KILLED_DRIVER, address, str(train), str(new), moment]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert len(list(new.glob("*.tar"))) == num_shards
        assert index.exists() == (moment == "rmtree")
        with pytest.raises(errors.InvalidArgument, match="was killed|already has shards"):
            sr.write(few, new)
    assert shardwise.open(tmp_path / "rmtree.idx").column("cls") == list(range(30))
    assert shardwise.verify(tmp_path / "rmtree.idx", full=True) == []


def test_two_rows_of_one_key_leave_nothing(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 30", override_num_blocks=1)

    def in_two(row: dict[str, Any]) -> list[dict[str, Any]]:
        same = {"__key__": row["__key__"], "cls": None, "bin": None}
        return [same | {"cls": row["cls"]}, same | {"bin": row["bin"]}]

    with pytest.raises(errors.InvalidArgument, match="already in this shard"):
        sr.write(few.flat_map(in_two), tmp_path / "new", index=tmp_path / "new.idx")
    assert os.listdir(tmp_path / "new") == []
    assert not (tmp_path / "new.idx").exists()


def test_an_index_that_cannot_be_made_is_refused_before_anything_is_written(
    train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = sr.read(train, where="sample < 3")
    other = write_shards(tmp_path / "shards", [1])[0]
    with pytest.raises(errors.InvalidArgument, match="index would replace .*tar'"):
        sr.write(few, tmp_path / "new", index=other)
    with pytest.raises(errors.NotFound, match="folder .*gone/a.idx"):
        sr.write(few, tmp_path / "new", index=tmp_path / "gone" / "a.idx")
    assert not (tmp_path / "new").exists()
    (tmp_path / "sealed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: path != str(tmp_path / "sealed"))
    with pytest.raises(errors.InvalidArgument, match="folder .* is read-only"):
        sr.write(few, tmp_path / "new", index=tmp_path / "sealed" / "a.idx")


def test_no_rows_are_no_shards(train: Path, tmp_path: Path) -> None:
    none = sr.read(train, where="sample < 0")
    assert sr.write(none, tmp_path / "new") == ([], 0)
    with pytest.raises(errors.InvalidArgument, match="no rows"):
        sr.write(none, tmp_path / "new", index=tmp_path / "new.idx")
    assert os.listdir(tmp_path / "new") == []


def test_a_write_that_fails_leaves_nothing(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 30")
    with pytest.raises(errors.InvalidArgument, match='rows have no column "__key__"'):
        sr.write(few.drop_columns(["__key__"]), tmp_path / "new")
    with pytest.raises(errors.NotFound, match="rows have no column 'jpg'; .*bin, cls"):
        sr.write(few, tmp_path / "new", fields=["jpg"])
    with pytest.raises(errors.BadField, match="'bin' cannot be stored"):
        sr.write(few.map(lambda row: row | {"bin": {"a": 1}}), tmp_path / "new")
    assert os.listdir(tmp_path / "new") == []
    with pytest.raises(errors.InvalidArgument, match="not valid: prefix='a/b'"):
        sr.write(few, tmp_path / "new", prefix="a/b")
    with pytest.raises(errors.InvalidArgument, match="not valid: max_bytes=0"):
        sr.write(few, tmp_path / "new", max_bytes=0)


def test_no_field_is_lost_and_no_name_is_misread(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 3", override_num_blocks=1)

    def refused(text: str, **options: Any) -> None:
        with pytest.raises(errors.InvalidArgument, match=text):
            sr.write(few, options.pop("directory", tmp_path / "new"), **options)
        assert not (tmp_path / "new").exists()

    refused("field 'a': 'bin' and 'cls'; ", fields={"bin": "a", "cls": "a"})
    refused('not valid: fields=.*"__"', fields={"bin": "data", "cls": "__cls"})
    refused("columns .*'cls'", fields="cls")
    refused(r"not valid: fields=\[\]; .*column", fields=[])
    refused(r"not valid: fields=\[1\]; give names", fields=[1])
    refused("not valid: prefix=7", prefix=7)
    refused("NUL", prefix="a\0")
    refused("not valid: prefix='{x}'; .*braces", prefix="{x}")
    refused("not valid: directory='.*; .*braces", directory=tmp_path / "a{1..3}")
    refused("cls; give index=", columns=["cls"])
    refused("index would replace", index=tmp_path)
    refused("not valid: directory='s3://", directory="s3://bucket/new")
    refused("not valid: index='s3://", index="s3://bucket/new.idx")
    with pytest.raises(errors.InvalidArgument, match="not valid: output='s3://"):
        sr.index("s3://bucket/new.idx", train)
    with pytest.raises(errors.InvalidArgument, match="not valid: data=.*give a ray.data.Dataset"):
        sr.write([], tmp_path / "new")  # type: ignore[arg-type]


def test_a_key_is_a_text(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 3", override_num_blocks=1)
    for key in (None, 7, b"a"):
        with pytest.raises(errors.InvalidArgument, match=f"a str, not {key}"):
            sr.write(few.map(lambda row, key=key: row | {"__key__": key}), tmp_path / "new")
    assert os.listdir(tmp_path / "new") == []


def test_marks_of_patterns_in_names_are_themselves(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 3", override_num_blocks=1)
    new = tmp_path / "a[1]*%06d"
    report = sr.write(
        few, new, prefix="@x?%d", fields=["cls"], index=new / "a.idx", columns=["cls"]
    )
    assert report.paths == [str(new / "@x?%d-000000.tar")]
    assert sorted(path.name for path in new.glob("*.tar")) == ["@x?%d-000000.tar"]
    assert shardwise.open(new / "a.idx").column("cls") == [0, 1, 2]


def test_nulls_of_pandas_are_nulls(tmp_path: Path) -> None:
    pandas = needs("pandas")
    columns = {"cls": [0, 1, 2, 3], "txt": ["a", None, "c", None], "count": [1, 2, None, None]}
    frame = pandas.DataFrame({"__key__": list("abcd")} | columns)
    sr.write(ray.data.from_pandas(frame), tmp_path / "new", index=tmp_path / "new.idx")
    assert [sample.copy() for sample in shardwise.open(tmp_path / "new.idx")] == [
        {"cls": b"0", "txt": b"a", "count": b"1"},
        {"cls": b"1", "count": b"2"},
        {"cls": b"2", "txt": b"c"},
        {"cls": b"3"},
    ]


# Indexing.


def test_parts_make_the_index_of_a_single_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(tmp_path / "shards", [40, 13, 30, 20, 7])
    monkeypatch.chdir(tmp_path)
    alone = shardwise.index("alone.idx", "shards", columns=["cls"], threads=0)
    made = sr.index("made.idx", "shards", columns=["cls"], parts=3)
    assert made.fingerprint == alone.fingerprint
    tables = [list(tmp_path.glob(f"{name}.idx.*.table"))[0] for name in ("alone", "made")]
    assert tables[0].read_bytes() == tables[1].read_bytes()
    assert not list(tmp_path.glob("*.part-*"))
    assert shardwise.open("made.idx").where("cls = 50")[0].key == "000050"
    with pytest.raises(errors.NotFound, match="on the node .*gone"):
        sr.index("made.idx", "gone", parts=2)
    with pytest.raises(errors.InvalidArgument, match="not valid: parts=0"):
        sr.index("made.idx", "shards", parts=0)


class KillingHandler(FileHandler):
    """A server that answers the first request by killing the indexing task."""

    killed: list[int] = []

    def do_GET(self) -> None:
        for process in Path("/proc").iterdir():
            if self.killed or not process.name.isdigit():
                continue
            try:
                title = (process / "cmdline").read_bytes()
            except OSError:  # the task has just ended
                continue
            if title.startswith(b"ray::_build_part"):
                self.killed.append(int(process.name))
                os.kill(int(process.name), signal.SIGKILL)
        super().do_GET()


def test_a_part_whose_task_died_is_built_again(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards", [40, 13, 30, 20])
    with FileServer(tmp_path / "shards", KillingHandler) as server:
        urls = server.url + "/train-{000000..000003}.tar"
        made = sr.index(tmp_path / "made.idx", urls, columns=["cls"], parts=1)
    assert len(KillingHandler.killed) == 1
    assert made.num_samples == 103
