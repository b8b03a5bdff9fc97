"""shardwise.ray on two nodes, of which one goes: the same rows."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from peer_runs import make_index
from ray_runs import numbers_of

import shardwise
from shardwise import Order, Sampler

pytest.importorskip("ray.data", reason="Ray Data is not installed")

import ray
from ray.cluster_utils import Cluster

import shardwise.ray as sr

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

SHUFFLED = Order(seed=17, chunk_size=50)


def test_a_node_that_goes_while_it_reads_changes_no_row(tmp_path: Path) -> None:
    train = make_index(tmp_path)
    gone = tmp_path / "gone"
    os.mkfifo(tmp_path / "started")
    os.mkfifo(tmp_path / "never")

    def wait_on_the_node_that_goes(batch: Any) -> Any:  # runs in the task that reads
        if "goes" in ray.get_runtime_context().get_node_labels() and not gone.exists():
            open(tmp_path / "started", "w").close()  # as soon as somebody reads there
            open(tmp_path / "never").close()  # until the node is gone
        return batch

    cluster = Cluster()
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20, include_dashboard=False)
    node = cluster.add_node(num_cpus=1, object_store_memory=100 << 20, labels={"goes": "yes"})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        ray.data.DataContext.get_current().enable_progress_bars = False

        def remove_when_started() -> None:
            open(tmp_path / "started").close()
            gone.touch()
            cluster.remove_node(node, allow_graceful=False)

        threading.Thread(target=remove_when_started, daemon=True).start()
        data = sr.read(train, order=SHUFFLED, override_num_blocks=12)
        rows = numbers_of(data.map_batches(wait_on_the_node_that_goes))
        assert gone.exists()
        assert rows == list(Sampler(shardwise.open(train), SHUFFLED))
        made = sr.index(tmp_path / "made.idx", tmp_path / "shards", parts=3)
        assert made.fingerprint == shardwise.open(train).fingerprint
        assert numbers_of(sr.read(tmp_path / "made.idx")) == list(range(len(rows)))
    finally:
        ray.shutdown()
        cluster.shutdown()
