"""repack(): samples in new shards."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from conftest import assert_ends

import shardwise
from shardwise import ShardWriter, errors


@pytest.fixture
def data(tmp_path: Path) -> shardwise.Dataset:
    with ShardWriter(
        tmp_path / "old-%d.tar", max_samples=40, index=tmp_path / "old.idx", columns=["cls"]
    ) as sink:
        for i in range(100):
            sink.write({"__key__": f"k{i:03}", "cls": i % 10, "json": {"n": i}})
    return shardwise.open(tmp_path / "old.idx")


def content(path: str) -> dict[str, tuple[int, Any]]:
    return {s.key: (s.integer("cls"), s.json("json")) for s in shardwise.open(path)}


def change(sample: shardwise.Sample) -> dict[str, Any] | list[dict[str, Any]] | None:
    """Leaves out samples, changes fields, and makes two samples of one."""
    number = sample.json("json")["n"]
    if number % 3 == 0:
        return None
    if number % 3 == 1:
        return {**dict(sample), "json": {"n": -number}}
    fields = dict(sample)
    return [{**fields, "__key__": sample.key + half} for half in "ab"]


CHANGED = {
    f"k{i:03}{half}": (i % 10, {"n": -i if i % 3 == 1 else i})
    for i in range(100)
    for half in {0: "", 1: [""], 2: "ab"}[i % 3]
}


@pytest.mark.parametrize("workers", [0, 1, 3, None])
def test_a_view_is_copied(data: shardwise.Dataset, tmp_path: Path, workers: int | None) -> None:
    view = data.where("cls < 4")
    seen = []
    report = shardwise.repack(
        view, tmp_path / "new", shuffle=7, max_samples=9, workers=workers, progress=seen.append
    )
    assert report == (5, 0, 40, report.shard_bytes, str(tmp_path / "new" / "shards.idx"))
    assert content(report.path) == {s.key: (s.integer("cls"), s.json("json")) for s in view}
    keys = [sample.key for sample in shardwise.open(report.path)]
    assert keys != sorted(keys)
    assert shardwise.open(report.path).column("cls") == [int(key[-1]) for key in keys]
    assert seen[-1].shards_done == 5


@pytest.mark.parametrize("workers", [0, 1, 3, None])
def test_a_function_changes_samples(
    data: shardwise.Dataset, tmp_path: Path, workers: int | None
) -> None:
    report = shardwise.repack(
        data, tmp_path / "new", change, max_samples=7, prefix="a-%d-", workers=workers
    )
    assert content(report.path) == CHANGED
    assert report.samples == len(CHANGED)


def test_an_error_of_the_function_is_raised_and_the_next_call_continues(
    data: shardwise.Dataset, tmp_path: Path
) -> None:
    marker = tmp_path / "mended"

    def fragile(sample: shardwise.Sample) -> Any:
        if sample.key == "k070" and not marker.exists():
            raise RuntimeError("no 70")
        return change(sample)

    for workers in (0, 2):
        with pytest.raises(RuntimeError, match="no 70"):
            shardwise.repack(data, tmp_path / "new", fragile, max_samples=10, workers=workers)
    with pytest.raises(errors.InvalidArgument, match="other data or options"):
        shardwise.repack(data, tmp_path / "new", change, max_samples=10)
    marker.touch()
    report = shardwise.repack(data, tmp_path / "new", fragile, max_samples=10, workers=2)
    assert report.shards_resumed >= 7
    assert content(report.path) == CHANGED
    with pytest.raises(errors.InvalidArgument, match="already holds shards"):
        shardwise.repack(data, tmp_path / "new", fragile)
    again = shardwise.repack(data, tmp_path / "new", change, restart=True, workers=0)
    assert (again.shards, again.shards_resumed) == (1, 0)


def halved(sample: shardwise.Sample, *, by: int) -> dict[str, Any]:
    return {**dict(sample), "json": {"n": sample.json("json")["n"] // by}}


class Halved:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, sample: shardwise.Sample) -> dict[str, Any]:
        return halved(sample, by=self.by)

    method = __call__


def text_of(value: Any) -> bytes:
    return f"{value}".encode()


def bytes_of(value: Any) -> bytes:
    return b"bytes"


@pytest.mark.parametrize(
    "make",
    [
        lambda by: {"function": functools.partial(halved, by=by)},
        lambda by: {"function": Halved(by)},
        lambda by: {"function": Halved(by).method},
        lambda by: {"function": dict, "encoders": {"x": text_of if by == 2 else bytes_of}},
        lambda by: {"function": dict, "encoders": {"x": text_of, "y": text_of} if by == 2 else None},
    ],
)
def test_only_an_equal_function_continues(data: shardwise.Dataset, tmp_path: Path, make: Any) -> None:
    def stop(progress: Any) -> None:
        raise RuntimeError("enough")

    options: dict[str, Any] = {"max_samples": 10, "workers": 0}
    with pytest.raises(RuntimeError, match="enough"):
        shardwise.repack(data, tmp_path / "new", **make(2), **options, progress=stop)
    with pytest.raises(errors.InvalidArgument, match="other data or options"):
        shardwise.repack(data, tmp_path / "new", **make(3), **options)
    assert shardwise.repack(data, tmp_path / "new", **make(2), **options).shards_resumed == 1


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "result", ["text", [1], [{}, "text"], {1: b""}, {"__key__": 5, "x": b""}, {"__key__": "a.b"}, {}]
)
def test_a_wrong_result_names_its_sample(
    data: shardwise.Dataset, tmp_path: Path, result: Any, workers: int
) -> None:
    def wrong(sample: shardwise.Sample) -> Any:
        return result if sample.key == "k003" else dict(sample)

    with pytest.raises(errors.InvalidArgument) as caught:
        shardwise.repack(data, tmp_path / "new", wrong, workers=workers)
    assert "sample 3, key 'k003'" in "".join(caught.value.__notes__)


def test_shards_that_are_read_are_not_replaced(data: shardwise.Dataset, tmp_path: Path) -> None:
    report = shardwise.repack(data, tmp_path / "new", dict, max_samples=10, workers=0)
    old = shardwise.open(report.path)
    for restart in (False, True):
        with pytest.raises(errors.InvalidArgument, match="a shard that is read"):
            shardwise.repack(
                old, tmp_path / "new", dict, index=tmp_path / "x.idx", restart=restart, workers=0
            )
    assert len(shardwise.open(report.path)) == 100


def killing(sample: shardwise.Sample, *, marker: Path) -> Any:
    if sample.key == "k050" and not marker.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return dict(sample)


def test_a_call_continues_after_a_worker_was_killed(
    data: shardwise.Dataset, tmp_path: Path
) -> None:
    function = functools.partial(killing, marker=tmp_path / "marker")
    options: dict[str, Any] = {"max_samples": 10, "workers": 2}
    with pytest.raises(BrokenProcessPool) as caught:
        shardwise.repack(data, tmp_path / "new", function, **options)
    assert "repeat the call" in "".join(caught.value.__notes__)
    (tmp_path / "marker").touch()
    report = shardwise.repack(data, tmp_path / "new", function, **options)
    assert content(report.path) == {s.key: (s.integer("cls"), s.json("json")) for s in data}


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_end_when_the_main_process_is_killed(
    data: shardwise.Dataset, tmp_path: Path
) -> None:
    script = f"""
