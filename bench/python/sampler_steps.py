"""A sampler's step in a for loop: shardwise.torch compared with torch, wids, and a bare range().

    python bench/python/sampler_steps.py [--samples 200000] [--rounds 21]

Each row times a whole pass, including iter(); the rows take turns in each round. Figures are
medians over the rounds, in ns per sample, with the first and third quartile. The row of wids
measures the package on PyPI (0.1.11); it is left out if that cannot be imported.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torch.utils.data as peers

import shardwise
import shardwise.torch as ours
from tables import Table, write_json

BATCH = 256


def contestants(size: int) -> dict[str, Any]:
    one: dict[str, Any] = {"rank": 0, "world_size": 1}
    data: Any = range(size)
    chunked = ours.DistributedChunkedSampler(size, **one)
    sequential = ours.SequentialSampler(size, **one)
    all_of_them: dict[str, Any] = {
        "range()": data,
        "shardwise DistributedChunkedSampler": chunked,
        "shardwise SequentialSampler": sequential,
        "torch DistributedSampler": peers.DistributedSampler(data, num_replicas=1, rank=0),
        "torch RandomSampler": peers.RandomSampler(data),
        f"shardwise BatchSampler({BATCH})": ours.BatchSampler(
            ours.DistributedChunkedSampler(size, **one), BATCH
        ),
        f"torch BatchSampler({BATCH}) over RandomSampler": peers.BatchSampler(
            peers.RandomSampler(data), BATCH, drop_last=False
        ),
    }
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            import wids
    except ImportError as error:
        print(f"without wids: {error}")
        return all_of_them
    return all_of_them | {
        "wids ChunkedSampler": wids.ChunkedSampler(data),
        "wids DistributedChunkedSampler": wids.DistributedChunkedSampler(data),
    }


def ns_a_sample(sampler: Iterable[Any], size: int) -> float:
    begin = time.perf_counter_ns()
    for _ in sampler:
        pass
    return (time.perf_counter_ns() - begin) / size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", help="a file for all that was measured")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # each row reads an epoch repeatedly, which gives a warning
    print(
        f"shardwise {shardwise.__version__}, torch {torch.__version__}, Python "
        f"{sys.version.split()[0]}, {options.samples} samples, {options.rounds} rounds"
    )
    samplers = contestants(options.samples)
    table = Table("a step of a sampler", "ns", 1)
    for _ in range(options.rounds):
        for name, sampler in samplers.items():
            table.add(name, ns_a_sample(sampler, options.samples))
    table.show()
    write_json(options.json, [table])


if __name__ == "__main__":
    main()
