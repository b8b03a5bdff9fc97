"""The samplers of shardwise.wids: the order of wids, and improvements over wids."""

from __future__ import annotations

import json
import pickle
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import needs
import shardwise
from shardwise.errors import Mismatch
from shardwise.wids import (
    ChunkedSampler,
    DistributedChunkedSampler,
    DistributedRangedSampler,
    ShardedSampler,
    ShardListDataset,
    ShardListSampler,
)
from shardwise.wids.samplers import (
    iterate_ranges,
)
from wids_support import own_folders, shards  # noqa: F401


def in_python(ranges: list[tuple[int, int]], seed: Any, epoch: int, chunks: bool) -> list[int]:
    """Returns the order that docs/formats/wids-order.md specifies, in plain Python."""
    rng = random.Random(seed + 1289738273 * epoch)
    places = list(range(len(ranges)))
    if chunks:
        rng.shuffle(places)
    order: list[int] = []
    for place in places:
        numbers = list(range(*ranges[place]))
        rng.shuffle(numbers)
        order += numbers
    return order


def test_all_given_orders_of_wids_come_out_bit_for_bit(corpus: Path) -> None:
    cases = json.loads((corpus / "order" / "wids_order_golden.json").read_text())["cases"]
    assert len(cases) >= 50
    for case in cases:
        options = {"seed": case["seed"], "shufflefirst": case["shufflefirst"]}
        sampler: Any
        if case.get("sampler") == "ShardListSampler":
            sampler = ShardListSampler(None, lengths=case["lengths"], **options)
        else:
            sampler = DistributedChunkedSampler(
                range(case["n"]),
                num_replicas=case["world"],
                rank=case["rank"],
                chunksize=case["chunksize"],
                **options,
            )
            assert len(sampler) == case["len"], case
        sampler.set_epoch(case["epoch"])
        assert list(sampler) == case["order"], case
        assert sampler.epoch == case["epoch"] + 1


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**64 + 3, 2**100])
@pytest.mark.parametrize("epoch", [0, 1, 5, 10**9])
def test_any_seed_gives_what_python_would(seed: int, epoch: int) -> None:
    sampler = ChunkedSampler(range(100), chunksize=13, seed=seed)
    sampler.set_epoch(epoch)
    assert list(sampler) == in_python(sampler.ranges, seed, epoch, epoch > 0)


def test_ranges_of_any_kind_are_taken() -> None:
    ranges = [(5, 9), (100, 100), (-3, 2), (2**40, 2**40 + 3)]
    order = list(iterate_ranges(ranges, random.Random(4)))
    assert order == in_python(ranges, 4, 0, True)
    with pytest.raises(shardwise.errors.InvalidArgument, match="just seeded"):
        rng = random.Random(4)
        rng.random()
        iterate_ranges(ranges, rng)


def test_attributes_may_be_changed_between_epochs() -> None:
    sampler = ChunkedSampler(list(range(1000)), chunksize=100)
    assert sampler.ranges[0] == (0, 100) and len(sampler.ranges) == 10
    first = list(sampler)
    assert sampler.epoch == 1
    assert list(sampler) != first
    sampler.epoch = 0
    assert list(sampler) == first
    sampler.set_epoch(0)
    sampler.shufflefirst = True
    assert list(sampler) == in_python(sampler.ranges, 0, 0, True)
    sampler.set_epoch(0)
    sampler.seed = 3
    sampler.ranges = [(0, 3), (10, 14)]
    assert list(sampler) == in_python([(0, 3), (10, 14)], 3, 0, True)
    sampler.shuffle = False
    assert list(sampler) == [0, 1, 2, 10, 11, 12, 13]


def test_an_epoch_that_is_left_early_is_the_same_again() -> None:
    sampler = ChunkedSampler(range(50), chunksize=10)
    first = next(iter(sampler))
    assert sampler.epoch == 0
    assert list(sampler)[0] == first
    assert sampler.epoch == 1


def test_num_samples_is_a_count_or_a_range() -> None:
    assert sorted(ChunkedSampler(range(100), num_samples=30, chunksize=7)) == list(range(30))
    part = ChunkedSampler(range(100), num_samples=(11, 22), chunksize=5)
    assert sorted(part) == list(range(11, 22))
    assert len(part) == 11
    with pytest.raises(shardwise.errors.InvalidArgument, match="chunksize=0"):
        ChunkedSampler(range(10), chunksize=0)


