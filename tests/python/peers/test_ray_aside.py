"""shardwise.ray.write() that fails, or is killed, between any two of its steps: nothing that was
there is lost before it is decided, and no row afterwards."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import write_shard
from ray_runs import running_ray

import shardwise
from shardwise import errors

pytest.importorskip("ray.data", reason="Ray Data is not installed")

import pyarrow as pa
import ray

import shardwise.ray as sr
from shardwise.ray import aside as under_test
from shardwise.ray.aside import Aside
from shardwise.ray.indexing import Parts
from shardwise.ray.writing import ShardSink

pytest_plugins = ["ray_runs"]


class Task:
    def __init__(self, number: int) -> None:
        self.task_idx = number


class Result:
    def __init__(self, *write_returns: Any) -> None:
        self.write_returns = write_returns


def block(first: int, count: int = 10) -> Any:
    numbers = list(range(first, first + count))
    return pa.table({"__key__": [f"{i:06}" for i in numbers], "cls": numbers})


def build_here(self: Parts, sources: list[str], options: dict[str, Any]) -> int:
    """Parts.build() without a Ray."""
    return self.move(sources)


def write_here(directory: Path, first: int, replace: bool = False, index: bool = True) -> Any:
    """What write() does without a Ray: 20 rows by two tasks, of which one is done twice."""
    with Aside(str(directory), "a", replace) as aside:
        sink = ShardSink(aside.folder, None, 4, 1 << 20)
        second = sink.write([block(first + 10)], Task(1))
        sink.write([block(first)], Task(0))  # of a worker that died before it could say so
        sink.on_write_complete(Result(second, sink.write([block(first)], Task(0))))
        paths = [path for task in sink.written for path in task.paths]
        wanted = str(directory.with_suffix(".idx")) if index else None
        return aside.put(paths, 20, wanted, ["cls"], False, {})


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parts, "build", build_here)
    monkeypatch.setattr("shardwise.ray.indexing.cluster_cpus", lambda: 3)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.tar"))


def rows(directory: Path) -> list[int]:
    """What the shards have, without an index."""
    found = []
    for path in sorted(directory.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                found.append(int(file.read()))
    return found


def require_whole(directory: Path, first: int) -> None:
    """That the 20 rows are there, with their index, and nothing else."""
    index = directory.with_suffix(".idx")
    assert rows(directory) == list(range(first, first + 20))
    assert sorted(os.listdir(directory)) == [f"a-{number:06}.tar" for number in range(6)]
    data = shardwise.open(index)
    assert data.column("cls") == list(range(first, first + 20))
    assert [shard.path for shard in data.shards] == [
        str(directory / name) for name in names(directory)
    ]
    assert shardwise.verify(index) == []


# Steps: whatever a write does to the file system once the tasks are done.


STEPS = [
    (under_test.os, "rename"),
    (under_test.os, "replace"),
    (under_test.os, "unlink"),
    (under_test.os, "rmdir"),
    (under_test.shutil, "rmtree"),
    (Parts, "build"),
    (Parts, "move"),
    (Parts, "merge"),
]


@contextmanager
def before_each_step(stop: Callable[[str], None]) -> Iterator[None]:
    """Calls stop() before each step, with its name."""
    kept = [getattr(where, name) for where, name in STEPS]

    def stepping(name: str, real: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            if name != "move" or not is_building:
                stop(name)
            return real(*arguments, **options)

        return step

    is_building = False

    def building(*arguments: Any) -> Any:
        nonlocal is_building
        stop("build")
        is_building = True
        try:
            return kept[5](*arguments)
        finally:
            is_building = False

    for (where, name), real in zip(STEPS, kept, strict=True):
        setattr(where, name, building if name == "build" else stepping(name, real))
    try:
        yield
    finally:
        for (where, name), real in zip(STEPS, kept, strict=True):
            setattr(where, name, real)


def steps_of(directory: Path, has_others: bool) -> list[str]:
    """The names of all steps of a write; with others, one that replaces shards."""
    if has_others:
        make_others(directory)
    seen: list[str] = []
    with before_each_step(seen.append):
        write_here(directory, 100, has_others)
    require_whole(directory, 100)
    return seen


def make_others(directory: Path) -> None:
    """Eight shards that are to be replaced, by six."""
    directory.mkdir()
    for number in range(8):
        write_shard(directory / f"a-{number:06}.tar", [(f"old-{number}", {"cls": b"7"})])


def finish_or_write_again(directory: Path, has_others: bool) -> bool:
    """What a user does: the same write again. Whether the first one was finished by it; if it had
    been before, that is said, too."""
    if not has_others:
        try:
            write_here(directory, 100)
        except errors.InvalidArgument as error:
            wanted = (
                f"an earlier write to {str(directory)!r} had all its rows, and ended before its "
                "shards had their names; it is complete now: 6 shards of 20 samples, and the "
                f"index '{directory}.idx'; use these, or give replace=True, which writes anew"
            )
            assert str(error) == wanted or "there is a shard already" in str(error)
            return str(error) == wanted
        return False
    write_here(directory, 100, replace=True)
    return False


def require_nothing_lost(directory: Path, is_decided: bool, has_others: bool) -> None:
    """After a write that did not end."""
    if not is_decided:
        assert rows(directory) == ([7] * 8 if has_others else [])
    index = directory.with_suffix(".idx")
    if index.exists():
        assert shardwise.open(index).column("cls") == list(range(100, 120))


@pytest.mark.parametrize("has_others", [False, True])
@pytest.mark.usefixtures("by_hand")
def test_a_write_that_fails_at_any_step_loses_nothing_and_the_next_one_finishes_it(
    tmp_path: Path, has_others: bool
) -> None:
    steps = steps_of(tmp_path / "whole", has_others)
    assert steps.count("rename") == 12
    decision = steps.index("replace")
    last_of_it = steps.index("unlink", steps.index("merge"))
    finished = 0
    for failing, name in enumerate(steps):
        directory = tmp_path / f"{failing}-{name}"
        if has_others:
            make_others(directory)
        left = failing

        def fail(_: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.ENOSPC, "the disk is full")

        is_decided = failing > decision
        text = ""
        try:
            with before_each_step(fail):
                write_here(directory, 100, has_others)
        except OSError as error:  # a NoSpace is one
            text = str(error)
            assert isinstance(error, errors.NoSpace) == (": all rows are written to" in text)
        require_nothing_lost(directory, is_decided, has_others)
        assert (": all rows are written to" in text) == (decision < failing <= last_of_it)
        if ": all rows are written to" in text:
            assert re.search(
                r"the disk is full: all rows are written to '.*'; "
                r"(\d of 6 shards have no name yet|the shards have their names, but the index "
                r"'.*.idx' is not made, which `shardwise index` can do, too); mend that and write "
                r"there again, which first finishes this, or give replace=True, which writes anew$",
                text,
            )
        finished += finish_or_write_again(directory, has_others)
        require_whole(directory, 100)
    assert finished == (0 if has_others else 9)  # before 6 names, move, merge, and the end


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_ray_aside as t
t.Parts.build = t.build_here
t.sr.indexing.cluster_cpus = lambda: 3

def killed(directory, left, has_others):
    def end(_):
        nonlocal left
        left -= 1
        if left == -1:
            os.kill(os.getpid(), signal.SIGKILL)
    with t.before_each_step(end):
        t.write_here(directory, 100, has_others)

def in_a_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1]

for has_others in (False, True):
    folder = Path(sys.argv[1]) / str(has_others)
    folder.mkdir()
    steps = t.steps_of(folder / "whole", has_others)
    decision = steps.index("replace")
    finished = 0
    for number, name in enumerate(steps):
        directory = folder / f"{number}-{name}"
        if has_others:
            t.make_others(directory)
        status = in_a_child(lambda: killed(directory, number, has_others))
        assert os.WTERMSIG(status) == signal.SIGKILL, (name, status)
        t.require_nothing_lost(directory, number > decision, has_others)
        finished += t.finish_or_write_again(directory, has_others)
        t.require_whole(directory, 100)
    print(has_others, len(steps), finished)
"""


