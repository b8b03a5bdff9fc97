"""Pipelines of webdataset, with its import and with shardwise.webdataset, on 2 workers.

    python bench/python/webdataset_pipelines.py [--samples 2000] [--rounds 5]

The two take turns. Each run prints its best and its median samples per second, and the CPU time of
its processes. The shards are made in a temporary folder: JPEGs of 256 x 256 pixels, and a class.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import statistics
import tempfile
import time
import warnings
from typing import Any

import numpy
import webdataset
from PIL import Image

import shardwise.webdataset
from tables import Table, write_json

PIPELINES = {
    "bytes": lambda ds: ds.to_tuple("jpg", "cls"),
    "rgb8": lambda ds: ds.decode("rgb8").to_tuple("jpg", "cls"),
    "pil": lambda ds: ds.decode("pil").to_tuple("jpg", "cls").map_tuple(lambda im: im.size),
}


def write_shards(folder: str, samples: int) -> str:
    rng = numpy.random.default_rng(1)
    pattern = os.path.join(folder, "train-%06d.tar")
    with shardwise.webdataset.ShardWriter(pattern, maxcount=samples // 4) as sink:
        for i in range(samples):
            coarse = rng.integers(0, 256, (16, 16, 3), dtype=numpy.uint8)
            stream = io.BytesIO()
            Image.fromarray(coarse).resize((256, 256), Image.Resampling.BICUBIC).save(
                stream, "JPEG", quality=90
            )
            sink.write({"__key__": f"{i:06}", "jpg": stream.getvalue(), "cls": i % 10})
    return os.path.join(folder, "train-{000000..000003}.tar")


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run(wds: Any, url: str, pipeline: Any) -> tuple[int, float, float]:
    dataset = pipeline(wds.WebDataset(url, shardshuffle=100).shuffle(1000))
    loader = wds.WebLoader(dataset.batched(32), batch_size=None, num_workers=2)
    begin, begin_cpu = time.perf_counter(), cpu()
    count = sum(len(batch[0]) for batch in loader)
    return count, time.perf_counter() - begin, cpu() - begin_cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        url = write_shards(folder, options.samples)
        tables = []
        for name, pipeline in PIPELINES.items():
            table = Table(f"the pipeline {name}, {options.samples} samples", "samples/s")
            cpus: dict[str, list[float]] = {}
            for _ in range(options.rounds):
                for wds in (webdataset, shardwise.webdataset):
                    count, wall, used = run(wds, url, pipeline)
                    assert count == options.samples
                    table.add(wds.__name__, options.samples / wall)
                    cpus.setdefault(wds.__name__, []).append(used)
            for package, rates in table.rows.items():
                cpu_us = statistics.median(cpus[package]) / options.samples * 1e6
                table.note(package, f"best {max(rates):,.0f}, CPU {cpu_us:,.0f} us a sample")
            table.show()
            tables.append(table)
    write_json(options.json, tables)


if __name__ == "__main__":
    main()
