"""One random item: shardwise.wids compared with wids, and with shardwise's own API.

    python bench/python/random_items.py FOLDER... [--samples 2000] [--rounds 11]

Each FOLDER has tars. All rows read the same random samples and take turns; all shards are open and
in memory. Figures are medians over the rounds, in us per sample, with the first and third quartile.
They are the thread's CPU time, which depends less on other users of the machine. wids is the
package on PyPI, if it can be imported (0.1.11 needs torch). Samples of both are compared first.

"one read" also reads the first field: shardwise.wids copies large fields only then, wids when the
sample is requested. "the copy alone" is bytes() of memoryviews made before. It is the lower bound
of every way that returns bytes, as Python copies them into new memory.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import glob
import io
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import shardwise
from shardwise.wids import ChunkedSampler, ShardListDataset
from tables import Table, write_json


def original(shards: list[dict[str, Any]]) -> Any:
    """Returns the original wids' dataset, which reads shards in place. Returns None without
    wids."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            import wids

            return wids.ShardListDataset(
                shards, lru_size=200, localname=lambda url: url, transformations=[]
            )
    except ImportError as error:
        print(f"  without wids: {error}")
        return None


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two samples are equal. Compares streams by content."""

    def plain(sample: dict[str, Any]) -> dict[str, Any]:
        return {k: v.getvalue() if hasattr(v, "getvalue") else v for k, v in sample.items()}

    return plain(a) == plain(b)


def one_by_one(work: Callable[[int], object]) -> Callable[[list[int]], None]:
    def all_of(numbers: list[int]) -> None:
        for number in numbers:
            work(number)

    return all_of


def us_each(work: Callable[[list[int]], None], numbers: list[int]) -> float:
    begin = time.thread_time_ns()
    work(numbers)
    return (time.thread_time_ns() - begin) / 1000 / len(numbers)


def in_turn(table: Table, rows: Mapping[str, Callable[[], float]], rounds: int) -> Table:
    for _ in range(rounds):
        for name, run in rows.items():
            table.add(name, run())
    return table


def bench_items(folder: str, num_samples: int, rounds: int) -> Table:
    paths = sorted(glob.glob(os.path.join(folder, "*.tar")))
    data = shardwise.open(paths)
    shards = [{"url": s.path, "nsamples": s.num_samples} for s in data.shards]
    successor: Any = ShardListDataset(shards, transformations=[])
    rng = random.Random(1)
    numbers = [rng.randrange(len(data)) for _ in range(num_samples)]
    field = data[numbers[0]].keys()[0]

    def with_view(i: int) -> None:
        data[i][field]

    def and_read(i: int) -> None:
        successor[i]["." + field].read()

    ways: dict[str, Callable[[int], object]] = {}
    wids = original(shards)
    if wids is not None:
        ways["wids: dict of BytesIO"] = wids.__getitem__
        assert all(equal(wids[i], successor[i]) for i in numbers[:100])
    ways["shardwise.wids: dict of BytesIO"] = successor.__getitem__
    ways["shardwise.wids: the same, one read"] = and_read
    views = {i: data[i][field] for i in numbers}
    ways["the copy alone, of one field"] = lambda i: bytes(views[i])
    ways["shardwise: dict of bytes"] = lambda i: data[i].copy()
    ways["shardwise: dict of memoryviews"] = lambda i: data[i].views()
    ways["shardwise: ds[i], one memoryview"] = with_view
    ways["shardwise: ds[i]"] = data.__getitem__

    def in_a_row(numbers: list[int]) -> None:
        for sample in data.samples(numbers):
            sample[field]

    def first_bytes(numbers: list[int]) -> None:
        for sample in data.samples(numbers):
            sample[field][0]

    walks = {name: one_by_one(work) for name, work in ways.items()}
    walks["shardwise: ds.samples(), a memoryview"] = in_a_row
    walks["ds[i], a memoryview, its first byte"] = one_by_one(lambda i: data[i][field][0])
    walks["ds.samples(), the same"] = first_bytes

    size = sum(s.size_bytes for s in data.shards) // len(data)
    for work in walks.values():
        us_each(work, numbers)  # this opens all shards, and reads their bytes into memory
    title = f"one random item, {len(data)} samples of about {size} bytes in {len(paths)} shards"
    rows = {name: functools.partial(us_each, work, numbers) for name, work in walks.items()}
    return in_turn(Table(title, "us", 3), rows, rounds)


def bench_samplers(rounds: int) -> Table:
    length = 200_000

    def us_a_step(sampler: Any) -> float:
        begin = time.thread_time_ns()
        for _ in sampler:
            pass
        return (time.thread_time_ns() - begin) / 1000 / length

    samplers: dict[str, Any] = {}
    try:
        import wids

        samplers["wids: ChunkedSampler"] = wids.ChunkedSampler(range(length), chunksize=1000)
    except ImportError:
        pass
    samplers["shardwise.wids: ChunkedSampler"] = ChunkedSampler(range(length), chunksize=1000)
    samplers["range"] = range(length)
    rows = {name: functools.partial(us_a_step, sampler) for name, sampler in samplers.items()}
    return in_turn(Table(f"one step of a sampler, {length} samples", "us", 3), rows, rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", help="a file for all that was measured")
    args = parser.parse_args()
    tables = [bench_items(folder, args.samples, args.rounds) for folder in args.folders]
    tables.append(bench_samplers(args.rounds))
    for table in tables:
        table.show()
    write_json(args.json, tables)


if __name__ == "__main__":
    main()
