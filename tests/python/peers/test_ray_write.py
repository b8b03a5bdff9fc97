"""shardwise.ray.write() and index(): shards in order, nothing twice, one index of many parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import write_shard, write_shards
from peer_runs import NUM_SAMPLES
from ray_runs import SHUFFLED, Handler, numbers_of, served

import shardwise
from shardwise import Sampler, errors

pytest.importorskip("ray.data", reason="Ray Data is not installed")

import pyarrow as pa
import ray

import shardwise.ray as sr
from shardwise.ray.writing import ShardSink

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


def test_shards_that_are_there_stay_unless_they_are_to_be_replaced(
    train: Path, tmp_path: Path
) -> None:
    few = sr.read(train, where="sample < 30", override_num_blocks=1)
    first = sr.write(few, tmp_path / "new", max_samples=10, fields={"bin": "data"})
    with pytest.raises(errors.InvalidArgument, match="there is a shard already: .*-000000.tar"):
        sr.write(few, tmp_path / "new")
    assert len(first.paths) == 3
    index = tmp_path / "new.idx"
    again = sr.write(few, tmp_path / "new", replace=True, index=index, columns=["cls"])
    assert again.paths == first.paths[:1]
    assert os.listdir(tmp_path / "new") == ["shard-000000.tar"]
    assert shardwise.open(index).column("cls") == list(range(30))


def test_shards_of_a_prefix_that_begins_as_this_one_stay(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 3", override_num_blocks=1)
    sr.write(few, tmp_path, prefix="a-b", fields={"bin": "data"})
    (tmp_path / "a-old.tar").write_bytes(b"kept")
    for replace in (False, True):
        sr.write(few, tmp_path, prefix="a", fields={"bin": "data"}, replace=replace)
    names = [name for name in sorted(os.listdir(tmp_path)) if name.endswith(".tar")]
    assert names == ["a-000000.tar", "a-b-000000.tar", "a-old.tar"]


def test_a_task_that_was_done_twice_leaves_nothing_twice(tmp_path: Path) -> None:
    class Task:
        def __init__(self, number: int) -> None:
            self.task_idx = number

    class Result:
        write_returns: Any = []

    def block(first: int) -> Any:
        keys = [f"{i:06}" for i in range(first, first + 10)]
        return pa.table({"__key__": keys, "cls": list(range(first, first + 10))})

    sink = ShardSink(str(tmp_path / "new"), "a", None, 4, 1 << 20, False)
    sink.on_write_start(None)
    second = sink.write([block(10)], Task(1))
    sink.write([block(0)], Task(0))  # of a worker that died before it could say so
    Result.write_returns = [second, sink.write([block(0)], Task(0))]
    sink.on_write_complete(Result)
    assert sink.report.num_samples == 20
    assert sorted(os.listdir(tmp_path / "new")) == [f"a-{number:06}.tar" for number in range(6)]
    shardwise.index(tmp_path / "a.idx", tmp_path / "new", columns=["cls"], threads=0)
    assert shardwise.open(tmp_path / "a.idx").column("cls") == list(range(20))


KILLED_DRIVER = """
import os, signal, sys
import ray
address, index, folder, moment = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
import shardwise.ray
from shardwise.ray import indexing, writing

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def rename(path, name, real=os.rename):
    if os.path.dirname(name) == folder and name.endswith("000001.tar"):
        die()
    real(path, name)

if moment == "while it indexes":
    indexing.Parts.build = die
elif moment == "between two names":
    writing.os.rename = rename
else:
    indexing.Parts.merge = die
