"""shardwise.ray on two nodes, one of which is removed: the rows stay the same."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import FileHandler, FileServer, in_threads, needs, part_of, write_shards
from peer_runs import make_index
from ray_runs import (
    SHUFFLED,
    fit,
    numbers_of,
    require_exact,
    require_order,
    shut_down,
    three_epochs,
    two_epochs_in_spite_of_an_end,
)

import shardwise
from shardwise import Sampler, errors

needs("ray.data")

import ray
from ray.cluster_utils import Cluster

import shardwise.ray as sr

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

HEAD = {"num_cpus": 1, "include_dashboard": False}


@contextmanager
def two_nodes(folder: Path, first: Any, second: Any) -> Iterator[None]:
    """A cluster whose second node is removed when a task opens the pipe "started" for writing.
    Opening the pipe "never" blocks until the node is removed; the file "gone" exists shortly
    before. The nodes' processes run in the folders "first" and "second"."""
    cluster = Cluster()
    nodes = []
    for name, options in (("first", first), ("second", second | {"labels": {"goes": "yes"}})):
        (folder / name).mkdir()
        with chdir(folder / name):
            nodes.append(cluster.add_node(object_store_memory=100 << 20, **options))
    os.mkfifo(folder / "started")
    os.mkfifo(folder / "never")

    def remove_when_started() -> None:
        open(folder / "started").close()
        (folder / "gone").touch()
        cluster.remove_node(nodes[1], allow_graceful=False)

    threading.Thread(target=remove_when_started, daemon=True).start()
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1 << 20  # small, so that both nodes read
        yield
    finally:
        shut_down()
        cluster.shutdown()


def rows_stay_when_a_node_goes_while_it_reads(tmp_path: Path) -> None:
    train = make_index(tmp_path)
    gone = tmp_path / "gone"

    def wait_on_the_node_that_goes(batch: Any) -> Any:  # Ray runs this in the task that reads
        if "goes" in ray.get_runtime_context().get_node_labels() and not gone.exists():
            open(tmp_path / "started", "w").close()  # removes the node
            open(tmp_path / "never").close()  # blocks until the node is removed
        return batch

    with two_nodes(tmp_path, HEAD, {"num_cpus": 1}):
        data = sr.read(train, order=SHUFFLED, override_num_blocks=12)
        rows = numbers_of(data.map_batches(wait_on_the_node_that_goes))
        assert gone.exists()
        assert rows == list(Sampler(shardwise.open(train), SHUFFLED))
        made = sr.index(tmp_path / "made.idx", tmp_path / "shards", parts=3)
        assert made.fingerprint == shardwise.open(train).fingerprint
        assert numbers_of(sr.read(tmp_path / "made.idx")) == list(range(len(rows)))


def consumers_and_ranks_get_what_the_sampler_says(tmp_path: Path) -> None:
    needs("torch")
    needs("ray.train")
    train, new = make_index(tmp_path), tmp_path / "new"

    def note(batch: Any) -> Any:
        is_second = "goes" in ray.get_runtime_context().get_node_labels()
        (tmp_path / f"read-on-{is_second}").touch()
        return batch

    first = HEAD | {"num_cpus": 2, "resources": {"trainer": 1}}
    with two_nodes(tmp_path, first, {"num_cpus": 2, "resources": {"trainer": 1}}):
        data = sr.read(train, order=SHUFFLED, columns=["__index__"], deal=7, override_num_blocks=28)
        parts = data.map_batches(note).streaming_split(7, equal=False)
        given: list[list[int]] = [[] for _ in parts]

        def consume(rank: int) -> None:
            for batch in parts[rank].iter_batches(batch_size=64):
                given[rank] += batch["__index__"].tolist()

        in_threads(consume, range(7))
        ds = shardwise.open(train)
        assert given == [list(Sampler(ds, SHUFFLED, rank=r, world_size=7)) for r in range(7)]
        assert sorted(sum(given, [])) == list(range(len(ds)))
        data = sr.read(train, order=SHUFFLED, override_num_blocks=9).map_batches(note)
        report = sr.write(data, new, fields=["bin", "cls"], max_bytes=100_000)
        made = sr.index(tmp_path / "new.idx", new, columns=["cls"], hashes=True, parts=3)
        assert made.num_samples == report.num_samples == len(ds)
        assert shardwise.verify(tmp_path / "new.idx", full=True) == []
        again = sr.read(tmp_path / "new.idx", columns=["cls"]).take_all()
        assert [row["cls"] for row in again] == list(Sampler(ds, SHUFFLED))
        fit(three_epochs, train, tmp_path, 2, resources={"CPU": 0, "trainer": 1})  # one per node
    require_order(train, tmp_path, 2)
    assert sorted(path.name for path in tmp_path.glob("read-on-*")) == [
        "read-on-False",
        "read-on-True",
    ]


