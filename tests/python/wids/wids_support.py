"""What the tests of shardwise.wids share."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    """A tar with these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def write_shards(folder: Path, lengths: list[int]) -> list[dict[str, Any]]:
    """Shards of these lengths, whose samples are numbered through; as a list for wids."""
    shards, first = [], 0
    for number, length in enumerate(lengths):
        members = []
        for i in range(first, first + length):
            members.append((f"{i:06}.bin", bytes([i % 256]) * (i % 50 + 1)))
            members.append((f"{i:06}.cls", str(i).encode()))
        path = write_tar(folder / f"train-{number:03}.tar", members)
        shards.append({"url": str(path), "nsamples": length})
        first += length
    return shards


def write_descriptor(path: Path, shards: list[dict[str, Any]], **others: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"wids_version": 1, "shardlist": shards, **others}))
    return path


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes and cached shards of a test lie in its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "wids-cache"))
    monkeypatch.delenv("SHARDWISE_WIDS_CLAIMS", raising=False)
    monkeypatch.delenv("SHARDWISE_WIDS_EXACT", raising=False)


@pytest.fixture
def shards(tmp_path: Path) -> list[dict[str, Any]]:
    """Three shards with 7, 5 and 9 samples."""
    return write_shards(tmp_path / "shards", [7, 5, 9])


class _Ranges(SimpleHTTPRequestHandler):
    """Serves files, parts of them too, and tells nobody about it."""

    protocol_version = "HTTP/1.1"
    requested: list[str]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.requested.append(self.path)  # type: ignore[attr-defined]
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        etag = f'"{path.stat().st_mtime_ns}"'
        begin, end = 0, len(data)
        wanted = self.headers.get("Range")
        if wanted is not None:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1 if last else end, end)
        self.send_response(200 if wanted is None else 206)
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[begin:end])

    do_HEAD = do_GET


class Served:
    """A folder that a server of this machine serves."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        self.requested: list[str] = server.requested  # type: ignore[attr-defined]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """tmp_path / "served", by http."""
    (tmp_path / "served").mkdir(exist_ok=True)
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Ranges, directory=str(tmp_path / "served"))
    )
    server.requested = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Served(server)
    server.shutdown()
    server.server_close()
    thread.join()