few = shardwise.ray.read(index, where="sample < 30", override_num_blocks=1)
shardwise.ray.write(few, folder, max_samples=10, index=folder + ".idx", columns=["cls"])
"""


@pytest.mark.parametrize(
    ("moment", "named"),
    [("while it indexes", 0), ("between two names", 1), ("before the index appears", 3)],
)
def test_a_driver_that_was_killed_leaves_whole_shards_and_the_next_write_says_so(
    train: Path, tmp_path: Path, moment: str, named: int
) -> None:
    new, index = tmp_path / "new", tmp_path / "new.idx"
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", KILLED_DRIVER, address, str(train), str(new), moment]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    shards = sorted(new.glob("*.tar"))
    assert len(shards) == named
    assert len(os.listdir(new)) == named + 1
    assert not index.exists()
    if shards:  # as whole as they will be
        made = shardwise.index(tmp_path / "part.idx", *shards, threads=0)
        assert made.num_samples == 10 * named
    few = sr.read(train, where="sample < 30", override_num_blocks=1)
    with pytest.raises(errors.InvalidArgument, match="or its driver died: .*give replace=True"):
        sr.write(few, new, max_samples=10)
    sr.write(few, new, prefix="other")  # is not concerned
    report = sr.write(few, new, max_samples=15, replace=True, index=index, columns=["cls"])
    names = ["other-000000.tar", "shard-000000.tar", "shard-000001.tar"]
    assert sorted(os.listdir(new)) == names
    assert [shard.path for shard in shardwise.open(index).shards] == report.paths
    assert shardwise.open(index).column("cls") == list(range(30))
    assert shardwise.verify(index) == []


def test_shards_that_are_not_what_was_written_get_no_name(tmp_path: Path) -> None:
    class Task:
        task_idx = 0

    class Result:
        write_returns: Any = []

    new = tmp_path / "new"
    sink = ShardSink(str(new), "a", None, 4, 1 << 20, False, str(tmp_path / "a.idx"))
    sink.on_write_start(None)
    rows = pa.table({"__key__": ["a", "b"], "cls": [1, 2]})
    Result.write_returns = [sink.write([rows], Task())]
    write_shard(Path(Result.write_returns[0].paths[0]), [("a", {"cls": b"1"})])
    with pytest.raises(errors.Mismatch, match="2 rows were written to .*shards have 1 samples"):
        sink.on_write_complete(Result)
    assert not list(new.glob("*.tar"))
    assert not (tmp_path / "a.idx").exists()


def test_two_rows_of_one_key_leave_nothing(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 30", override_num_blocks=1)

    def in_two(row: dict[str, Any]) -> list[dict[str, Any]]:
        same = {"__key__": row["__key__"], "cls": None, "bin": None}
        return [same | {"cls": row["cls"]}, same | {"bin": row["bin"]}]

    with pytest.raises(errors.InvalidArgument, match="the key is in this shard already"):
        sr.write(few.flat_map(in_two), tmp_path / "new", index=tmp_path / "new.idx")
    assert os.listdir(tmp_path / "new") == []
    assert not (tmp_path / "new.idx").exists()


def test_an_index_that_cannot_be_made_is_refused_before_anything_is_written(
    train: Path, tmp_path: Path
) -> None:
    few = sr.read(train, where="sample < 3")
    other = write_shards(tmp_path / "shards", [1])[0]
    with pytest.raises(errors.InvalidArgument, match="is no index, and is not replaced: .*tar'"):
        sr.write(few, tmp_path / "new", index=other)
    with pytest.raises(errors.NotFound, match="no folder for the index .*gone/a.idx"):
        sr.write(few, tmp_path / "new", index=tmp_path / "gone" / "a.idx")
    assert not (tmp_path / "new").exists()


def test_no_rows_are_no_shards(train: Path, tmp_path: Path) -> None:
    none = sr.read(train, where="sample < 0")
    assert sr.write(none, tmp_path / "new") == ([], 0)
    with pytest.raises(errors.InvalidArgument, match="there are no rows, and so no shards for"):
        sr.write(none, tmp_path / "new", index=tmp_path / "new.idx")
    assert os.listdir(tmp_path / "new") == []


def test_a_task_without_the_folder_of_its_write_says_so(tmp_path: Path) -> None:
    class Task:
        task_idx = 0

    sink = ShardSink(str(tmp_path), "a", None, 4, 1 << 20, False)
    with pytest.raises(errors.NotFound, match="on the node .*that all nodes share, or the write"):
        sink.write([pa.table({"__key__": ["a"], "cls": [1]})], Task())
    assert os.listdir(tmp_path) == []


def test_a_write_that_fails_leaves_nothing(train: Path, tmp_path: Path) -> None:
    few = sr.read(train, where="sample < 30")
    with pytest.raises(errors.InvalidArgument, match='rows have no column "__key__"'):
        sr.write(few.drop_columns(["__key__"]), tmp_path / "new")
    with pytest.raises(errors.NotFound, match="rows have no column 'jpg'; there are bin, cls"):
        sr.write(few, tmp_path / "new", fields=["jpg"])
    with pytest.raises(errors.BadField, match="the field 'bin' cannot be stored"):
        sr.write(few.map(lambda row: row | {"bin": {"a": 1}}), tmp_path / "new")
    assert os.listdir(tmp_path / "new") == []
    with pytest.raises(errors.InvalidArgument, match="not valid: prefix='a/b'"):
        sr.write(few, tmp_path / "new", prefix="a/b")
    with pytest.raises(errors.InvalidArgument, match="not valid: max_bytes=0"):
        sr.write(few, tmp_path / "new", max_bytes=0)


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


class KillingHandler(Handler):
    """A server whose first answer to a task that indexes is the task's end."""

    killed: list[int] = []

    def do_GET(self) -> None:
        for process in Path("/proc").iterdir():
            if self.killed or not process.name.isdigit():
                continue
            try:
                title = (process / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            if title.startswith(b"ray::_build_part"):
                self.killed.append(int(process.name))
                os.kill(int(process.name), signal.SIGKILL)
        super().do_GET()


def test_a_part_whose_task_died_is_built_again(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards", [40, 13, 30, 20])
    with served(tmp_path / "shards", KillingHandler) as url:
        urls = url + "/train-{000000..000003}.tar"
        made = sr.index(tmp_path / "made.idx", urls, columns=["cls"], parts=1)
    assert len(KillingHandler.killed) == 1
    assert made.num_samples == 103