def training_goes_on_with_fewer_workers_after_a_node_went(tmp_path: Path) -> None:
    needs("torch")
    train_of_ray = needs("ray.train")
    if "Tuple" not in str(train_of_ray.ScalingConfig.__dataclass_fields__["num_workers"].type):
        pytest.skip("needs a Ray that changes the number of workers; skipped because this one does not")
    train = make_index(tmp_path)
    first = HEAD | {"num_cpus": 3, "resources": {"trainer": 2}}
    with two_nodes(tmp_path, first, {"num_cpus": 1, "resources": {"trainer": 1}}):
        fit(
            two_epochs_in_spite_of_an_end,
            train,
            tmp_path,
            (2, 3),
            failures=1,
            resources={"CPU": 0, "trainer": 1},
            end="node",
        )
    require_exact(tmp_path, 3, 2)


WAYS = [
    rows_stay_when_a_node_goes_while_it_reads,
    consumers_and_ranks_get_what_the_sampler_says,
    training_goes_on_with_fewer_workers_after_a_node_went,
]


@pytest.mark.parametrize("way", part_of(WAYS, 1))
def test_on_two_nodes(tmp_path: Path, way: Callable[[Path], None]) -> None:
    way(tmp_path)


class Guarded(FileHandler):
    """Serves files to clients that send the password, and records which files."""

    given: list[str] = []

    def do_HEAD(self) -> None:
        self.answer(super().do_HEAD)

    def do_GET(self) -> None:
        self.given.append(self.path)
        self.answer(super().do_GET)

    def answer(self, answer: Callable[[], None]) -> None:
        if self.headers["Authorization"] == "Bearer sesame":
            answer()
        else:
            self.send_error(401)


def test_each_node_fetches_a_shard_once_also_for_a_worker_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lengths = [400, 501, 600, 500]
    write_shards(tmp_path / "shards", lengths)
    index, old = tmp_path / "train.idx", "http://old.example/data"
    killed, both = tmp_path / "killed", tmp_path / "both"
    os.mkfifo(both)

    def meet_and_end(batch: Any) -> Any:  # Ray runs this in the task that reads
        is_second = "goes" in ray.get_runtime_context().get_node_labels()
        met = tmp_path / ("second-met" if is_second else "first-met")
        if not met.exists():
            met.touch()
            open(both, "w" if is_second else "r").close()  # blocks until the other node reads, too
        if not is_second and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    site = FileServer(tmp_path / "shards", Guarded)
    with site, two_nodes(tmp_path, HEAD, {"num_cpus": 1}):
        cache = shardwise.ShardCache(
            "/proc/self/cwd/cache",  # relative to each node's folder, and to this process's
            http_headers=["Authorization: Bearer sesame"],
            url_base={old: site.url},
        )
        shardwise.index(index, old + "/train-{000000..000003}.tar", cache=cache, threads=0)
        Guarded.given.clear()
        for epoch in range(2):  # the second epoch is read from the caches
            options: Any = {"epoch": epoch, "override_num_blocks": 12, "cache": cache}
            data = sr.read(index, order=SHUFFLED, **options)
            sampler = Sampler(shardwise.open(index, cache=cache), SHUFFLED)
            sampler.set_epoch(epoch)
            assert numbers_of(data.map_batches(meet_and_end)) == list(sampler)
    assert killed.exists()
    names = [f"/train-{number:06}.tar" for number in range(len(lengths))]
    counts = {name: Guarded.given.count(name) for name in names}
    assert sum(counts.values()) == len(Guarded.given)
    assert all(1 <= count <= 2 for count in counts.values()), counts
    for node in ("first", "second"):
        assert list((tmp_path / node / "cache").rglob("*.tar*")), node


def test_a_cache_that_cannot_go_to_other_nodes_is_refused_here(tmp_path: Path) -> None:
    train = make_index(tmp_path)
    cache = shardwise.ShardCache(str(tmp_path / "cache"), resolve=lambda url: url)
    with pytest.raises(errors.Unsupported, match="cannot be pickled"):
        sr.read(train, cache=cache)
