"""How much of a trainer's rate is left while a loader works beside it.

    python bench/python/trainer_beside.py FOLDER [--images N] [--step-ms 28] [--steps 40]
        [--threads 0 1 2] [--workers 1 2] [--only KIND...] [--rounds 9]

FOLDER has tars of JPEGs (jpg). A step works on one core, for --step-ms on an idle machine: `python`
adds numbers, and `matmul` multiplies matrices (numpy, one thread). Each step takes a batch of
--images pictures, resized to 224 x 224; by default as many as one thread loads in 80 % of a step's
time on this machine, so that a free core can load them. The rows take turns in each round:

    no loading        the steps alone, with one resident batch: the limit
    Loader, N         shardwise.Loader with N threads; 0 means that the trainer makes the batches
    DataLoader, N     torch's DataLoader with N worker processes and Pillow, if torch is installed

`nothing` is a step that takes no time: loading is then the limit, and the rate is that of the
loader. Rates are steps per second, as medians over the rounds. The ratio is the median of the
ratios to the first row in the same round. P50 and P99 are percentiles over all steps of the time
from one batch to the next. The first steps of an epoch, which wait for the first batches, do not count.
"""

from __future__ import annotations

import argparse
import glob
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

for library in ("OMP", "OPENBLAS", "MKL"):  # read when numpy is imported
    os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy as np
import shardwise
from peers.base import SIDE, picture
from shardwise import columns
from shardwise.transforms import ImageTransform
from tables import Table, write_json

FIRST_STEPS = 8

Epoch = Callable[[], Iterable[Any]]
Step = Callable[[], None]


def own(data: shardwise.Dataset, images: int, threads: int) -> Epoch:
    return lambda: shardwise.Loader(
        data,
        columns=[columns.image("jpg", ImageTransform(resize=SIDE))],
        order=shardwise.Order(seed=17),
        batch_size=images,
        threads=threads,
    )


class Pictures:
    """A data set for torch's DataLoader: pictures as uint8 [224, 224, 3]."""

    def __init__(self, data: shardwise.Dataset) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, number: int) -> Any:
        return picture(self._data[number].bytes("jpg"), SIDE)


def data_loader(data: shardwise.Dataset, images: int, workers: int) -> Epoch:
    import torch.utils.data

    return lambda: torch.utils.data.DataLoader(
        Pictures(data),  # type: ignore[arg-type]
        batch_size=images,
        shuffle=True,
        num_workers=workers,
    )


def add_numbers(count: int) -> Step:
    def step() -> None:
        total = 0
        for number in range(count):
            total += number

    return step


def multiply(count: int) -> Step:
    one = np.ones((256, 256), np.float32)

    def step() -> None:
        for _ in range(count):
            one @ one

    return step


def calibrated(make: Callable[[int], Step], step_ms: float) -> Step:
    """Returns a step that takes this CPU time."""
    count = 16
    while True:
        step = make(count)
        step()
        begin = time.thread_time()
        step()
        took_ms = (time.thread_time() - begin) * 1000
        if took_ms > step_ms / 4:
            return make(round(count * step_ms / took_ms))
        count *= 2


def images_in(data: shardwise.Dataset, ms: float) -> int:
    """Returns how many pictures a thread loads in this CPU time."""
    loaded = 0
    # Without threads, a thread of the extension makes the rows, so that Ctrl-C can stop it.
    begin = time.process_time()
    for batch in own(data, 8, 0)():
        loaded += len(batch)
        if loaded >= 256:
            break
    return max(1, round(loaded * ms / ((time.process_time() - begin) * 1000)))


def step_times(epoch: Epoch, step: Step, steps: int) -> list[float]:
    """Returns the seconds of each of `steps` steps, over as many epochs as these need."""
    batches: Iterator[Any] = itertools.chain.from_iterable(epoch() for _ in itertools.count())
    times = []
    for number in range(FIRST_STEPS + steps):
        if number == FIRST_STEPS:
            last = time.perf_counter()
        next(batches)
        step()
        if number >= FIRST_STEPS:
            now = time.perf_counter()
            times.append(now - last)
            last = now
    return times


def measure(title: str, rows: dict[str, Epoch], step: Step, steps: int, rounds: int) -> Table:
    table = Table(title, "steps/s", 1)
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, epoch in rows.items():
            taken = step_times(epoch, step, steps)
            table.add(name, steps / sum(taken))
            times[name] += [seconds * 1000 for seconds in taken]
    for name, all_ms in times.items():
        cuts = statistics.quantiles(all_ms, n=100)
        table.note(name, f"P50 {cuts[49]:.1f} ms, P99 {cuts[98]:.1f} ms")
    table.show()
    return table


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="a loader beside a trainer")
    parser.add_argument("folder")
    parser.add_argument("--images", type=int)
    parser.add_argument("--step-ms", type=float, default=28)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, nargs="+", default=range(cores + 1))
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    kinds = ["python", "matmul", "nothing"]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    data = shardwise.open(sorted(glob.glob(os.path.join(options.folder, "*.tar"))))
    images = options.images or images_in(data, 0.8 * options.step_ms)
    loaders = {f"Loader, {n}": own(data, images, n) for n in options.threads}
    try:
        for count in options.workers:
            loaders[f"DataLoader, {count}"] = data_loader(data, images, count)
    except ImportError as error:
        print(f"without DataLoader: {error}")
    trained: dict[str, Epoch] = {"no loading": lambda: itertools.repeat(None)} | loaders
    tables = []
    for kind in options.only:
        load = os.getloadavg()[0]
        title = f"{kind}: {cores} cores, {images} images a step, load {load:.1f}"
        rows, step = trained, lambda: None
        if kind == "nothing":
            rows = loaders
        else:
            make = add_numbers if kind == "python" else multiply
            step = calibrated(make, options.step_ms)
        tables.append(measure(title, rows, step, options.steps, options.rounds))
    write_json(options.json, tables)


if __name__ == "__main__":
    main()
