"""shardwise.ray.index(): an index whose parts are built by tasks of a cluster."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from ..arguments import columns_of, paths_of, refuse, whole_number
from ..building import index as build
from ..building import merge
from ..opening import _absolute
from ..records import BuildReport
from .spec import cluster_cpus, local_path, naming_the_node


def _build_part(path: str, sources: list[str], part: tuple[int, int], content: Any) -> BuildReport:
    with naming_the_node():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return build(path, *sources, part=part, **content)


class Parts:
    """The parts of an index: tasks build them, the driver merges them. Options as index()."""

    def __init__(self, output: str, parts: int | None, content: dict[str, Any]) -> None:
        count = cluster_cpus() if parts is None else parts
        self.paths = [f"{output}.part-{i}-of-{count}" for i in range(1, count + 1)]
        self._content = content | {"threads": 0}

    def build(self, sources: list[str], options: dict[str, Any]) -> int:
        """Builds each part in a task with these options of Ray; returns the samples of all
        parts."""
        task = ray.remote(_build_part).options(**({"scheduling_strategy": "SPREAD"} | options))
        reports: list[BuildReport] = ray.get(
            [task.remote(path, sources, part, self._content) for path, part in self._numbered()]
        )
        return sum(report.num_samples for report in reports)

    def merge(self, output: str) -> BuildReport:
        """Merges the parts into the index."""
        return merge(output, *self.paths)

    def remove(self) -> None:
        """Removes the files of the parts."""
        for part in self.paths:
            for path in glob.glob(glob.escape(part) + "*"):
                os.unlink(path)

    def _numbered(self) -> list[tuple[str, tuple[int, int]]]:
        return [(path, (i, len(self.paths))) for i, path in enumerate(self.paths, start=1)]


def index(
    output: str | os.PathLike[str],
    *sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
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

    output, sources: on a file system that all nodes share, at the same paths; sources may be URLs.
        Shards are not checked against counts of wids descriptors.
    parts: number of tasks, each building one part; by default the cluster's number of CPUs. The
        merged index has the table of a single build, byte for byte, for any number.
    columns, hashes, unique_keys, on_bad, drop_missing: as for shardwise.index().
    max_retries: how often the part of a dead worker is built again; the build continues where that
        worker stopped. ray_remote_args: options of the tasks, as for ray.remote().

    Cost: one CPU and one thread per task; the driver merges, and reads no shard. Raises what
    shardwise.index() raises, with the node's name. Then finished parts remain beside the output,
    and the next call reuses them.
    """
    output = local_path("output", output)
    named = [_absolute(source) for source in paths_of(sources)]
    if parts is not None and whole_number("parts", parts) < 1:
        refuse("parts", parts, "give a number of tasks, at least 1")
    content = {
        "columns": columns_of(columns),
        "hashes": hashes,
        "unique_keys": unique_keys,
        "on_bad": on_bad,
        "drop_missing": drop_missing,
    }
    built = Parts(output, parts, content)
    built.build(named, {"max_retries": max_retries} | (ray_remote_args or {}))
    report = built.merge(output)
    built.remove()
    return report
