#!/usr/bin/env python3
"""Makes large sets of real shards, and measures the commands of an index on them.

Each set has --samples samples:

  R  shards of 1,000 samples, with the same keys in each shard
  U  shards of 1,000 samples, with unique keys
  T  shards of 10 samples, with the same keys in each shard

A sample has the fields jpg (100 bytes) and cls. If the file system supports reflinks (XFS or Btrfs,
e.g. on a loop mount), the shards of R and of T are reflinks of one file, so 10^8 samples need a few
GB. Otherwise, and always for U, each sample takes 2 KB.

Prints a Markdown table of CPU seconds (user and system, of all threads), the largest private and
mapped memory, and the bytes that the command wrote.

  bench/index/scale_sets.py --program build/tools/shardwise --folder /big --samples 1000000 --sets RUT
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pathlib
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass

FICLONE = 0x40049409
BLOCK = 512
JPG_BYTES = 100


def header(name: str, size: int) -> bytes:
    """Returns a ustar header."""
    fields = bytearray(BLOCK)

    def put(at: int, text: str) -> None:
        fields[at : at + len(text)] = text.encode()

    put(0, name)
    put(100, "0000644\0" "0001750\0" "0001750\0")
    put(124, f"{size:011o}\0")
    put(136, "00000000000\0")
    put(148, " " * 8)
    put(156, "0")
    put(257, "ustar\00000")
    put(148, f"{sum(fields):06o}\0 ")
    return bytes(fields)


def shard(keys: list[str]) -> bytes:
    parts = []
    for key in keys:
        for field, content in (("jpg", b"\xff" * JPG_BYTES), ("cls", b"7")):
            parts += [header(f"{key}.{field}", len(content)), content.ljust(BLOCK, b"\0")]
    return b"".join(parts) + bytes(2 * BLOCK)


def clone(source: pathlib.Path, target: pathlib.Path) -> bool:
    """Makes a reflink. Returns False if the file system has none."""
    with source.open("rb") as old, target.open("wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            return False
    return True


@dataclass
class Set:
    folder: pathlib.Path
    num_shards: int
    num_samples: int
    is_cloned: bool

    def path(self, number: int) -> pathlib.Path:
        return self.folder / f"{number // 1000:04}" / f"{number:07}.tar"

    @property
    def sources(self) -> str:
        return str(self.folder)


def make_set(kind: str, folder: pathlib.Path, num_samples: int) -> Set:
    per_shard = 10 if kind == "T" else 1000
    made = Set(folder, num_samples // per_shard, num_samples, is_cloned=kind != "U")
    same = shard([f"s{i:05}" for i in range(per_shard)])
    folder.mkdir(parents=True)
    for number in range(made.num_shards):
        path = made.path(number)
        path.parent.mkdir(exist_ok=True)
        if number > 0 and made.is_cloned:
            made.is_cloned = clone(made.path(0), path)
            if made.is_cloned:
                continue
        first = number * per_shard
        keys = [f"u{first + i:09}" for i in range(per_shard)]
        path.write_bytes(shard(keys) if kind == "U" else same)
    return made


@dataclass
class Cost:
    cpu: float
    peak_bytes: int
    written: int


def run(*command: str) -> Cost:
    """Runs a command. The cost's bytes are those that the command passed to write(2) for files."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    io = pathlib.Path(f"/proc/{process.pid}/io").read_text()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}: status {status}")
    written = next(int(line.split()[1]) for line in io.splitlines() if line.startswith("wchar"))
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, written)


def change(made: Set, every: int) -> int:
    """Changes a byte of each `every`-th shard. Returns their number."""
    changed = range(0, made.num_shards, every)
    for number in changed:
        with made.path(number).open("r+b") as file:
            file.seek(BLOCK)
            file.write(b"\xfe")
    return len(changed)


def measure(kind: str, made: Set, program: str, index: pathlib.Path) -> None:
    def row(what: str, cost: Cost, per: str = "") -> None:
        print(
            f"| {kind}, {made.num_samples:.0e} samples | {what} | {cost.cpu:.2f} s | {per} | "
            f"{cost.peak_bytes / 2**20:.0f} MiB | {cost.written / 2**20:.0f} MiB |",
            flush=True,
        )

    def per_shard(cost: Cost) -> str:
        return f"{cost.cpu / made.num_shards * 1e6:.1f} us a shard"

    def per_sample(cost: Cost) -> str:
        return f"{cost.cpu / made.num_samples * 1e6:.2f} us a sample"

    cost = run(program, "index", "-o", str(index), made.sources, "--quiet")
    row("index", cost, per_sample(cost))
    cost = run(program, "info", str(index), "--json")
    row("info", cost)
    cost = run(program, "index", "-o", str(index), made.sources, "--quiet")
    row("update, nothing changed", cost, per_shard(cost))
    count = change(made, 100)
    cost = run(program, "index", "-o", str(index), made.sources, "--quiet")
    row(f"update, {count} shards changed", cost, per_shard(cost))
    cost = run(program, "verify", str(index), "--quiet")
    row("verify", cost, per_sample(cost))
    cost = run(program, "epoch", str(index), "--quiet")
    row("epoch, proven", cost, per_sample(cost))
    sql = "SELECT field, sum(size) FROM members GROUP BY field"
    cost = run(program, "query", str(index), sql)
    row("query, members by field", cost, per_sample(cost))
    table = sum(path.stat().st_size for path in index.parent.glob(index.name + ".*.table"))
    print(f"| {kind}, {made.num_samples:.0e} samples | size of the table | | "
          f"{table / made.num_samples:.1f} bytes a sample | | {table / 2**20:.0f} MiB |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", required=True, help="the program shardwise")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="a new folder")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--sets", default="RUT")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("| set | command | CPU | | peak memory | written |\n|---|---|---|---|---|---|")
    for kind in options.sets:
        folder = options.folder / kind
        made = make_set(kind, folder / "shards", options.samples)
        if kind != "U" and not made.is_cloned:
            print(f"{kind}: the file system has no reflinks; shards are copies", file=sys.stderr)
        measure(kind, made, options.program, folder / "set.idx")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
