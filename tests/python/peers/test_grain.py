"""shardwise.grain: datasets of Grain whose order is a shardwise.Order."""

from __future__ import annotations

import copy
import pickle
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, write_shard

import shardwise
from shardwise import Order, Sampler
from shardwise.errors import InvalidArgument, Mismatch, OutOfRange

grain = needs("grain")

from shardwise.grain import OrderedIterDataset, OrderedMapDataset, Source  # noqa: E402

ORDER = Order(seed=3, chunk_size=5, window=2)
ALL = Counter(range(103))


def number_of(sample: shardwise.Sample) -> int:
    return sample.integer("cls")


def expected(ds: shardwise.Dataset, epoch: int, rank: int = 0, world_size: int = 1) -> list[int]:
    sampler = Sampler(ds, ORDER, rank=rank, world_size=world_size)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_item_i_is_the_sample_at_position_i(ds: shardwise.Dataset) -> None:
    data = OrderedMapDataset(ds, ORDER, number_of)
    assert len(data) == 103
    assert [data[i] for i in range(103)] == expected(ds, 0)
    assert [data[i] for i in range(103, 206)] == expected(ds, 1)
    assert list(data.repeat(2)) == expected(ds, 0) + expected(ds, 1)
    assert [data[3::7][i] for i in range(3)] == expected(ds, 0)[3::7][:3]
    for again in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert [again[i] for i in range(103)] == expected(ds, 0)
    assert OrderedMapDataset(ds)[0].keys() == {"__key__", "bin", "cls"}


def test_a_member_named_like_the_key_does_not_replace_it(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "odd.tar", [("a", {"__key__": b"x", "txt": b"y"})])
    assert OrderedMapDataset(shardwise.open(path))[0] == {"__key__": "a", "txt": b"y"}


def test_an_empty_dataset_has_no_items(ds: shardwise.Dataset) -> None:
    data = OrderedMapDataset(ds.select([]), ORDER)
    assert len(data) == 0
    with pytest.raises(IndexError, match="no samples"):
        data[0]


def test_ranks_have_each_sample_once_by_threads(ds: shardwise.Dataset) -> None:
    data = OrderedMapDataset(ds, ORDER, number_of)
    options = grain.ReadOptions(num_threads=4, prefetch_buffer_size=16)
    seen = [list(data[rank::3].to_iter_dataset(options)) for rank in range(3)]
    assert Counter(i for one in seen for i in one) == ALL
    assert seen[1] == expected(ds, 0, 1, 3)


@pytest.mark.parametrize("kind", [OrderedMapDataset, OrderedIterDataset])
def test_processes_give_the_order(ds: shardwise.Dataset, kind: Any) -> None:
    data = kind(ds, ORDER, make=number_of)
    data = data if kind is OrderedIterDataset else data.to_iter_dataset()
    data = data.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    first = iter(data)
    begun = [next(first) for _ in range(30)]
    state = first.get_state()
    rest = list(first)
    assert begun + rest == expected(ds, 0)
    again = iter(data)
    again.set_state(state)
    assert list(again) == rest


@pytest.mark.parametrize("seed", range(10))
def test_runs_that_stop_anywhere_go_on_with_other_ranks(ds: shardwise.Dataset, seed: int) -> None:
    dice = random.Random(seed)
    left, state = ALL.copy(), None
    while left:
        world_size = dice.choice([1, 2, 3, 5])
        iterators = [
            iter(OrderedIterDataset(ds, ORDER, rank=rank, world_size=world_size, make=number_of))
            for rank in range(world_size)
        ]
        steps = dice.randrange(1, 40)
        for one in iterators:
            if state is not None:
                one.set_state(state)
            seen = Counter(islice(one, steps))
            assert seen <= left
            left -= seen
        state = pickle.loads(pickle.dumps(iterators[0].get_state()))


def test_a_rank_goes_on_exactly_where_it_stood(ds: shardwise.Dataset) -> None:
    def made() -> Any:
        data = OrderedIterDataset(ds, ORDER, rank=1, world_size=2, epochs=3, make=number_of)
        return data.map(lambda i: i * 2).batch(4, batch_fn=list)

    whole = list(made())
    dice = random.Random(1)
    assert len(whole) == -(-153 // 4)
    for _ in range(10):
        stop = dice.randrange(len(whole))
        first = iter(made())
        assert list(islice(first, stop)) == whole[:stop]
        again = iter(made())
        again.set_state(first.get_state())
        assert list(again) == whole[stop:]


def test_a_state_at_the_end_of_all_epochs_gives_nothing_more(ds: shardwise.Dataset) -> None:
    first = iter(OrderedIterDataset(ds, ORDER, rank=0, world_size=2))
    assert len(list(first)) == 52
    for world_size in (2, 3):
        again = iter(OrderedIterDataset(ds, ORDER, rank=1, world_size=world_size))
        again.set_state(first.get_state())
        assert list(again) == []


def test_the_same_samples_as_a_loader(ds: shardwise.Dataset) -> None:
    column = shardwise.columns.integer("cls")
    loader = shardwise.Loader(ds, columns=[column], order=ORDER, batch_size=8, ranks=None)
    batches = [batch["cls"].tolist() for batch in loader]
    data = OrderedMapDataset(ds, ORDER, number_of)
    assert batches == list(data.batch(8, batch_fn=list))


def test_a_source_is_what_has_a_length_and_items(ds: shardwise.Dataset) -> None:
    source = Source(ds, number_of)
    data = grain.MapDataset.source(source).shuffle(seed=1)
    assert Counter(data[i] for i in range(len(data))) == ALL
    assert repr(source) == repr(pickle.loads(pickle.dumps(source)))
    with pytest.raises(OutOfRange):
        source[103]


def test_what_would_not_be_exact_is_refused(ds: shardwise.Dataset) -> None:
    state = iter(OrderedIterDataset(ds, ORDER)).get_state()
    with pytest.raises(Mismatch, match="another order"):
        iter(OrderedIterDataset(ds, Order(seed=4))).set_state(state)
    with pytest.raises(Mismatch, match="workers"):
        iter(OrderedIterDataset(ds, ORDER)).set_state({**state, "workers": 2})
    with pytest.raises(InvalidArgument, match="sequential_slice"):
        OrderedMapDataset(ds, ORDER).set_slice(slice(0, 1), True)
    with pytest.raises(InvalidArgument):
        OrderedIterDataset(ds, ORDER, rank=2, world_size=2)
    for epochs in (-1, 1.5, "2"):
        with pytest.raises(InvalidArgument, match="epochs="):
            OrderedIterDataset(ds, ORDER, epochs=epochs)
    for wrong in ({}, None, {**state, "more": 1}):
        with pytest.raises(InvalidArgument, match="get_state"):
            iter(OrderedIterDataset(ds, ORDER)).set_state(wrong)
