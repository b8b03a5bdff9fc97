"""shardwise.Loader compared with wids in torch's DataLoader and with bare libjpeg-turbo: an epoch.

    python bench/python/loader_epoch.py raw FOLDER [--rounds 7]
    python bench/python/loader_epoch.py jpeg FOLDER [--rounds 7] [--bare IMAGE_LOADER_BENCH]

FOLDER has tars whose samples have jpg and cls. `raw` delivers batches of their bytes, with 2
threads; wids does so with 2 worker processes, if it can be imported (0.1.11 needs torch). `jpeg`
delivers decoded images of one size, with 2 threads. With --bare, the program of bench/loader also
measures libjpeg-turbo alone on the same pictures (SHARDWISE_BENCH_DIR). All shards are in memory,
and the rows take turns. Figures are medians over the rounds, in samples per second, with the first
and third quartile.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import io
import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any, Union

import shardwise
from shardwise import columns
from shardwise.transforms import ImageTransform
from tables import Table, write_json

BATCH = 64


def rate_of(work: Callable[[], int]) -> float:
    """Returns samples per second of `work`, which returns its number of samples."""
    begin = time.perf_counter()
    samples = work()
    return samples / (time.perf_counter() - begin)


def ours(data: shardwise.Dataset, *made: columns.Column) -> Callable[[], int]:
    """Returns a function that runs the loader's next epoch at each call."""
    loader = shardwise.Loader(
        data, columns=list(made), order=shardwise.Order(seed=17), batch_size=BATCH, threads=2
    )

    def epoch() -> int:
        samples = sum(len(batch) for batch in loader)
        assert "each exactly once: proven" in loader.prove()
        return samples

    return epoch


def take_bytes(samples: list[dict[str, Any]]) -> tuple[list[bytes], list[bytes]]:
    """Converts a batch of wids' samples to bytes, the output of our rows."""
    return [s[".jpg"].getvalue() for s in samples], [s[".cls"].getvalue() for s in samples]


def original(data: shardwise.Dataset, workers: int) -> Union[Callable[[], int], None]:
    """Returns a function that runs an epoch of wids in torch's DataLoader. Returns None if one is
    missing."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            import torch
            import wids
    except ImportError as error:
        print(f"without wids: {error}")
        return None
    shards = [{"url": shard.path, "nsamples": shard.num_samples} for shard in data.shards]
    dataset = wids.ShardListDataset(
        shards, lru_size=len(shards), localname=lambda url: url, transformations=[]
    )
    sampler = wids.ChunkedSampler(dataset, num_samples=len(data), shuffle=True)
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=BATCH,
        sampler=sampler,
        num_workers=workers,
        collate_fn=take_bytes,
        persistent_workers=workers > 0,
    )
    return lambda: sum(len(batch[0]) for batch in loader)


def bare(program: str, data_directory: str) -> Callable[[], float]:
    """Returns a function that measures libjpeg-turbo with 2 threads, by the program of
    bench/loader."""

    def run() -> float:
        done = subprocess.run(
            [program, "--benchmark_filter=BM_Images_Bare/.*2(/|$)", "--benchmark_format=json"],
            env={**os.environ, "SHARDWISE_BENCH_DIR": data_directory},
            capture_output=True,
            text=True,
            check=True,
        )
        rows = json.loads(done.stdout)["benchmarks"]
        return float(next(row["items_per_second"] for row in rows if "Bare" in row["name"]))

    return run


def in_turn(rows: dict[str, Callable[[], float]], rounds: int, title: str) -> Table:
    """Returns each row's rates in all rounds except the first, which warms up. The last row is the
    reference."""
    table = Table(title, "samples/s", reference=list(rows)[-1])
    for turn in range(rounds + 1):
        for name, run in rows.items():
            rate = run()
            if turn > 0:
                table.add(name, rate)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["raw", "jpeg"])
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--bare", help="the program image_loader_bench of bench/loader")
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    data = shardwise.open(sorted(glob.glob(os.path.join(options.folder, "*.tar"))))
    rows: dict[str, Callable[[], float]] = {}
    if options.what == "raw":
        epoch = ours(data, columns.bytes("jpg"), columns.bytes("cls"))
        rows["Loader, 2 threads"] = lambda: rate_of(epoch)
        theirs = original(data, 2)
        if theirs is not None:
            rows["wids, DataLoader, 2 workers"] = lambda: rate_of(theirs)
    else:
        whole = ImageTransform(layout="channels_last")
        small = ImageTransform(resize=224)
        images = ours(data, columns.image("jpg", whole))
        resized = ours(data, columns.image("jpg", small))
        rows["Loader, resized, 2 threads"] = lambda: rate_of(resized)
        rows["Loader, whole images, 2 threads"] = lambda: rate_of(images)
        if options.bare:
            rows["bare libjpeg-turbo, 2 threads"] = bare(
                options.bare, os.path.dirname(os.path.abspath(options.folder))
            )
    table = in_turn(rows, options.rounds, f"an epoch, {options.what}; {len(data)} samples")
    table.show()
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
