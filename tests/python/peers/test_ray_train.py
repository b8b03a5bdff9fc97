"""ExactDataConfig under TorchTrainer: each rank gets its own samples, also after a worker was
killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import needs
from peer_runs import NUM_SAMPLES
from ray_runs import (
    SHUFFLED,
    fit,
    require_exact,
    require_order,
    three_epochs,
    two_epochs_in_spite_of_an_end,
)

import shardwise
from shardwise import Sampler, errors

needs("ray.train")
needs("torch")

import ray

import shardwise.ray as sr

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytest_plugins = ["ray_runs"]
pytestmark = pytest.mark.usefixtures("cluster")
CPUS = 8
COLUMNS = ["cls", "__index__"]


def test_each_rank_gets_what_the_sampler_says(train: Path, tmp_path: Path) -> None:
    fit(three_epochs, train, tmp_path, 2)
    require_order(train, tmp_path, 2)


def test_a_run_goes_on_with_fewer_workers_after_one_was_killed(
    train: Path, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="(?i)worker|fail"):
        fit(two_epochs_in_spite_of_an_end, train, tmp_path, 3)
    saved = str(tmp_path / "state-3-1-20")
    fit(two_epochs_in_spite_of_an_end, train, tmp_path, 2, resume=saved)
    require_exact(tmp_path, 3, 2)


def test_ray_itself_starts_a_run_again_whose_worker_was_killed(
    train: Path, tmp_path: Path
) -> None:
    fit(two_epochs_in_spite_of_an_end, train, tmp_path, 3, failures=1)
    require_exact(tmp_path, 3, 3)


def test_what_is_not_read_by_shardwise_is_refused() -> None:
    with pytest.raises(errors.Unsupported, match="of one shardwise.ray"):
        sr.ExactDataConfig().configure({"train": ray.data.range(10)}, 2)
    given = sr.ExactDataConfig(datasets_to_split=[]).configure({"eval": ray.data.range(10)}, 2)
    assert sorted(row["id"] for row in given[1]["eval"].iter_rows()) == list(range(10))


def test_what_each_rank_would_do_with_its_own_samples_alone_is_refused(train: Path) -> None:
    data = sr.read(train, order=SHUFFLED, columns=COLUMNS)
    for name, made in {
        "Limit": data.limit(10).map(lambda row: row),  # 10 per rank: more in total
        "RandomShuffle": data.random_shuffle(),
        "Sort": data.sort("cls"),
        "Repartition": data.repartition(3),
    }.items():
        with pytest.raises(errors.Unsupported, match=f"{name} after .*; order samples"):
            sr.ExactDataConfig().configure({"train": made}, 2)
    some = sr.read(shardwise.open(train)[:10], order=SHUFFLED, columns=COLUMNS)
    shards = [given["train"] for given in sr.ExactDataConfig().configure({"train": some}, 2)]
    given = [b["__index__"].tolist() for shard in shards for b in shard.iter_batches(batch_size=5)]
    assert sorted(sum(given, [])) == list(range(10))


def test_a_dataset_that_is_split_is_there(train: Path) -> None:
    data = sr.read(train, columns=COLUMNS)
    config = sr.ExactDataConfig(datasets_to_split=["trian"])
    with pytest.raises(errors.InvalidArgument, match="split=\\['trian'\\]; choose from.*'train'"):
        config.configure({"train": data}, 2)


def test_a_batch_has_rows(train: Path) -> None:
    data = sr.read(train, columns=COLUMNS)
    shard = sr.ExactDataConfig().configure({"train": data}, 2)[0]["train"]
    for size in (0, -1):
        with pytest.raises(errors.InvalidArgument, match=f"not valid: batch_size={size}"):
            next(iter(shard.iter_batches(batch_size=size)))


def test_a_pass_that_was_left_begins_again_and_a_token_stands_where_it_was(train: Path) -> None:
    data = sr.read(train, order=SHUFFLED, columns=COLUMNS)
    shards = [given["train"] for given in sr.ExactDataConfig().configure({"train": data}, 2)]
    ds = shardwise.open(train)
    for shard in shards:
        for batch in shard.iter_batches(batch_size=100):
            if batch["__index__"][-1] == shard.sampler[299]:
                break
        assert shard.epoch == 0
    state = shards[0].state_dict(add_up=lambda words: words)
    assert state["token"] == shards[1].token() == Sampler(ds, SHUFFLED, world_size=6).token(100)
    with pytest.raises(errors.NotExact):
        shards[0].prove(add_up=lambda words: words)
    alone = sr.ExactDataConfig().configure({"train": data}, 1)[0]["train"]
    alone.resume(state["token"])
    rest = [i for batch in alone.iter_batches() for i in batch["__index__"].tolist()]
    assert rest == list(Sampler(ds, SHUFFLED))[600:]
    assert alone.epoch == 1
    older = iter(alone.iter_batches(batch_size=10))
    next(older)
    newer = iter(alone.iter_batches(batch_size=10))
    next(newer)
    next(older)  # continues an abandoned pass
    assert alone.token() == alone.token(1)
    alone.set_epoch(5)
    assert next(iter(alone.iter_rows()))["__index__"] == alone.sampler[0]
    for _ in alone.iter_batches(batch_format="pyarrow"):
        pass
    assert alone.prove() == f"epoch 5: {NUM_SAMPLES:,} samples, each exactly once: proven"


@pytest.mark.parametrize(
    ("where", "workers"), [("sample < 3", 5), ("sample < 1", 2), ("sample < 0", 2)]
)
def test_there_may_be_more_workers_than_samples(train: Path, where: str, workers: int) -> None:
    data = sr.read(train, where=where, order=SHUFFLED, columns=["__index__"])
    given = sr.ExactDataConfig(even=False).configure({"a": data, "b": data}, workers)
    for name in ("a", "b"):  # the same dataset twice; each counts by itself
        shards = [one[name] for one in given]
        for epoch in range(3):
            seen = [row["__index__"] for shard in shards for row in shard.iter_rows()]
            assert sorted(seen) == list(range(len(shards[0].dataset)))
            assert [shard.epoch for shard in shards] == [epoch + 1] * workers
    even = [one["a"] for one in sr.ExactDataConfig().configure({"a": data}, workers)]
    if len(even[0].dataset) > 0:
        with pytest.raises(errors.InvalidArgument, match="same number of batches.*even=False"):
            list(even[-1].iter_batches(batch_size=2))


def test_a_token_is_given_only_where_the_place_is_known(train: Path) -> None:
    data = sr.read(train, order=SHUFFLED, columns=COLUMNS)
    shard = sr.ExactDataConfig().configure({"train": data}, 1)[0]["train"]
    assert shard.token() == shard.token(0)
    with pytest.raises(errors.InvalidArgument, match="leave out local_shuffle_buffer_size"):
        next(iter(shard.iter_batches(batch_size=10, local_shuffle_buffer_size=100)))
    batches = iter(shard.iter_batches(batch_size=None))
    next(batches)
    with pytest.raises(errors.InvalidArgument, match="give batch_size"):
        shard.token()


def test_batches_whose_rows_cannot_be_counted_need_even_false(train: Path) -> None:
    data = sr.read(train, order=SHUFFLED, columns=COLUMNS)

    def batches(config: Any) -> Any:
        shard = config.configure({"train": data}, 1)[0]["train"]
        collate = lambda batch: (batch["__index__"], 0)  # noqa: E731
        return shard.iter_torch_batches(batch_size=100, collate_fn=collate)

    with pytest.raises(errors.InvalidArgument, match=r"tuple.*even=False"):
        next(iter(batches(sr.ExactDataConfig())))
    counts = [len(numbers) for numbers, _ in batches(sr.ExactDataConfig(even=False))]
    assert sum(counts) == NUM_SAMPLES


def test_execution_options_are_for_datasets_that_are_not_split_too() -> None:
    options = ray.data.ExecutionOptions(verbose_progress=False)
    options.resource_limits = options.resource_limits.copy(cpu=3)
    config = sr.ExactDataConfig(datasets_to_split=[], execution_options=options)
    given = config.configure({"eval": ray.data.range(10)}, 2)[1]["eval"]
    assert given.get_context().execution_options.resource_limits.cpu == 3


def test_tasks_of_a_rank_may_be_kept_on_its_node(train: Path) -> None:
    data = sr.read(train, order=SHUFFLED, columns=COLUMNS)
    node = ray.get_runtime_context().get_node_id()
    config = sr.ExactDataConfig(local=True)
    try:
        shard = config.configure({"train": data}, 1, None, [node])[0]["train"]
    except errors.Unsupported as error:  # older versions of Ray
        assert str(error).startswith("local=True needs Ray 2.60 or newer")
        return
    assert [row["__index__"] for row in shard.iter_rows()] == list(
        Sampler(shardwise.open(train), SHUFFLED)
    )
