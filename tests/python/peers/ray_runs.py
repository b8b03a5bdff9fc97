"""Shared by the tests with Ray: a pytest plugin with fixtures."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from peer_runs import NUM_SAMPLES, make_index, prove_exact

import shardwise
from shardwise import Order, Sampler

# Set before importing ray: send no usage statistics.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


SHUFFLED = Order(seed=17, chunk_size=50)


def shut_down() -> None:
    """Shuts Ray down once no execution runs: in Ray 2.51, an executing thread that calls Ray
    afterwards ends the process."""
    import ray

    gc.collect()  # ends executions of abandoned iterators
    for thread in threading.enumerate():
        if thread.name.startswith("StreamingExecutor"):
            thread.join(30)
    ray.shutdown()


@contextmanager
def running_ray(cpus: int = 2, **options: Any) -> Iterator[None]:
    """Starts a small Ray on this machine only."""
    import ray

    ray.init(
        address="local",  # not another Ray that runs on this machine
        num_cpus=cpus,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        **options,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        shut_down()


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """A Ray for all tests of a file. The file's CPUS is its number of CPUs."""
    with running_ray(cpus=getattr(request.module, "CPUS", 2)):
        yield


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that tests must not change."""
    return make_index(tmp_path_factory.mktemp("data"))


def numbers_of(data: Any) -> list[int]:
    """Returns the samples' numbers in the order of the rows."""
    batches = data.select_columns(["__index__"]).iter_batches(batch_size=1000)
    return [number for batch in batches for number in batch["__index__"].tolist()]


# Ray Train.


def as_numbers(batch: dict[str, Any]) -> dict[str, Any]:
    """Converts rows to the model's input, in tasks of Ray Data."""
    batch["cls"] = [int(text) for text in batch["cls"]]
    return batch


def fit(loop: Any, index: Path, out: Path, workers: Any, failures: int = 0, **others: Any) -> Any:
    """Runs a training loop over the shuffled samples. workers: their number, or its (minimum,
    maximum). failures: how often Ray restarts the run after a failure. others: the loop's config,
    and the resources of a worker."""
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    import shardwise.ray as sr

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    columns = ["cls", "__index__"]
    data = sr.read(index, order=SHUFFLED, columns=columns).map_batches(as_numbers)
    resources = others.pop("resources", {"CPU": 1})
    trainer = TorchTrainer(
        loop,
        train_loop_config={"out": str(out), "resume": None, "end": "kill"} | others,
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker=resources),
        datasets={"train": data},
        dataset_config=sr.ExactDataConfig(),
        run_config=RunConfig(
            name=f"run-{workers}",
            storage_path=str(out / "storage"),
            failure_config=FailureConfig(max_failures=failures),
        ),
    )
    return trainer.fit()


def three_epochs(config: dict[str, Any]) -> None:
    """Trains three epochs. Writes one file with the samples of each rank by epoch, and one with the
    proofs and the numbers of batches."""
    import ray.train

    shard: Any = ray.train.get_dataset_shard("train")
    seen: dict[int, list[int]] = {}
    proofs, batches = [], []
    next(iter(shard.iter_rows()))  # peeking at the data does not advance the epoch
    for epoch in range(3):
        assert shard.epoch == epoch
        batches.append(0)
        for batch in shard.iter_torch_batches(batch_size=10):
            assert batch["cls"].tolist() == batch["__index__"].tolist()
            seen.setdefault(epoch, []).extend(batch["__index__"].tolist())
            batches[-1] += 1
        proofs.append(shard.prove())
    rank = ray.train.get_context().get_world_rank()
    Path(config["out"], f"seen-{rank}.json").write_text(json.dumps(seen))
    Path(config["out"], f"rest-{rank}.json").write_text(json.dumps([proofs, batches]))


