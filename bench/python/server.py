"""A server on this machine that sends the files of a folder and answers like S3."""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import multiprocessing
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

BUCKET = "bucket"
PIECE_BYTES = 256 << 10
MODIFIED = ("Mon, 05 Jan 2026 10:00:00 GMT", "2026-01-05T10:00:00.000Z")

Body = bytes | memoryview


class _File:
    def __init__(self, path: str, number: int) -> None:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        self.data = memoryview(mapped)
        self.etag = f'"{number:x}-{size:x}"'


class Server:
    """Sends a file as /bucket/PATH, and lists the bucket (ListObjectsV2). Paths are relative to
    the folder. ``/count`` returns and resets the counts; ``/latency/MS`` sets the latency.

    The latency is waited before each answer and after each new connection. The rate, in bytes per
    second, is shared by all connections; 0 means no limit."""

    def __init__(self, folder: str, latency_ms: float = 0, rate: float = 0) -> None:
        paths = sorted(
            os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names
        )
        self.files = {
            os.path.relpath(path, folder): _File(path, number) for number, path in enumerate(paths)
        }
        self.latency = latency_ms / 1000
        self.rate = rate
        self.requests = self.bytes = 0
        self._free_at = 0.0  # when the next byte may be sent

    def answer(self, line: str, headers: dict[str, str]) -> tuple[bytes, Body]:
        """Returns the header and the body of an answer."""
        method, target, _ = line.split(" ")
        url = urllib.parse.urlsplit(target)
        path = urllib.parse.unquote(url.path)
        if path == "/count":
            text = json.dumps([self.requests, self.bytes]).encode()
            self.requests = self.bytes = 0
            return _head("200 OK", len(text)), text
        if path.startswith("/latency/"):
            self.latency = float(path[9:]) / 1000
            return _head("200 OK", 0), b""
        self.requests += 1
        if method not in ("GET", "HEAD"):
            return _head("405 Method Not Allowed", 0), b""
        body: Body
        if path.rstrip("/") == f"/{BUCKET}":
            query = urllib.parse.parse_qs(url.query)
            head, body = self._listed(query.get("prefix", [""])[0])
        else:
            head, body = self._sent(path.removeprefix(f"/{BUCKET}/"), headers.get("range"))
        if method == "HEAD":
            body = b""
        self.bytes += len(body)
        return head, body

    def _sent(self, name: str, wanted: str | None) -> tuple[bytes, Body]:
        file = self.files.get(name)
        if file is None:
            body = b"<Error><Code>NoSuchKey</Code></Error>"
            return _head("404 Not Found", len(body), "Content-Type: application/xml"), body
        size = len(file.data)
        extra = [
            f"ETag: {file.etag}",
            f"Last-Modified: {MODIFIED[0]}",
            "Accept-Ranges: bytes",
            "Content-Type: binary/octet-stream",
        ]
        if wanted is None:
            return _head("200 OK", size, *extra), file.data
        first, last = wanted.removeprefix("bytes=").split("-")
        begin = int(first) if first else max(size - int(last), 0)
        end = min(int(last) + 1, size) if first and last else size
        if begin >= size:
            return _head("416 Range Not Satisfiable", 0, f"Content-Range: bytes */{size}"), b""
        extra.append(f"Content-Range: bytes {begin}-{end - 1}/{size}")
        return _head("206 Partial Content", end - begin, *extra), file.data[begin:end]

    def _listed(self, prefix: str) -> tuple[bytes, bytes]:
        found = {name: file for name, file in self.files.items() if name.startswith(prefix)}
        objects = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{MODIFIED[1]}</LastModified>"
            f"<ETag>{escape(file.etag)}</ETag><Size>{len(file.data)}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for name, file in found.items()
        )
        text = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>"
            f"<IsTruncated>false</IsTruncated>{objects}</ListBucketResult>"
        ).encode()
        return _head("200 OK", len(text), "Content-Type: application/xml"), text

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(self.latency)
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
                head, body = self.answer(lines[0], {k.lower(): v.strip() for k, v in pairs})
                await asyncio.sleep(self.latency)
                writer.write(head)
                for at in range(0, len(body), PIECE_BYTES):
                    piece = body[at : at + PIECE_BYTES]
                    await self._wait_for(len(piece))
                    writer.write(piece)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _wait_for(self, size: int) -> None:
        if self.rate:
            now = asyncio.get_running_loop().time()
            self._free_at = max(self._free_at, now) + size / self.rate
            await asyncio.sleep(self._free_at - now)


def _head(status: str, length: int, *extra: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {length}", *extra]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _serve(port: Any, folder: str, latency_ms: float, rate: float) -> None:
    async def run() -> None:
        talk = Server(folder, latency_ms, rate).talk
        server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=256)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextlib.contextmanager
def served(folder: str, latency_ms: float = 0, rate: float = 0) -> Iterator[str]:
    """Runs a server of the folder's files in a process. Yields its URL."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(
        target=_serve, args=(there, folder, latency_ms, rate), daemon=True
    )
    server.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        server.terminate()
        server.join()


def ask(base: str, path: str) -> bytes:
    with urllib.request.urlopen(base + path) as answer:
        return bytes(answer.read())


def counts(base: str) -> tuple[int, int]:
    """Returns the requests and bytes that the server answered since the last call."""
    requests, size = json.loads(ask(base, "/count"))
    return requests, size
