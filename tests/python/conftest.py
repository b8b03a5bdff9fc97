"""What the tests of the Python package share."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwise
from shardwise import ranks


def write_shard(path: Path, samples: list[tuple[str, dict[str, bytes]]]) -> Path:
    """A shard with these samples: key, and bytes by field."""
    with tarfile.open(path, "w") as tar:
        for key, fields in samples:
            for field, data in fields.items():
                member = tarfile.TarInfo(f"{key}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def plain_samples(first: int, count: int) -> list[tuple[str, dict[str, bytes]]]:
    """Samples whose bytes tell their number."""
    return [
        (f"{i:06}", {"bin": bytes([i % 256]) * (i % 50 + 1), "cls": str(i).encode()})
        for i in range(first, first + count)
    ]


def write_shards(folder: Path, lengths: list[int]) -> list[Path]:
    """Shards of these lengths, whose samples are numbered through."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, first = [], 0
    for number, length in enumerate(lengths):
        path = folder / f"train-{number:06}.tar"
        paths.append(write_shard(path, plain_samples(first, length)))
        first += length
    return paths


class FakeRanks:
    """Ranks of one process, each with a thread: a sum that waits for all of them."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._barrier = threading.Barrier(world_size)
        self._given: list[list[int]] = [[] for _ in range(world_size)]

    def reducer(self, rank: int) -> ranks.Reducer:
        def all_reduce_sum(words: list[int]) -> list[int]:
            self._given[rank] = words
            self._barrier.wait()
            sums = [sum(column) for column in zip(*self._given)]
            self._barrier.wait()
            return sums

        return ranks.Reducer(rank, self.world_size, all_reduce_sum)

    def run(self, work: Callable[[ranks.Reducer], Any]) -> list[Any]:
        """What `work` gives for each rank; what it raises in one of them."""
        results: list[Any] = [None] * self.world_size
        raised: list[BaseException] = []

        def one(rank: int) -> None:
            try:
                results[rank] = work(self.reducer(rank))
            except BaseException as error:
                raised.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=one, args=(r,)) for r in range(self.world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if raised:
            raise next(
                (e for e in raised if not isinstance(e, threading.BrokenBarrierError)), raised[0]
            )
        return results


BEGIN = """
import gc, os, signal, sys, threading, time, weakref
import shardwise
from shardwise import Loader, columns
ds = shardwise.open(sys.argv[1])
"""


def run_script(index: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own. It ends long before the limit, or hangs for ever."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", BEGIN + script, str(index)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_ends(index: Path, script: str, output: str = "", may_leak: bool = False) -> None:
    """Runs a script, which has to end by itself. may_leak: threads that the end of the interpreter
    stops keep what they hold, which nanobind says in builds with tests."""
    done = run_script(index, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
    leaks = ("nanobind: ", " - ", "See https://nanobind") if may_leak else ()
    assert [line for line in done.stderr.splitlines() if not line.startswith(leaks)] == []


# A picture of 16 x 12, of one colour.
JPEG = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb0043001b12141714111b1716171e1c1b2028422b28252528"
    "513a3d3042605565645f555d5b6a7899816a7190735b5d85b586909ea3abadab6780bcc9baa6c799a8aba4ffdb00"
    "43011c1e1e2823284e2b2b4ea46e5d6ea4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4"
    "a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4a4ffc0001108000c001003012200021101031101ffc40015000101"
    "00000000000000000000000000000004ffc40014100100000000000000000000000000000000ffc4001501010100"
    "000000000000000000000000000005ffc40014110100000000000000000000000000000000ffda000c0301000211"
    "0311003f008c015dffd9"
)


def write_shown_files(folder: Path) -> None:
    """The files that the pages and the docstrings speak of: 400 samples in four shards."""
    for shard in range(4):
        first = shard * 100
        write_shard(
            folder / f"train-{shard:06}.tar",
            [
                (f"{i:06}", {"jpg": JPEG, "cls": str(i % 10).encode(), "txt": f"no. {i}".encode()})
                for i in range(first, first + 100)
            ],
        )
    listed = [{"url": f"train-{shard:06}.tar", "nsamples": 100} for shard in range(4)]
    (folder / "train.json").write_text(json.dumps({"wids_version": 1, "shardlist": listed}))
    for name in ("train.idx", "other.idx"):
        shardwise.index(folder / name, folder / "train-{000000..000003}.tar", columns=["cls"])


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with 103 samples in four shards."""
    write_shards(tmp_path / "shards", [40, 13, 30, 20])
    return tmp_path / "shards"


@pytest.fixture
def index(tmp_path: Path, shards: Path) -> Path:
    """An index over `shards`, with the column cls."""
    path = tmp_path / "train.idx"
    shardwise.index(path, shards, columns=["cls"], threads=0)
    return path


@pytest.fixture
def ds(index: Path) -> shardwise.Dataset:
    return shardwise.open(index)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of given files; a test that needs it is skipped where there is none."""
    folder = Path(os.environ.get("SHARDWISE_CORPUS", Path(__file__).parents[3] / "shared"))
    if not (folder / "corpus").is_dir():
        pytest.skip(f"no corpus at {folder}: set SHARDWISE_CORPUS")
    return folder
