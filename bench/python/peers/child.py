"""A process that runs the tasks of one peer for side_by_side.py.

    python -m peers.child PEER TASK CORPUS [ARGUMENT...]

CORPUS is a Corpus as JSON. Each answer is a line of JSON; output of packages goes to stderr. After
the first answer, each line on stdin starts a round; the first round also adds up all bytes.
"""

from __future__ import annotations

import collections
import json
import os
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from . import peer_class
from .base import Corpus, Peer, Ranks, Source

Answer = dict[str, Any]
Rounds = Iterator[Answer]


def _added(rows: list[Any]) -> int:
    """Returns the sum of all bytes or pixels."""
    total = 0
    for row in rows:
        array = numpy.frombuffer(row, numpy.uint8) if not hasattr(row, "shape") else row
        total += int(numpy.asarray(array).sum(dtype=numpy.int64))
    return total


def _clock_of(process: int) -> int:
    """Returns the clock of a process's CPU time, computed like clock_getcpuclockid(3)."""
    return (~process << 3) | 2


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and of its workers, running or ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = ended.ru_utime + ended.ru_stime
    for process in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        try:
            if os.getsid(process) == os.getsid(0):
                seconds += time.clock_gettime(_clock_of(process))
        except OSError:
            continue  # the process has just ended
    return seconds


def _measured(work: Callable[[], tuple[int, int]]) -> Answer:
    """Returns rate and CPU time of `work`, which returns its numbers of samples and of bytes."""
    cpu, begin = _cpu_seconds(), time.perf_counter()
    samples, size = work()
    seconds = time.perf_counter() - begin
    used = (_cpu_seconds() - cpu) / samples * 1e6
    return {"samples": samples, "bytes": size, "rate": samples / seconds, "cpu_us": used}


def epochs(peer: Peer) -> Rounds:
    assert peer.epoch is not None
    epoch = peer.epoch()
    samples, total = 0, 0
    for batch in epoch():
        rows = peer.rows(batch)
        samples, total = samples + len(rows), total + _added(rows)
    yield {"samples": samples, "sum": total}

    def one() -> tuple[int, int]:
        samples, size = 0, 0
        for batch in epoch():
            more, bytes_more = peer.tally(batch)
            samples, size = samples + more, size + bytes_more
        return samples, size

    while True:
        yield _measured(one)


def pictures(peer: Peer, side: int) -> Rounds:
    assert peer.pictures is not None
    epoch = peer.pictures(side)
    samples, total, shapes = 0, 0, set()
    for batch in epoch():
        rows = peer.rows(batch)
        samples, total = samples + len(rows), total + _added(rows)
        shapes |= {tuple(row.shape) for row in rows}
    yield {"samples": samples, "sum": total, "shapes": sorted(map(list, shapes))}
    while True:
        yield _measured(lambda: (sum(len(peer.rows(batch)) for batch in epoch()), 0))


def items(peer: Peer, count: int) -> Rounds:
    assert peer.item is not None
    item = peer.item()
    rng = random.Random(1)
    numbers = [rng.randrange(peer.corpus.num_samples) for _ in range(count)]
    yield {"samples": count, "sum": _added([item(i) for i in numbers])}
    while True:
        cpu, begin = time.process_time_ns(), time.perf_counter_ns()
        for i in numbers:
            item(i)
        wall, used = time.perf_counter_ns() - begin, time.process_time_ns() - cpu
        yield {"samples": count, "us": wall / 1000 / count, "cpu_us": used / 1000 / count}


def resumes(peer: Peer) -> Rounds:
    """Measures how a new loader resumes at 90 % of an epoch."""
    assert peer.resumable is not None
    while True:
        made = peer.resumable()
        seen: collections.Counter[int] = collections.Counter()
        taken = 0
        batches = made.batches()
        while taken * 10 < peer.corpus.num_samples * 9:
            rows = peer.rows(next(batches))
            seen.update(hash(bytes(row)) for row in rows)
            taken += len(rows)
        state = made.state()
        del batches
        made.close()
        begin = time.perf_counter()
        rest = made.resumed(state)
        batch = next(rest)
        seconds = time.perf_counter() - begin
        while True:
            seen.update(hash(bytes(row)) for row in peer.rows(batch))
            try:
                batch = next(rest)
            except StopIteration:
                break
        yield {
            "ms": seconds * 1000,
            "missing": peer.corpus.num_samples - len(seen),
            "repeated": sum(seen.values()) - len(seen),
        }


