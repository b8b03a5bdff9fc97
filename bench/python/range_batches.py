"""Samples of remote shards by ranges: batches compared with single requests, and with peers.

    python bench/python/range_batches.py FOLDER [--latency 1 20 80] [--rounds 30]

FOLDER is where the bench writes its shards once (about 400 MB). A server on this machine sends
them. To simulate round trips, it waits before each answer and after each new connection. Rows take
turns with the same random samples:

    one at a time     ``ds[i]``: one request a sample, on one connection
    batch             ``ds.__getitems__(numbers)``
    fsspec            ``cat_file`` of fsspec's HTTPFileSystem; a batch is one ``cat_ranges``
    s3torchconnector  ``get_object`` of its client; a batch with 16 threads

"random" are samples anywhere in the data set. "chunks" are runs of 8 samples at random places, as
an order with chunks makes them. Peers get the offsets from the index; they merge no ranges. Figures
are medians and 99th percentiles in ms, and the requests and bytes that the server got.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import os
import random
import statistics
import tarfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import shardwise

SHARDS, SAMPLES, BATCH, RUN = 16, 256, 64, 8
CONNECTIONS = 16

Reader = Callable[[list[int]], list[bytes]]


def write_shards(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    rand = random.Random(7)
    for shard in range(SHARDS):
        path = f"{folder}/{shard:06}.tar"
        if os.path.exists(path):
            continue
        with tarfile.open(path + ".part", "w") as tar:
            for i in range(SAMPLES):
                member = tarfile.TarInfo(f"{shard * SAMPLES + i:08}.jpg")
                member.size = rand.randrange(50_000, 150_000)
                tar.addfile(member, io.BytesIO(rand.randbytes(member.size)))
        os.rename(path + ".part", path)


class Server:
    """Sends the files of a folder, as /bucket/NAME. ``/count`` returns and resets the counts;
    ``/latency/MS`` sets the latency."""

    def __init__(self, folder: str) -> None:
        self.files = {}
        for name in os.listdir(folder):
            if name.endswith(".tar"):
                with open(f"{folder}/{name}", "rb") as file:
                    self.files[f"/bucket/{name}"] = file.read()
        self.latency = 0.0
        self.requests = self.bytes = 0

    def answer(self, line: str, headers: dict[str, str]) -> tuple[bytes, bytes | memoryview]:
        method, target, _ = line.split(" ")
        path = target.split("?")[0]
        if path == "/count":
            text = json.dumps([self.requests, self.bytes]).encode()
            self.requests = self.bytes = 0
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text), text
        if path.startswith("/latency/"):
            self.latency = float(path[9:]) / 1000
            return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""
        body = self.files.get(path)
        if body is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b""
        status, extra, part = b"200 OK", b"", memoryview(body)
        if "range" in headers:
            first, last = headers["range"].removeprefix("bytes=").split("-")
            begin, end = int(first), min(int(last or len(body)) + 1, len(body))
            status, part = b"206 Partial Content", part[begin:end]
            extra = b"Content-Range: bytes %d-%d/%d\r\n" % (begin, end - 1, len(body))
        self.requests += 1
        head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s" % (status, len(part), extra)
        head += b'Accept-Ranges: bytes\r\nETag: "v1"\r\nContent-Type: application/x-tar\r\n'
        head += b"Last-Modified: Mon, 05 Jan 2026 10:00:00 GMT\r\n\r\n"
        if method == "HEAD":
            part = part[:0]
        self.bytes += len(part)
        return head, part

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.latency)
        try:
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                pairs = (line.split(":", 1) for line in lines[1:] if ":" in line)
                head, body = self.answer(lines[0], {k.lower(): v.strip() for k, v in pairs})
                await asyncio.sleep(self.latency)
                writer.write(head)
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def serve(folder: str, port: Any) -> None:
    async def run() -> None:
        server = await asyncio.start_server(Server(folder).talk, "127.0.0.1", 0, backlog=256)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def ask(base: str, path: str) -> bytes:
    with urllib.request.urlopen(base + path) as answer:
        return bytes(answer.read())


def places(folder: str, base: str) -> list[tuple[str, int, int]]:
    """URL, begin and end of each sample's field."""
    found = []
    for shard in range(SHARDS):
        with tarfile.open(f"{folder}/{shard:06}.tar") as tar:
            for member in tar:
                begin = member.offset_data
                found.append((f"{base}/bucket/{shard:06}.tar", begin, begin + member.size))
    return found


