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
import os
import random
import statistics
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import shardwise
from corpora import write_tar
from server import BUCKET, ask, counts, served
from tables import Table, write_json

SHARDS, SAMPLES, BATCH, RUN = 16, 256, 64, 8
SIZES = 50_000, 150_000
CONNECTIONS = 16

Reader = Callable[[list[int]], list[bytes]]


def write_shards(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    rand = random.Random(7)
    for shard in range(SHARDS):
        path = f"{folder}/{shard:06}.tar"
        if not os.path.exists(path):
            numbers = range(shard * SAMPLES, (shard + 1) * SAMPLES)
            write_tar(
                path, ((f"{i:08}.jpg", rand.randbytes(rand.randrange(*SIZES))) for i in numbers)
            )


def places(folder: str, base: str) -> list[tuple[str, int, int]]:
    """URL, begin and end of each sample's field."""
    found = []
    for shard in range(SHARDS):
        with tarfile.open(f"{folder}/{shard:06}.tar") as tar:
            for member in tar:
                begin = member.offset_data
                found.append((f"{base}/{BUCKET}/{shard:06}.tar", begin, begin + member.size))
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
        return b"".join(client.get_object(BUCKET, key, start=begin, end=end))

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


def field(sample: shardwise.Sample) -> bytes:
    return bytes(sample["jpg"])


def one_at_a_time(index: str) -> Reader:
    data = shardwise.open(index, access="range")
    return lambda numbers: [field(data[i]) for i in numbers]


def together(index: str) -> Reader:
    data = shardwise.open(index, access="range")
    return lambda numbers: [field(sample) for sample in data.__getitems__(numbers)]


def compared(readers: dict[str, Reader], base: str, kind: str, rounds: int, title: str) -> Table:
    """Returns the times of all readers, with what the server sent to each."""
    rand = random.Random(11)
    table = Table(title, "ms", 1)
    sent = {name: [0, 0] for name in readers}
    for turn in range(rounds + 2):
        numbers = draw(rand, kind)
        results = {}
        for name, read in readers.items():
            counts(base)
            start = time.perf_counter()
            results[name] = read(numbers)
            took = time.perf_counter() - start
            if turn < 2:  # connections are opened, and headers are checked
                continue
            table.add(name, took * 1000)
            sent[name] = [a + b for a, b in zip(sent[name], counts(base))]
        assert all(got == results["one at a time"] for got in results.values())
    for name, times in table.rows.items():
        p99 = statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
        requests, size = (count / rounds for count in sent[name])
        table.note(name, f"P99 {p99:.1f} ms, {requests:.1f} requests, {size / 1e6:.2f} MB")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--latency", type=float, nargs="+", default=[1, 20, 80])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", help="a file for all that was measured")
    args = parser.parse_args()
    write_shards(args.folder)
    tables = []
    with served(args.folder) as base:
        index = f"{args.folder}/bench.idx"
        if os.path.exists(index):
            os.remove(index)
        shardwise.index(index, [f"{base}/{BUCKET}/{shard:06}.tar" for shard in range(SHARDS)])
        where = places(args.folder, base)
        for latency in args.latency:
            ask(base, f"/latency/{latency}")
            rows = {
                "one at a time": one_at_a_time(index),
                "batch": together(index),
                "fsspec": fsspec_reader(where),
                "s3torchconnector": s3_reader(base, where),
            }
            readers = {name: read for name, read in rows.items() if read is not None}
            for kind in ("one sample", "random", "chunks"):
                title = f"{latency:g} ms, {kind}" + ("" if kind == "one sample" else f": {BATCH}")
                tables.append(compared(readers, base, kind, args.rounds, title))
                tables[-1].show()
    write_json(args.json, tables)


if __name__ == "__main__":
    main()