def require_order(index: Path, out: Path, workers: int) -> None:
    """Checks that three_epochs() gave each rank the sampler's samples, and all ranks the same
    number of batches."""
    prove_exact(index, 3, out)
    data = shardwise.open(index)
    for rank in range(workers):
        seen = json.loads((out / f"seen-{rank}.json").read_text())
        sampler = Sampler(data, SHUFFLED, rank=rank, world_size=workers)
        assert len(sampler) == (NUM_SAMPLES + workers - 1 - rank) // workers
        for epoch in range(3):
            sampler.set_epoch(epoch)
            assert seen[str(epoch)] == list(sampler)
        proofs, batches = json.loads((out / f"rest-{rank}.json").read_text())
        assert proofs == [
            f"epoch {e}: {NUM_SAMPLES:,} samples, each exactly once: proven" for e in range(3)
        ]
        # If one rank has one more sample, other ranks split off their last sample as a batch.
        most = -(-NUM_SAMPLES // workers)
        assert batches == [-(-most // 10)] * 3


def two_epochs_in_spite_of_an_end(config: dict[str, Any]) -> None:
    """Saves a checkpoint every 20 batches. In the second epoch a worker ends once: the last rank is
    killed, or a node is removed. Each checkpoint, and the file seen.json at the end, also contains
    the samples that all ranks have received so far, by epoch."""
    import ray
    import torch.distributed as dist
    from ray.train import Checkpoint

    out = Path(config["out"])
    shard: Any = ray.train.get_dataset_shard("train")
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    seen: list[list[int]] = [[], []]
    folder = config["resume"]
    begun = ray.train.get_checkpoint()
    if begun is not None:
        folder = begun.path
    if folder is not None:
        state = json.loads(Path(folder, "state.json").read_text())
        shard.load_state_dict(state["shard"])
        if rank == 0:
            seen = state["seen"]

    def seen_by_all() -> list[list[int]]:
        given: list[Any] = [None] * world_size
        dist.all_gather_object(given, seen)
        return [sum((one[epoch] for one in given), []) for epoch in range(2)]

    def goes_now() -> bool:
        if config["end"] == "kill":
            return rank == world_size - 1
        return "goes" in ray.get_runtime_context().get_node_labels()

    while shard.epoch < 2:
        epoch = shard.epoch
        for done, batch in enumerate(shard.iter_torch_batches(batch_size=16), start=1):
            assert batch["cls"].tolist() == batch["__index__"].tolist()
            seen[epoch] += batch["__index__"].tolist()
            if (epoch, done) == (1, 25) and goes_now() and not (out / "ended").exists():
                (out / "ended").touch()
                ray.train.get_all_reported_checkpoints()  # wait until Ray has the last checkpoint
                if config["end"] == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                open(out / "started", "w").close()
                open(out / "never").close()  # wait until the node is removed
            if done % 20 == 0:
                state = {"shard": shard.state_dict(), "seen": seen_by_all()}
                made = None
                if rank == 0:
                    folder = out / f"state-{world_size}-{epoch}-{done}"
                    folder.mkdir(exist_ok=True)
                    (folder / "state.json").write_text(json.dumps(state))
                    made = Checkpoint.from_directory(folder)
                ray.train.report({}, checkpoint=made)
        proof = shard.prove()
        if rank == 0:
            with open(out / "proofs.txt", "a") as file:
                file.write(f"{world_size} {proof}\n")
    everything = seen_by_all()
    if rank == 0:
        (out / "seen.json").write_text(json.dumps(everything))


def require_exact(out: Path, *workers: int) -> None:
    """Checks two_epochs_in_spite_of_an_end(): by the proofs and by the recorded samples, each of
    the two epochs had each sample once. workers: the number of workers at the end of each epoch."""
    assert (out / "ended").exists()
    assert (out / "proofs.txt").read_text().splitlines() == [
        f"{number} epoch {epoch}: {NUM_SAMPLES:,} samples, each exactly once: proven"
        for epoch, number in enumerate(workers)
    ]
    for epoch in json.loads((out / "seen.json").read_text()):
        assert sorted(epoch) == list(range(NUM_SAMPLES))
