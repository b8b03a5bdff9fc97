"""shardwise.ray.index(): an index whose parts are built by tasks of a cluster."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from ..arguments import columns_of, path_of, refuse, whole_number
from ..building import index as build
from ..building import merge
from ..opening import _absolute
from ..records import BuildReport
from .spec import cluster_cpus, naming_the_node


def _build_part(path: str, sources: list[str], part: tuple[int, int], content: Any) -> None:
    with naming_the_node():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        build(path, *sources, part=part, **content)


def _remove(parts: list[str]) -> None:
    for part in parts:
        for path in glob.glob(glob.escape(part) + "*"):
            os.unlink(path)


def index(
    output: str | os.PathLike[str],
    *sources: str | os.PathLike[str],
    parts: int | None = None,
    columns: Sequence[str] = (),
    hashes: bool = False,
    unique_keys: bool = False,
    on_bad: str | Mapping[str, str] = "error",
    drop_missing: bool = False,
    max_retries: int = 3,
    ray_remote_args: dict[str, Any] | None = None,
) -> BuildReport:
    """Makes the index `output` as shardwise.index() does, by tasks that each scan some shards.

    output, sources: on a file system that all nodes share, under the same paths; or sources are
        URLs. Counts of wids descriptors are not held against the shards.
    parts: tasks, and parts that are merged: by default as many as the cluster has CPUs. The index
        has the table of a single build, byte for byte, however many there are.
    columns, hashes, unique_keys, on_bad, drop_missing: as of shardwise.index().
    max_retries: how often the part of a worker that died is built again: it goes on where that
        one was. ray_remote_args: options of the tasks, as of ray.remote().

    Costs: a CPU and a thread a task; the driver merges, and reads no shard. Raises what
    shardwise.index() raises, with the node's name. Then parts that were built stay beside the
    output, and the next call takes them over.
    """
    output = os.path.abspath(path_of(output))
    named = [_absolute(path_of(source)) for source in sources]
    if parts is None:
        parts = cluster_cpus()
    if whole_number("parts", parts) < 1:
        refuse("parts", parts, "give a number of tasks, 1 or more")
    content = {
        "columns": columns_of(columns),
        "hashes": hashes,
        "unique_keys": unique_keys,
        "on_bad": on_bad,
        "drop_missing": drop_missing,
        "threads": 0,
    }
    options = {"max_retries": max_retries, "scheduling_strategy": "SPREAD"}
    task = ray.remote(_build_part).options(**(options | (ray_remote_args or {})))
    paths = [f"{output}.part-{i}-of-{parts}" for i in range(1, parts + 1)]
    ray.get(
        [
            task.remote(path, named, (i, parts), content)
            for i, path in enumerate(paths, start=1)
        ]
    )
    report = merge(output, *paths)
    _remove(paths)
    return report
