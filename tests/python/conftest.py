"""Shared by the tests of the Python package."""

from __future__ import annotations

import functools
import http.server
import io
import json
import os
import random
import ssl
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import shardwise
from shardwise import ranks


def needs(module: str) -> Any:
    """Imports a module. If it is not installed, skips the test or the file that needs it."""
    return pytest.importorskip(module, reason=f"needs {module}; skipped because it is not installed")


def part_of(cases: Sequence[Any], number: int) -> list[Any]:
    """Returns this number of the cases at random; all with SHARDWISE_THOROUGH. For costly cases:
    each run of CI tests others. The name of a failed test says its case."""
    chosen = random.SystemRandom().sample(list(cases), number)
    return list(cases) if os.environ.get("SHARDWISE_THOROUGH") else chosen


def write_tar(path: Path, members: Iterable[tuple[str, bytes]], **options: Any) -> Path:
    """Writes a tar with these members. options: for tarfile.open()."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def write_shard(path: Path, samples: list[tuple[str, dict[str, bytes]]]) -> Path:
    """Writes a shard with these samples: key, and bytes by field."""
    members = [(f"{key}.{name}", data) for key, fields in samples for name, data in fields.items()]
    return write_tar(path, members)


def plain_samples(first: int, count: int) -> list[tuple[str, dict[str, bytes]]]:
    """Returns samples whose fields contain their number."""
    return [
        (f"{i:06}", {"bin": bytes([i % 256]) * (i % 50 + 1), "cls": str(i).encode()})
        for i in range(first, first + count)
    ]


def write_shards(folder: Path, lengths: list[int]) -> list[Path]:
    """Writes shards with these numbers of samples. Samples are numbered across all shards."""
    paths, first = [], 0
    for number, length in enumerate(lengths):
        path = folder / f"train-{number:06}.tar"
        paths.append(write_shard(path, plain_samples(first, length)))
        first += length
    return paths


def in_threads(work: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """Calls a function for each argument, on one thread each. Returns the results, or raises an
    error."""
    with ThreadPoolExecutor(len(arguments)) as threads:
        return list(threads.map(work, arguments))


class FakeRanks:
    """Ranks in one process, each with a thread. The sum over the ranks waits for all of them."""

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
        """Returns the results of `work` by rank. Raises the error of a rank."""
        raised: list[BaseException] = []

        def one(rank: int) -> Any:
            try:
                return work(self.reducer(rank))
            except BaseException as error:
                self._barrier.abort()
                if not isinstance(error, threading.BrokenBarrierError):
                    raised.append(error)

        given = in_threads(one, range(self.world_size))
        if raised:
            raise raised[0]
        return given


class FileHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without logging."""

    site: FileServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        super().do_GET()


class RangeHandler(FileHandler):
    """Serves files and ranges of files, without logging."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        begin, end = 0, len(data)
        wanted = self.headers.get("Range")
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1 if last else end, end)
        self.send_response(200 if wanted is None else 206)
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command == "GET":
            self.site.sent += end - begin
            self.wfile.write(data[begin:end])

    do_HEAD = do_GET


class FileServer:
    """A context that serves a folder on localhost; by https if it gets a TLS context."""

    def __init__(
        self,
        folder: Path,
        handler: type[FileHandler] = FileHandler,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.asked: list[str] = []
        self.sent = 0
        own = type("Handler", (handler,), {"site": self})
        made = functools.partial(own, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), made)
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        host = "http://127.0.0.1" if tls is None else "https://localhost"
        self.url = f"{host}:{self._server.server_address[1]}"

    def __enter__(self) -> FileServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


BEGIN = """
import gc, os, signal, sys, threading, time, weakref
import shardwise
from shardwise import Loader, columns
ds = shardwise.open(sys.argv[1])
"""


def python_path(*folders: Path) -> str:
    """Returns the PYTHONPATH of a process that can import from these folders, and everything that
    this process can import."""
    package = Path(shardwise.__file__).parents[1]
    return os.pathsep.join([*map(str, folders), str(package), *sys.path[1:]])


def run_python(
    arguments: list[str], *folders: Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python in a new process that can also import from these folders."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": python_path(*folders)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Writes the test file's PROGRAM into a separate folder. Returns its path."""
    (tmp_path / "programs").mkdir()
    path = tmp_path / "programs" / "script.py"
    path.write_text(request.module.PROGRAM)
    return path


def run_script(index: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a new process. It ends long before the timeout, unless it hangs."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", BEGIN + script, str(index)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_ends(index: Path, script: str, output: str = "", may_leak: bool = False) -> None:
    """Runs a script that must end by itself. may_leak: threads that still run at exit keep objects
    alive, which nanobind reports in builds with tests."""
    done = run_script(index, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
    leaks = ("nanobind: ", " - ", "See https://nanobind") if may_leak else ()
    assert [line for line in done.stderr.splitlines() if not line.startswith(leaks)] == []


# A picture of 16 x 12 pixels in one colour.
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
    """Writes the files that pages and docstrings use: 400 samples in four shards."""
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
    """An index of `shards` with the column cls."""
    path = tmp_path / "train.idx"
    shardwise.index(path, shards, columns=["cls"], threads=0)
    return path


@pytest.fixture
def ds(index: Path) -> shardwise.Dataset:
    return shardwise.open(index)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder that contains corpus/, tars that other programs made. Skips the test if it is
    missing."""
    folder = Path(os.environ.get("SHARDWISE_CORPUS", Path(__file__).parents[3] / "shared"))
    if not (folder / "corpus").is_dir():
        pytest.skip(f"needs the corpus; skipped because {folder} does not exist")
    return folder