def test_a_shard_list_sampler_keeps_shards_together(shards: list[dict[str, Any]]) -> None:
    sampler = ShardedSampler(ShardListDataset(shards))
    assert sampler.ranges == [(0, 7), (7, 12), (12, 21)]
    assert len(sampler) == 21
    first, second = list(sampler), list(sampler)
    assert sorted(first[:7]) == list(range(7))  # in epoch 0 the shards are in the order of the list
    assert sorted(second) == list(range(21)) and first != second
    assert ShardedSampler is ShardListSampler


def test_a_rank_that_is_given_counts() -> None:
    parts = [
        list(DistributedChunkedSampler(range(100), num_replicas=4, rank=rank, chunksize=10))
        for rank in range(4)
    ]
    assert sorted(parts[0]) == list(range(25))
    assert sorted(sum(parts, [])) == list(range(100))


def test_a_rank_that_there_is_not_is_refused() -> None:
    with pytest.raises(shardwise.errors.InvalidArgument, match="rank=4 .*num_replicas=4"):
        DistributedChunkedSampler(range(10), num_replicas=4, rank=4)
    with pytest.raises(shardwise.errors.InvalidArgument, match="num_replicas"):
        DistributedChunkedSampler(range(10), rank=0)


def test_one_process_without_torch_is_warned() -> None:
    with pytest.warns(UserWarning, match="before torch.distributed is initialized"):
        sampler = DistributedChunkedSampler(range(10))
    assert len(sampler) == 10
    with pytest.warns(UserWarning, match="drop_last"):
        DistributedChunkedSampler(range(10), rank=0, num_replicas=1, drop_last=True)


