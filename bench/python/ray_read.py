"""shardwise.ray.read() compared with Ray's read_webdataset: counting, epochs, one column.

    python bench/python/ray_read.py WORK [--images 2000] [--tiny 100000] [--rounds 3] [--cpus 2]
        [--store-mb 600] [--only TASK...] [--json FILE]

WORK is a folder in which shards are written once: --images samples of 80 KB with a class, and
--tiny samples of 300 bytes. Both read raw bytes, from memory. Ray makes and counts the blocks;
nothing else uses them.

Tasks on the tiny samples: `count`, their number, and `tiny`, an epoch. Tasks on the images:
`epoch`, in order; `shuffled`, in another order (Ray: random_shuffle()); `column`, the classes alone
(Ray: suffixes=["cls"]). Figures are medians over the rounds, with the first and third quartile, and
the median of the ratios round by round. Ours and Ray's take turns.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

import shardwise
import shardwise.ray
from corpora import write_tar
from tables import Table, write_json

ORDER = shardwise.Order(seed=17, chunk_size=100, window=8)


def write_shards(folder: str, samples: int, field_bytes: int, shards: int) -> str:
    """Writes shards of samples with random bytes and a class. Returns the path of the index."""
    index = os.path.join(folder, "all.idx")
    if os.path.exists(index):
        return index
    os.makedirs(folder, exist_ok=True)
    for shard in range(shards):
        members = (
            member
            for i in range(samples * shard // shards, samples * (shard + 1) // shards)
            for member in (
                (f"{i:08}.bin", os.urandom(field_bytes)),
                (f"{i:08}.cls", b"%d" % (i % 10)),
            )
        )
        write_tar(os.path.join(folder, f"{shard:06}.tar"), members)
    shardwise.index(index, folder, columns=["cls"])
    return index


def consumed(data: Any) -> int:
    """Computes all blocks. Returns their number of rows."""
    return sum(bundle.num_rows() for bundle in data.iter_internal_ref_bundles())


def raw(index: str, **options: Any) -> Any:
    """Reads the same shards with Ray's reader, without decoding."""
    shards = [shard.path for shard in shardwise.open(index).shards]
    return ray.data.read_webdataset(shards, decoder=None, **options)


def tasks(images: str, tiny: str) -> dict[str, tuple[Callable[[], int], Callable[[], int]]]:
    """Returns for each task a function of ours and one of Ray's. Both return a number of rows."""
    read = shardwise.ray.read
    fields = ["__key__", "bin", "cls"]
    return {
        "count": (lambda: read(tiny).count(), lambda: raw(tiny).count()),
        "tiny": (lambda: consumed(read(tiny, columns=fields)), lambda: consumed(raw(tiny))),
        "epoch": (lambda: consumed(read(images, columns=fields)), lambda: consumed(raw(images))),
        "shuffled": (
            lambda: consumed(read(images, columns=fields, order=ORDER)),
            lambda: consumed(raw(images).random_shuffle(seed=17)),
        ),
        "column": (
            lambda: consumed(read(images, columns=["cls"])),
            lambda: consumed(raw(images, suffixes=["cls"])),
        ),
    }


def timed(run: Callable[[], int], wanted: int) -> float:
    begin = time.monotonic()
    rows = run()
    seconds = time.monotonic() - begin
    assert rows == wanted, (rows, wanted)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--tiny", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--store-mb", type=int, default=600)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    images = write_shards(os.path.join(options.work, "images"), options.images, 80_000, 8)
    tiny = write_shards(os.path.join(options.work, "tiny"), options.tiny, 300, 8)
    ray.init(
        num_cpus=options.cpus,
        object_store_memory=options.store_mb << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    all_tasks = tasks(images, tiny)
    names = options.only or list(all_tasks)
    sizes = {"count": options.tiny, "tiny": options.tiny}
    about = f"Ray {ray.__version__}, {options.cpus} CPUs, load {os.getloadavg()[0]:.1f}"
    tables = {name: Table(f"{name}; {about}", "s", 2) for name in names}
    for number in range(-1, options.rounds):  # round -1 is not counted: workers start
        for name, table in tables.items():
            for row, run in zip(("shardwise.ray", "Ray"), all_tasks[name], strict=True):
                seconds = timed(run, sizes.get(name, options.images))
                if number >= 0:
                    table.add(row, seconds)
    for table in tables.values():
        table.show()
    write_json(options.json, list(tables.values()))
    ray.shutdown()


if __name__ == "__main__":
    main()