def remote(peer: Peer, source: Source) -> Rounds:
    """Measures epochs from a server, with the package's cache. The first includes the start of the
    loader; ms is its time to the first batch."""
    assert peer.remote is not None
    epoch: Callable[[], Iterator[Any]] | None = None
    while True:
        cpu, begin = _cpu_seconds(), time.monotonic()
        epoch = epoch or peer.remote(source)
        seen: collections.Counter[int] = collections.Counter()
        at = 0.0
        for batch in epoch():
            at = at or time.monotonic()
            seen.update(peer.labels(batch))
        seconds, used = time.monotonic() - begin, _cpu_seconds() - cpu
        samples = sum(seen.values())
        yield {
            "samples": samples,
            "rate": samples / seconds,
            "cpu_us": used / samples * 1e6,
            "ms": (at - begin) * 1000,
            "at": at,
            "missing": peer.corpus.num_samples - len(seen),
            "repeated": samples - len(seen),
        }


def first(peer: Peer) -> Answer:
    """Times a loader's first batch. The packages are already imported."""
    assert peer.epoch is not None
    begin = time.monotonic()
    batches = peer.epoch()()
    samples = len(peer.rows(next(batches)))
    end = time.monotonic()
    return {"ms": (end - begin) * 1000, "at": end, "samples": samples}


def deliver(peer: Peer, ranks: Ranks, batch_size: int) -> Answer:
    """Returns the sample numbers that this rank gets in two epochs, batch by batch."""
    assert peer.deliver is not None
    if peer.needs_group:
        import torch.distributed

        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
    delivered = []
    for epoch in peer.deliver(ranks, batch_size):
        numbers = []
        for batch in epoch:
            rows = peer.rows(batch)
            numbers.append([int.from_bytes(bytes(row)[:8], "little") for row in rows])
        delivered.append(numbers)
    return {"epochs": delivered}


def _rounds(peer: Peer, task: str, arguments: list[str]) -> Rounds:
    if task == "epoch":
        return epochs(peer)
    if task == "pictures":
        return pictures(peer, int(arguments[0]))
    if task == "item":
        return items(peer, int(arguments[0]))
    if task == "remote":
        return remote(peer, Source(**json.loads(arguments[0])))
    return resumes(peer)


_ATTRIBUTES = {"first": "epoch", "resume": "resumable"}


def work(
    name: str, task: str, corpus: Corpus, arguments: list[str], say: Callable[[Answer], None]
) -> None:
    try:
        made = peer_class(name)
        settings = made.remote_settings if corpus.label else made.settings
        about = {"version": made.version(), "settings": settings}
    except ImportError as error:
        return say({"absent": f"cannot be imported: {error}"})
    if task == "about":
        return say(about)
    if task != "prepare" and getattr(made, _ATTRIBUTES.get(task, task)) is None:
        why = made.without.get(task)
        return say(about | {"absent": f"none: {why}" if why else ""})
    peer = made(corpus)
    if task != "deliver":  # otherwise all ranks would prepare at the same time
        peer.prepare()
    if task == "prepare":
        return say(about)
    if task == "first":
        return say(about | first(peer))
    if task == "deliver":
        ranks = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        return say(about | deliver(peer, ranks, int(arguments[0])))
    rounds = _rounds(peer, task, arguments)
    say(about)
    for _ in sys.stdin:
        say(next(rounds))


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(answer: Answer) -> None:
        print(json.dumps(answer), file=out, flush=True)

    name, task, described, *arguments = sys.argv[1:]
    try:
        work(name, task, Corpus(**json.loads(described)), arguments, say)
    except Exception as error:
        import traceback

        traceback.print_exc()
        lines = [line for line in str(error).splitlines() if line.strip()]
        say({"failed": f"{type(error).__name__}: {lines[-1] if lines else ''}"})


if __name__ == "__main__":
    main()