@pytest.mark.parametrize("world", [1, 3, 8])
def test_exact_gives_each_sample_once_over_all_ranks(
    world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ranks(**options: Any) -> list[ChunkedSampler]:
        return [
            DistributedChunkedSampler(
                range(10), num_replicas=world, rank=rank, chunksize=3, **options
            )
            for rank in range(world)
        ]

    for epoch in (0, 1):
        orders = []
        for sampler in ranks(exact=True):
            sampler.set_epoch(epoch)
            orders.append(list(sampler))
            assert len(sampler) == len(orders[-1])
            assert sampler.epoch == epoch + 1
        assert sorted(sum(orders, [])) == list(range(10))
        assert max(map(len, orders)) - min(map(len, orders)) <= 1
    monkeypatch.setenv("SHARDWISE_WIDS_EXACT", "1")
    assert [len(s) for s in ranks()] == [len(s) for s in ranks(exact=True)]
    monkeypatch.setenv("SHARDWISE_WIDS_EXACT", "0")
    assert {len(s) for s in ranks()} == {-(-10 // world)}


def test_exact_of_a_part_stays_in_it() -> None:
    sampler = ChunkedSampler(range(100), num_samples=(20, 33), chunksize=4, exact=True)
    assert sorted(sampler) == list(range(20, 33))
    ordered = ChunkedSampler(range(100), num_samples=(20, 33), shuffle=False, exact=True)
    assert list(ordered) == list(range(20, 33))


def test_large_chunks_are_warned_of(shards: list[dict[str, Any]]) -> None:
    dataset = ShardListDataset(shards, lru_size=2)
    with pytest.warns(UserWarning, match="3 shards, .*2 shards stay open"):
        ChunkedSampler(dataset, chunksize=21)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ChunkedSampler(dataset, chunksize=6)
        ChunkedSampler(ShardListDataset(shards), chunksize=21)
        ChunkedSampler(range(10**6))


def test_a_ranged_sampler_gives_runs_in_order() -> None:
    samplers = [DistributedRangedSampler(range(11), num_replicas=3, rank=r) for r in range(3)]
    assert [list(s) for s in samplers] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    samplers[1].set_start(2)
    assert list(samplers[1]) == [5]
    assert list(samplers[1]) == [3, 4, 5]
    assert len(samplers[1]) == 3


def test_samplers_are_pickled() -> None:
    for exact in (False, True):
        sampler = ChunkedSampler(range(100), chunksize=7, seed=5, exact=exact)
        sampler.set_epoch(3)
        assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


KINDS: dict[str, Any] = {
    "chunked": lambda: ChunkedSampler(range(53), chunksize=7, seed=3),
    "exact": lambda: ChunkedSampler(range(53), chunksize=7, seed=3, num_samples=(5, 40), exact=True),
    "rank": lambda: DistributedChunkedSampler(
        range(53), chunksize=7, num_replicas=2, rank=1, exact=False
    ),
    "exact rank": lambda: DistributedChunkedSampler(
        range(53), chunksize=7, num_replicas=2, rank=1, exact=True
    ),
    "shards": lambda: ShardListSampler(None, lengths=[9, 20, 24], seed=3),
    "ranged": lambda: DistributedRangedSampler(range(53), num_replicas=2, rank=1),
}


@pytest.mark.parametrize("made", KINDS.values(), ids=KINDS)
def test_a_state_continues_its_own_epoch(made: Any) -> None:
    sampler = made()
    epochs = [list(sampler) for _ in range(4)]
    for given in (0, 1, 20, len(epochs[1])):
        sampler = made()
        list(sampler)
        numbers = iter(sampler)
        assert [next(numbers) for _ in range(given)] == epochs[1][:given]
        state = json.loads(json.dumps(numbers.state_dict()))
        for epoch in (0, 1, 3):  # set by a program before the state is loaded
            again = made()
            again.set_epoch(epoch)
            resumed = iter(again)
            resumed.load_state_dict(state)
            assert list(resumed) == epochs[1][given:]
            at_end = given == len(epochs[1])
            assert list(again) == epochs[3 if at_end and epoch == 3 else 2]


def test_a_state_of_skipped_steps_counts_them() -> None:
    sampler = KINDS["ranged"]()
    sampler.set_start(20)
    numbers = iter(sampler)
    next(numbers)
    again = KINDS["ranged"]()
    resumed = iter(again)
    resumed.load_state_dict(numbers.state_dict())
    assert list(resumed) == list(numbers) and list(again) == list(KINDS["ranged"]())


def test_a_state_of_other_samples_is_refused() -> None:
    state = iter(KINDS["rank"]()).state_dict()
    others = {
        "rank": DistributedChunkedSampler(range(53), chunksize=7, num_replicas=2, rank=0),
        "num_replicas": DistributedChunkedSampler(range(53), chunksize=7, num_replicas=3, rank=1),
        "seed": DistributedChunkedSampler(
            range(53), chunksize=7, num_replicas=2, rank=1, seed=4
        ),
        "range": DistributedChunkedSampler(range(54), chunksize=7, num_replicas=2, rank=1),
        "exact": KINDS["exact rank"](),
    }
    for option, sampler in others.items():
        with pytest.raises(Mismatch, match=f"sampler: {option}="):
            iter(sampler).load_state_dict(state)
        assert sampler.epoch == 0


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stateful_data_loader_continues_a_later_epoch(kind: str, workers: int) -> None:
    stateful = needs("torchdata.stateful_dataloader").StatefulDataLoader

    def made() -> Any:
        sampler = KINDS[kind]()
        return stateful(range(53), batch_size=4, sampler=sampler, num_workers=workers)

    loader = made()
    epochs = [[batch.tolist() for batch in loader] for _ in range(3)]
    loader = made()
    list(loader)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    del batches
    again = made()
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == epochs[1][3:]
    assert [batch.tolist() for batch in again] == epochs[2]


def test_torch_knows_the_sampler_of_a_rank_as_one() -> None:
    torch_data = needs("torch.utils.data")
    sampler = DistributedChunkedSampler(range(20), num_replicas=2, rank=1, chunksize=4)
    assert isinstance(sampler, torch_data.DistributedSampler)
    assert isinstance(sampler, ChunkedSampler)
    assert (sampler.rank, sampler.num_replicas, len(sampler)) == (1, 2, 10)
    assert sorted(sampler) == list(range(10, 20))
    assert sampler.epoch == 1
    sampler.set_epoch(4)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)
