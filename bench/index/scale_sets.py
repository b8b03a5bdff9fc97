#!/usr/bin/env python3
"""Makes large sets of real shards, and measures the commands of an index on them.

Each set has --samples samples:

  R  shards of 1,000 samples, with the same keys in each shard
  U  shards of 1,000 samples, with unique keys
  T  shards of 10 samples, with the same keys in each shard

A sample has the fields jpg (100 bytes) and cls. If the file system supports reflinks (XFS or Btrfs,
e.g. on a loop mount), the shards of R and of T are reflinks of one file, so 10^8 samples need a few
GB. Otherwise, and always for U, each sample takes 2 KB.

Each command has a terminal as its standard error. Prints a Markdown table of CPU seconds (user and
system, of all threads), the largest private and mapped memory, the bytes that the command wrote,
and the longest time without output. With --interrupts, runs each command twice more, interrupts it
after 30 and 90 % of its time, and prints the longest time from SIGINT to its end.

  bench/index/scale_sets.py --program BUILD/bin/shardwise --walk BUILD/bench/index/header_walk \
      --folder /big --samples 1000000 --sets RUT
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pathlib
import pty
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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
class Run:
    wall: float
    cpu: float
    peak_bytes: int
    written: int
    """Bytes that the command passed to write(2) for files."""
    silence: float
    """The longest time without output on the terminal, before the interrupt."""
    after_interrupt: float
    """Seconds from the interrupt to the end."""


def run(*command: str, interrupt_after: float | None = None) -> Run:
    """Runs a command with a terminal as its standard error. Interrupts it after some seconds."""
    ours, theirs = pty.openpty()
    start = last = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    silence = 0.0
    interrupted: float | None = None
    said = b""
    while True:
        left = None
        if interrupt_after is not None and interrupted is None:
            left = max(0.0, start + interrupt_after - time.monotonic())
        ready = select.select([ours], [], [], left)[0]
        now = time.monotonic()
        if interrupted is None:
            silence = max(silence, now - last)
        if not ready:
            interrupted = now
            process.send_signal(signal.SIGINT)
            continue
        last = now
        try:
            got = os.read(ours, 65536)
        except OSError:  # the end of a terminal
            got = b""
        if not got:
            break
        said = (said + got)[-2000:]
    os.close(ours)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    end = time.monotonic()
    io = pathlib.Path(f"/proc/{process.pid}/io").read_text()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0 and interrupted is None:
        sys.exit(f"{' '.join(command)}: status {status}: {said.decode()}")
    return Run(
        wall=end - start,
        cpu=used.ru_utime + used.ru_stime,
        peak_bytes=used.ru_maxrss * 1024,
        written=next(int(line.split()[1]) for line in io.splitlines() if line.startswith("wchar")),
        silence=silence,
        after_interrupt=0.0 if interrupted is None else end - interrupted,
    )


def measure(kind: str, made: Set, options: argparse.Namespace, index: pathlib.Path) -> None:
    samples = made.num_samples
    program = options.program

    def row(what: str, per: str, *command: str, before: Callable[[], object] | None = None) -> None:
        """Measures a command. `before` runs before each run of it."""
        prepare = before or (lambda: None)
        prepare()
        cost = run(*command)
        each = {"": "", "shard": f"{cost.cpu / made.num_shards * 1e6:.1f} us a shard",
                "sample": f"{cost.cpu / samples * 1e6:.2f} us a sample"}[per]
        ends = "| "
        if options.interrupts and command[0] == program:
            after = []
            for part in (0.3, 0.9):
                prepare()
                after.append(run(*command, interrupt_after=cost.wall * part).after_interrupt)
            ends = f"| {max(after):.2f} s "
        print(
            f"| {kind}, {samples:.0e} samples | {what} | {cost.cpu:.2f} s | {each} | "
            f"{cost.peak_bytes / 2**20:.0f} MiB | {cost.written / 2**20:.0f} MiB | "
            f"{cost.silence:.1f} s {ends}|",
            flush=True,
        )

    def remove() -> None:
        for path in index.parent.glob(index.name + "*"):
            path.unlink()

    def change_some() -> None:
        for number in range(0, made.num_shards, 100):
            with made.path(number).open("r+b") as file:
                file.seek(BLOCK)
                first = file.read(1)[0]
                file.seek(BLOCK)
                file.write(bytes([first ^ 1]))

    row("walk of the headers, one thread", "sample", options.walk, made.sources)
    build = (program, "index", "-o", str(index), made.sources)
    row("index", "sample", *build, before=remove)
    run(*build)  # completes what was interrupted
    row("info", "", program, "info", str(index), "--json")
    row("update, nothing changed", "shard", *build)
    changed = f"update, {(made.num_shards + 99) // 100} shards changed"
    row(changed, "shard", *build, before=change_some)
    run(*build)  # completes what was interrupted
    row("verify", "sample", program, "verify", str(index))
    row("epoch, proven", "sample", program, "epoch", str(index))
    sql = "SELECT field, sum(size) FROM members GROUP BY field"
    row("query, members by field", "sample", program, "query", str(index), sql)
    half = ("--where", "sample % 2 = 0", "--limit", "1")
    row("order of half of the samples", "sample", program, "order", str(index), *half)
    table = sum(path.stat().st_size for path in index.parent.glob(index.name + ".*.table"))
    print(f"| {kind}, {samples:.0e} samples | size of the table | | "
          f"{table / samples:.1f} bytes a sample | | {table / 2**20:.0f} MiB | | |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", required=True, help="the program shardwise")
    parser.add_argument("--walk", required=True, help="the program header_walk, the limit")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="a new folder")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--sets", default="RUT")
    parser.add_argument("--interrupts", action="store_true", help="interrupt each command, too")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("| set | command | CPU | | peak memory | written | silent | ends after SIGINT |")
    print("|---|---|---|---|---|---|---|---|")
    # A shell starts background jobs with SIGINT ignored, and commands would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for kind in options.sets:
        folder = options.folder / kind
        made = make_set(kind, folder / "shards", options.samples)
        if kind != "U" and not made.is_cloned:
            print(f"{kind}: the file system has no reflinks; shards are copies", file=sys.stderr)
        measure(kind, made, options, folder / "set.idx")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