def test_a_driver_that_is_killed_at_any_step_loses_nothing_and_the_next_one_finishes_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parent)]
    path = f"{Path(__file__).parent.parent}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [(line[0], line[2]) for line in lines] == [("False", "9"), ("True", "0")]
    assert int(lines[1][1]) == int(lines[0][1]) + 2  # two that have no successor


@pytest.mark.usefixtures("by_hand")
def test_a_failed_merge_leaves_shards_that_can_be_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"

    def merge(self: Parts, output: str) -> None:
        raise errors.Mismatch("parts do not fit: 'x'; build them again")

    with monkeypatch.context() as patched:
        patched.setattr(Parts, "merge", merge)
        for _ in range(2):  # that it cannot be finished is said again
            with pytest.raises(errors.Mismatch, match="index '.*' is not made, which `shardwise"):
                write_here(new, 0)
    shardwise.index(tmp_path / "other.idx", new, columns=["cls"], threads=0)
    assert shardwise.open(tmp_path / "other.idx").column("cls") == list(range(20))
    with pytest.raises(errors.InvalidArgument, match="it is complete now: 6 shards of 20 samples"):
        write_here(new, 40)
    require_whole(new, 0)


@pytest.mark.usefixtures("by_hand")
def test_what_was_put_there_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"

    def rename(path: str, name: str, real: Any = os.rename) -> None:
        if name == str(new / "a-000003.tar"):
            raise PermissionError(errno.EACCES, "no")
        real(path, name)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(errors.Io, match="3 of 6 shards have no name yet"):
            write_here(new, 0)
    (new / "a-000004.tar").write_bytes(b"kept")
    with pytest.raises(errors.InvalidArgument, match="a shard already: .*4.tar'.*2 of 6 shards"):
        write_here(new, 0)
    assert (new / "a-000004.tar").read_bytes() == b"kept"
    (new / "a-000004.tar").unlink()
    with pytest.raises(errors.InvalidArgument, match="it is complete now"):
        write_here(new, 0)
    require_whole(new, 0)