def fsspec_reader(where: list[tuple[str, int, int]]) -> Reader | None:
    try:
        import fsspec

        files = fsspec.filesystem("http")
    except ImportError as error:
        print(f"  without fsspec: {error}")
        return None

    def read(numbers: list[int]) -> list[bytes]:
        if len(numbers) == 1:
            url, begin, end = where[numbers[0]]
            return [files.cat_file(url, start=begin, end=end)]
        urls, begins, ends = zip(*(where[i] for i in numbers), strict=True)
        got: list[bytes] = files.cat_ranges(list(urls), list(begins), list(ends))
        return got

    return read


def s3_reader(base: str, where: list[tuple[str, int, int]]) -> Reader | None:
    try:
        from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client
    except ImportError as error:
        print(f"  without s3torchconnector: {error}")
        return None
    client = MountpointS3Client("us-east-1", unsigned=True, endpoint=base, force_path_style=True)
    pool = ThreadPoolExecutor(CONNECTIONS)

    def one(number: int) -> bytes:
        url, begin, end = where[number]
        key = url.rsplit("/", 1)[1]
        return b"".join(client.get_object("bucket", key, start=begin, end=end))

    def read(numbers: list[int]) -> list[bytes]:
        return [one(numbers[0])] if len(numbers) == 1 else list(pool.map(one, numbers))

    return read


def draw(rand: random.Random, kind: str) -> list[int]:
    total = SHARDS * SAMPLES
    if kind == "one sample":
        return [rand.randrange(total)]
    if kind == "random":
        return rand.sample(range(total), BATCH)
    starts = rand.sample(range(0, total, RUN), BATCH // RUN)
    numbers = [start + i for start in starts for i in range(RUN)]
    rand.shuffle(numbers)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--latency", type=float, nargs="+", default=[1, 20, 80])
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    write_shards(args.folder)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(args.folder, there), daemon=True)
    server.start()
    base = f"http://127.0.0.1:{here.recv()}"
    urls = [f"{base}/bucket/{shard:06}.tar" for shard in range(SHARDS)]
    index = f"{args.folder}/bench.idx"
    if os.path.exists(index):
        os.remove(index)
    shardwise.index(index, urls)
    where = places(args.folder, base)

    def field(sample: shardwise.Sample) -> bytes:
        return bytes(sample["jpg"])

    def one_at_a_time() -> Reader:
        data = shardwise.open(index, access="range")
        return lambda numbers: [field(data[i]) for i in numbers]

    def together() -> Reader:
        data = shardwise.open(index, access="range")
        return lambda numbers: [field(sample) for sample in data.__getitems__(numbers)]

    for latency in args.latency:
        ask(base, f"/latency/{latency}")
        rows: dict[str, Reader | None] = {
            "one at a time": one_at_a_time(),
            "batch": together(),
            "fsspec": fsspec_reader(where),
            "s3torchconnector": s3_reader(base, where),
        }
        for kind in ("one sample", "random", "chunks"):
            rand = random.Random(11)
            times: dict[str, list[float]] = {name: [] for name in rows}
            counts = {name: [0, 0] for name in rows}
            for turn in range(args.rounds + 2):
                numbers = draw(rand, kind)
                results = {}
                for name, read in rows.items():
                    if read is None:
                        continue
                    ask(base, "/count")
                    start = time.perf_counter()
                    results[name] = read(numbers)
                    took = time.perf_counter() - start
                    if turn < 2:  # connections are opened, and headers are checked
                        continue
                    times[name].append(took * 1000)
                    for i, count in enumerate(json.loads(ask(base, "/count"))):
                        counts[name][i] += count
                assert all(got == results["one at a time"] for got in results.values())
            print(f"\n{latency:g} ms, {kind}: {'' if kind == 'one sample' else BATCH}")
            for name, took in times.items():
                if not took:
                    continue
                p99 = statistics.quantiles(took, n=100)[98] if len(took) > 1 else took[0]
                requests, size = (count / args.rounds for count in counts[name])
                ratio = statistics.median(times["one at a time"]) / statistics.median(took)
                print(
                    f"  {name:17} P50 {statistics.median(took):8.1f}  P99 {p99:8.1f}  "
                    f"{requests:6.1f} requests  {size / 1e6:7.2f} MB  {ratio:5.1f} x"
                )
    server.terminate()


if __name__ == "__main__":
    main()
