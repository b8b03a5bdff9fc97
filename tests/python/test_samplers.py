"""Orders, samplers, audits."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import shardwise
from shardwise import Order, Sampler, errors

KINDS = ["chunked", "sharded", "sequential"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_epochs_are_exact(ds: shardwise.Dataset, kind: str, world_size: int) -> None:
    for epoch in range(3):
        seen: list[int] = []
        audit = shardwise.Audit(Sampler(ds, Order(kind)))
        lengths = []
        for rank in range(world_size):
            sampler = Sampler(ds, Order(kind, seed=3), rank=rank, world_size=world_size)
            sampler.set_epoch(epoch)
            numbers = list(sampler)
            assert len(numbers) == len(sampler)
            assert [sampler[i] for i in range(len(sampler))] == numbers
            assert [i for batch in sampler.batches(4) for i in batch] == numbers
            assert all(len(batch) == 4 for batch in sampler.batches(4, drop_last=True))
            audit.add(numbers)
            lengths.append(len(numbers))
            seen += numbers
        assert sorted(seen) == list(range(103))
        assert max(lengths) - min(lengths) <= 1
        assert audit.prove(sampler) == f"epoch {epoch}: 103 samples, each exactly once: proven"
        audit.add(5)
        with pytest.raises(errors.NotExact, match="1 repeated; repeated: 5"):
            audit.prove(sampler)


def test_words_of_ranks_add_up() -> None:
    words = [0] * 10
    for rank in range(3):
        sampler = Sampler(20, rank=rank, world_size=3)
        audit = shardwise.Audit(sampler)
        audit.add(list(sampler))
        words = [a + b for a, b in zip(words, audit.words(), strict=True)]
    assert "20 samples, each exactly once" in audit.prove(sampler, words)


def test_what_has_a_length_is_enough() -> None:
    assert list(Sampler([0] * 10, Order("sequential"))) == list(range(10))
    assert list(Sampler(0)) == []
    with pytest.raises(ValueError, match="is -1"):
        Sampler(-1)
    with pytest.raises(TypeError):
        Sampler(1.5)
    with pytest.raises(ValueError, match="shards"):
        Sampler(10, Order("sharded"))


def test_options_of_orders() -> None:
    order = Order("chunked", seed=4, chunk_size=10, window=3, tail="drop", skip=[4, 9])
    assert order.options["chunk_size"] == 10
    assert order == pickle.loads(pickle.dumps(order))
    assert order != Order()
    assert Order(**Order("wids", shufflefirst=True).options) == Order("wids", shufflefirst=True)
    assert eval(repr(order), {"shardwise": shardwise}) == order
    with pytest.raises(ValueError, match="'sequential' has no option: 'chunk_size'"):
        Order("sequential", chunk_size=3)
    with pytest.raises(ValueError, match="chunked"):
        Order("nix")
    assert sorted(Sampler(12, Order(skip=[3, 5]))) == [0, 1, 2, 4, 6, 7, 8, 9, 10, 11]


def test_set_epoch_of_its_epoch_keeps_the_place_of_a_token(ds: shardwise.Dataset) -> None:
    token = Sampler(ds, batch_size=10).token(4)
    sampler = Sampler(ds)
    sampler.resume(token)
    rest = list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == rest and len(rest) == 63
    sampler.reset()
    assert len(list(sampler)) == 103
    sampler.resume(token)
    sampler.set_epoch(1)
    assert len(sampler) == 103


def test_a_mixture_is_drawn_from_by_its_weights(ds: shardwise.Dataset) -> None:
    mixed = shardwise.mix([ds[:90], ds[90:]], [0.1, 0.9])
    order = Order(seed=4, chunk_size=7, epoch_size=2000)
    samplers = [Sampler(mixed, order, rank=rank, world_size=2) for rank in range(2)]
    drawn = [n for pair in zip(*samplers) for n in pair]
    assert 150 < sum(n < 90 for n in drawn) < 250
    loader = shardwise.Loader(
        mixed, columns=[shardwise.columns.key()], order=order, batch_size=100, threads=0
    )
    assert drawn == [n for batch in loader for n in batch.samples.tolist()]
    assert samplers[0].fingerprint == Sampler(shardwise.mix([ds[:90], ds[90:]])).fingerprint
    assert samplers[0].fingerprint not in (Sampler(ds).fingerprint, Sampler(103).fingerprint)
    audit = shardwise.Audit(samplers[0])
    audit.add(drawn)
    assert audit.prove(samplers[0]).endswith("drawn from the mixture, as ordered: proven")
    # A sample's number is the one by which it was requested.
    assert [mixed[n].number for n in (0, 90, 102, -1)] == [0, 90, 102, 102]
    assert pickle.loads(pickle.dumps(mixed[95])).number == 95
    assert mixed[95] == ds[95] and mixed[95].dataset[mixed[95].index] == mixed[95]
    assert ds[95].number == ds[95].index == 95 and ds[90:][5].number == 5
    with pytest.raises(errors.InvalidArgument, match="cannot be mixed .*: 'resampled'"):
        Sampler(mixed, Order("resampled"))
    # Without weights, the mixture is like one data set with the shards of both.
    plain = Sampler(shardwise.mix([ds[:90], ds[90:]]), Order("sharded"))
    assert plain.is_exact and sorted(plain) == list(range(103))


def test_tokens_of_other_orders_are_refused(ds: shardwise.Dataset) -> None:
    token = Sampler(ds, Order(seed=1)).token(10)
    with pytest.raises(errors.Mismatch, match="seed 1 in the token, 2 in this run"):
        Sampler(ds, Order(seed=2)).resume(token)
    with pytest.raises(ValueError):
        Sampler(ds).resume("nonsense")
    Sampler(ds, Order(seed=2)).resume(Sampler(ds, Order(seed=1)).token(0), allow_changes=True)


def test_iterators_are_independent() -> None:
    sampler = Sampler(50, Order(seed=2))
    first, second = iter(sampler), iter(sampler)
    a = [next(first) for _ in range(10)]
    b = [next(second) for _ in range(10)]
    assert a == b
    assert first.position == 10
    assert list(copy.copy(sampler)) == list(sampler)
    state = first.state_dict()
    again = iter(Sampler(50, Order(seed=2)))
    again.load_state_dict(state)
    assert list(again) == list(first)


@pytest.mark.parametrize("entry", ["epoch", "position", "rank", "world_size", "replicas"])
@pytest.mark.parametrize("number", [2**70, -1, 1.5, None])
def test_a_number_of_a_state_that_can_be_none_is_named(entry: str, number: Any) -> None:
    at = iter(Sampler(50, Order(seed=2)))
    next(at)
    state = at.state_dict()
    with pytest.raises(errors.InvalidArgument) as raised:
        at.load_state_dict({**state, entry: number})
    said = str(raised.value)
    assert f"entry {entry} is {number}; " in said and "state_dict()" in said
    assert at.state_dict() == state


def test_a_plan_of_what_caches_fetch(ds: shardwise.Dataset) -> None:
    total = sum(shard.size_bytes for shard in ds.shards)
    plan = shardwise.plan(
        ds, Order("sharded", seed=1), nodes=2, cache_bytes=total, world_size=4, epochs=2
    )
    assert (plan.num_shards, plan.total_bytes, len(plan.epochs)) == (4, total, 2)
    assert plan.epochs[0].next_use.fetches <= 8
    assert plan.epochs[1].next_use.fetches == 0
    with pytest.raises(ValueError, match="nodes"):
        shardwise.plan(ds, nodes=3, cache_bytes=total, world_size=4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sampler_pickles_with_where_it_begins(ds: shardwise.Dataset, kind: str) -> None:
    view = ds[:90]
    for data in (ds, view, 57, shardwise.mix([ds, view])):
        own = "chunked" if data == 57 else kind  # a number of samples has no shards
        sampler = Sampler(data, Order(own, seed=3), rank=1, world_size=3, global_batch_size=5)
        sampler.set_epoch(4)
        again = pickle.loads(pickle.dumps(sampler))
        assert type(again) is Sampler
        assert list(again) == list(sampler) != []
        sampler.resume(sampler.token(3))
        again = pickle.loads(pickle.dumps(sampler))
        assert (again.epoch, again.steps, list(again)) == (4, sampler.steps, list(sampler))
        again.set_epoch(5)
        sampler.set_epoch(5)
        assert list(again) == list(sampler)
        assert again.token(2) == sampler.token(2)
    weighted = shardwise.mix([ds, view], weights=[3, 1])
    sampler = Sampler(weighted, Order(kind), batch_size=4)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)
    assert list(pickle.loads(pickle.dumps(sampler.for_rank(0)))) == list(sampler)


def test_a_pickled_sampler_may_stand_at_its_end_and_be_of_a_class_of_yours() -> None:
    sampler = Sampler(10, Order("sequential"), batch_size=10)
    sampler.resume(sampler.token(0))
    again = pickle.loads(pickle.dumps(Own(10, rank=1, world_size=2)))
    assert type(again) is Own
    assert sorted(again) == sorted(Own(10, rank=1, world_size=2))
    it = iter(sampler)
    assert list(it) == list(range(10))
    assert list(copy.deepcopy(sampler)) == list(range(10))


class Own(Sampler):
    """A user's class."""