@pytest.mark.usefixtures("by_hand")
def test_a_write_that_replaces_a_broken_one_and_fails_leaves_that_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patched:
        patched.setattr(Parts, "merge", fail)
        with pytest.raises(errors.Io):
            write_here(new, 0)
        patched.setattr(Parts, "build", fail)
        with pytest.raises(OSError, match="no"):
            write_here(new, 40, replace=True)
    with pytest.raises(errors.InvalidArgument, match="it is complete now"):
        write_here(new, 80)
    require_whole(new, 0)


@pytest.mark.usefixtures("by_hand")
def test_two_writes_of_one_prefix_at_a_time_are_refused(tmp_path: Path) -> None:
    with Aside(str(tmp_path / "new"), "a", False) as first:
        for replace in (False, True):
            with pytest.raises(errors.InvalidArgument, match="another write is at work .* locked;"):
                write_here(tmp_path / "new", 0, replace)
        with Aside(str(tmp_path / "new"), "b", False):
            assert os.path.isdir(first.folder)
    assert os.listdir(tmp_path / "new") == []
    write_here(tmp_path / "new", 0)
    require_whole(tmp_path / "new", 0)


@pytest.mark.usefixtures("by_hand")
def test_where_there_are_no_locks_the_first_one_has_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    new = tmp_path / "new"
    write_here(new, 0)
    require_whole(new, 0)
    (new / ".a.writing").mkdir()
    (new / ".a.writing/lock").touch()  # of a driver that died, or is at work
    with pytest.raises(errors.InvalidArgument, match="no locks to tell: .*remove '.*/lock', and"):
        write_here(new, 0, replace=True)
    (new / ".a.writing/lock").unlink()
    write_here(new, 40, replace=True)
    require_whole(new, 40)


@pytest.mark.usefixtures("by_hand")
def test_shards_that_are_not_what_was_written_get_no_name(tmp_path: Path) -> None:
    new = tmp_path / "new"
    with (
        pytest.raises(errors.Mismatch, match="2 rows were written to .*shards have 1 samples"),
        Aside(str(new), "a", False) as aside,
    ):
        sink = ShardSink(aside.folder, None, 4, 1 << 20)
        paths = sink.write([block(0, 2)], Task(0)).paths
        write_shard(Path(paths[0]), [("a", {"cls": b"1"})])
        aside.put(paths, 2, str(tmp_path / "a.idx"), [], False, {})
    assert os.listdir(new) == []
    assert not (tmp_path / "a.idx").exists()


def test_a_task_without_the_folder_of_its_write_says_so(tmp_path: Path) -> None:
    sink = ShardSink(str(tmp_path / "gone"), None, 4, 1 << 20)
    with pytest.raises(errors.NotFound, match="on the node .*that all nodes share, or the write"):
        sink.write([block(0)], Task(0))
    assert os.listdir(tmp_path) == []


KILLED_DRIVER = """
import os, signal, sys
import ray
address, index, folder, moment = sys.argv[1:]
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
import shardwise.ray
from shardwise.ray.indexing import Parts

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(Parts, moment, die)
few = shardwise.ray.read(index, where="sample < 30", override_num_blocks=1)
index = {"index": folder + ".idx", "columns": ["cls"], "hashes": True}
shardwise.ray.write(few, folder, max_samples=10, **index)
"""


def test_a_real_driver_that_was_killed_is_followed_by_one_that_knows(tmp_path: Path) -> None:
    write_shard(tmp_path / "x.tar", [(f"{i:03}", {"cls": b"%d" % i}) for i in range(40)])
    shardwise.index(tmp_path / "x.idx", tmp_path / "x.tar", columns=["cls"], threads=0)
    new, index = tmp_path / "new", tmp_path / "new.idx"
    with running_ray():
        address = ray.get_runtime_context().gcs_address
        few = sr.read(tmp_path / "x.idx", where="sample < 30", override_num_blocks=1)
        for moment in ("build", "merge"):
            command = [sys.executable, "-c", KILLED_DRIVER, address]
            command += [str(tmp_path / "x.idx"), str(new), moment]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert len(list(new.glob("*.tar"))) == (0 if moment == "build" else 3)
            assert not index.exists()
        sr.write(few, new, prefix="other")  # is not concerned
        with pytest.raises(errors.InvalidArgument, match="complete now: 3 shards of 30 samples, "):
            sr.write(few, new, index=index)
        assert shardwise.open(index).column("cls") == list(range(30))
        assert shardwise.verify(index, full=True) == []
        report = sr.write(few, new, max_samples=15, replace=True, index=index, columns=["cls"])
    names = ["other-000000.tar", "shard-000000.tar", "shard-000001.tar"]
    assert sorted(os.listdir(new)) == names
    assert [shard.path for shard in shardwise.open(index).shards] == report.paths
    assert shardwise.open(index).column("cls") == list(range(30))
    assert shardwise.verify(index) == []
