"""Equal numbers of batches on all ranks, states of iterators, and the ranks of launchers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import shardwise
from shardwise import _core
from shardwise.errors import Distributed, InvalidArgument, Mismatch


def sampler(rank: int, world_size: int, samples: int = 2001, **options: Any) -> shardwise.Sampler:
    order = shardwise.Order(seed=3, **options)
    return shardwise.Sampler(samples, order, rank=rank, world_size=world_size)


def test_even_batches_repeat_nothing_and_leave_nothing_out() -> None:
    ranks = [sampler(rank, 2) for rank in range(2)]
    lists = [list(s.batches(10, even=True)) for s in ranks]
    assert [s.num_batches(10, even=True) for s in ranks] == [len(x) for x in lists] == [101, 101]
    assert [s.num_batches(10) for s in ranks] == [101, 100]
    assert [[len(batch) for batch in x[-3:]] for x in lists] == [[10, 10, 1], [10, 9, 1]]
    audit = shardwise.Audit(ranks[0])
    audit.add(itertools.chain.from_iterable(lists[0] + lists[1]))
    assert audit.prove(ranks[0]) == "epoch 0: 2,001 samples, each exactly once: proven"


def test_with_drop_last_all_ranks_stop_at_the_same_batch() -> None:
    for rank in range(2):  # the ranks have 20 and 19 samples
        lists = sampler(rank, 2, samples=39).batches(10, drop_last=True, even=True)
        assert [len(batch) for batch in lists] == [10]
        assert lists.at_end
        assert lists.position == 10


def test_before_the_last_step_no_token_can_stand_where_bytes_are_balanced(
    ds: shardwise.Dataset,
) -> None:
    balanced = shardwise.Order(balance_bytes=True)
    made = shardwise.Sampler(ds, balanced, rank=1, world_size=2, batch_size=17)  # 52 and 51 samples
    assert [len(batch) for batch in made.batches(17, even=True)] == [17, 17, 16, 1]
    for done in (0, 2, 4):
        assert made.token_after_batches(done, 17, even=True)
    with pytest.raises(InvalidArgument, match="balance_bytes.*: epoch 0, after 3 batches; "):
        made.token_after_batches(3, 17, even=True)


def test_a_state_in_the_middle_of_a_balanced_step_is_for_as_many_ranks(
    ds: shardwise.Dataset,
) -> None:
    def walk(ranks: int) -> Any:
        balanced = shardwise.Order(balance_bytes=True)
        return iter(shardwise.Sampler(ds, balanced, rank=0, world_size=ranks, batch_size=8))

    first = walk(2)
    before = list(itertools.islice(first, 11))
    state = first.state_dict()
    again = walk(2)
    again.load_state_dict(state)
    assert before + list(again) == list(walk(2))
    with pytest.raises(Mismatch) as raised:
        walk(3).load_state_dict(state)
    said = str(raised.value)
    assert "within a step: epoch 0; " in said and "same number of ranks" in said


def test_a_state_at_the_end_of_an_epoch_has_nothing_left() -> None:
    walk = iter(sampler(1, 2))
    list(walk)
    for ranks in (2, 3):
        again = iter(sampler(1, ranks))
        again.load_state_dict(walk.state_dict())
        assert list(again) == []


def test_a_state_of_another_order_is_refused_and_changes_nothing() -> None:
    walk = iter(sampler(0, 2, window=3))
    ahead = list(itertools.islice(walk, 5))
    with pytest.raises(Mismatch, match="window 64 in the token, 3 in this run"):
        walk.load_state_dict(iter(sampler(0, 2)).state_dict())
    assert ahead + list(walk) == list(sampler(0, 2, window=3))


def test_batches_of_the_order_of_wids_are_even_only_where_its_ranks_are() -> None:
    uneven = shardwise.Order("wids", chunk_size=10)  # 21 samples on 2 ranks: 11 and 10
    made = [shardwise.Sampler(21, uneven, rank=rank, world_size=2) for rank in range(2)]
    assert [len(s) for s in made] == [11, 10]
    assert [s.num_batches(4, even=True) for s in made] == [3, 3]
    assert [[len(batch) for batch in s.batches(5, even=True)] for s in made] == [
        [5, 5, 1],
        [5, 4, 1],
    ]
    with pytest.raises(InvalidArgument, match="before the last step"):
        made[0].token_after_batches(2, 5, even=True)
    with pytest.raises(InvalidArgument, match="11 samples, .* 10, in batches of 1; .*even=False"):
        made[0].batches(1, even=True)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, (1, 3)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (5, 8)),
    ],
)
def test_ranks_of_launchers(
    variables: dict[str, str], found: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _core.ranks_of_launcher() == found


def test_ranks_that_contradict_each_other_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(Distributed, match="RANK=4 and WORLD_SIZE=4; .*from 0 to"):
        _core.ranks_of_launcher()