import os, pathlib, shardwise, signal

def slow(sample):
    (pathlib.Path({str(tmp_path)!r}) / f"worker-{{os.getpid()}}").touch()
    signal.pause()

shardwise.repack(shardwise.open({data.path!r}), {str(tmp_path / "new")!r}, slow,
                 max_samples=10, workers=3)
"""
    with subprocess.Popen([sys.executable, "-c", script]) as main:
        while len(found := list(tmp_path.glob("worker-*"))) < 3:
            assert main.poll() is None
            time.sleep(0.01)
        main.kill()
    workers = [int(path.name.partition("-")[2]) for path in found]
    while any(map(is_running, workers)):
        time.sleep(0.01)


def test_a_function_that_cannot_be_sent_is_an_error(
    data: shardwise.Dataset, tmp_path: Path
) -> None:
    default = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        with pytest.raises((AttributeError, TypeError), match="pickle"):
            shardwise.repack(data, tmp_path / "new", lambda sample: None, workers=2)
        report = shardwise.repack(data, tmp_path / "other", dict, workers=2)
    finally:
        multiprocessing.set_start_method(default, force=True)
    assert report.samples == 100


def test_wrong_arguments(data: shardwise.Dataset, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(errors.InvalidArgument, match="data="):
        shardwise.repack("old.idx", new)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="function="):
        shardwise.repack(data, new, 7)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="prefix="):
        shardwise.repack(data, new, prefix="a/b")
    with pytest.raises(errors.InvalidArgument, match="workers="):
        shardwise.repack(data, new, workers=-1)
    with pytest.raises(errors.InvalidArgument, match="max_samples"):
        shardwise.repack(data, new, max_samples=0)
    assert not new.exists()
    with pytest.raises(errors.InvalidArgument, match="function="):
        shardwise.repack(data, new, lambda sample: 7, workers=0)  # type: ignore[arg-type, return-value]
    with pytest.raises(errors.InvalidArgument, match="no sample"):
        shardwise.repack(data, new, lambda sample: None, workers=0, restart=True)


def test_ctrl_c_ends_the_workers(data: shardwise.Dataset, tmp_path: Path) -> None:
    """The workers stop after a sample, and leave no unfinished shard."""
    script = """
import os, signal, time
slow_from = "k050"

def slow(sample):
    if sample.key == slow_from:
        os.kill(os.getppid(), signal.SIGINT)
    if sample.key >= slow_from:
        time.sleep(0.05)  # a worker that does not stop takes seconds
    return dict(sample)

try:
    shardwise.repack(shardwise.open(PATH), DIRECTORY, slow, max_samples=50, workers=2)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert_ends(
        tmp_path / "old.idx",
        script.replace("PATH", repr(str(tmp_path / "old.idx"))).replace(
            "DIRECTORY", repr(str(tmp_path / "new"))
        ),
        "interrupted\n",
    )
    assert [path.name for path in (tmp_path / "new").iterdir() if path.suffix == ".tar"] in (
        [],
        ["shard-000000.tar"],
    )
    report = shardwise.repack(data, tmp_path / "new", dict, max_samples=50, restart=True)
    assert report.samples == 100
