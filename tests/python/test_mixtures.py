"""Mixtures whose weights change: by a schedule, and when a run resumes."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeRanks, write_shards

import shardwise
from shardwise import ByGroup, ByLength, Loader, Order, Sampler, columns, errors, ranks

BLOCK = 256


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[shardwise.Dataset]:
    """Three data sets, of 150, 33 and 17 samples."""
    folder = tmp_path_factory.mktemp("mixtures")
    shardwise.index(folder / "all.idx", write_shards(folder, [80, 120]), columns=["cls"], threads=1)
    ds = shardwise.open(folder / "all.idx")
    return [ds[:150], ds[150:183], ds[183:]]


def run_of(parts: list[shardwise.Dataset], weights: Any, schedule: Any, length: int) -> list[int]:
    """Returns the samples of a run in their order, on one rank."""
    mixed = shardwise.mix(parts, weights, schedule)
    return list(Sampler(mixed, Order(seed=3, chunk_size=10, epoch_size=length)))


def passes_of(parts: list[shardwise.Dataset], run: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yields, for each data set, how many samples the run has from it, and the counts of its rarest
    and its most frequent sample."""
    counts, first = Counter(run), 0
    for part in parts:
        times = [counts[number] for number in range(first, first + len(part))]
        yield sum(times), min(times), max(times)
        first += len(part)


def test_a_schedule_changes_the_shares_and_keeps_the_places(parts: list[Any]) -> None:
    run = run_of(parts, [1, 1, 0], {500: [0, 1, 3], 3000: [8, 1, 1]}, 6 * 1024)
    for end in range(0, len(run) + 1, BLOCK):
        for count, least, most in passes_of(parts, run[:end]):
            assert most - least <= 1, count
    before, middle, after = run[:512], run[512:3072], run[3072:]
    assert [len([n for n in before if n < 150]), len([n for n in before if n >= 183])] == [256, 0]
    assert not [n for n in middle if n < 150]
    assert len([n for n in middle if n >= 183]) == pytest.approx(0.75 * len(middle), abs=3)
    assert len([n for n in after if n < 150]) == pytest.approx(0.8 * len(after), abs=3)


def test_the_progress_of_other_orders(parts: list[Any]) -> None:
    (had,) = shardwise.progress_of(Sampler(parts[1], batch_size=4).token(2))
    assert had == (33, 8, 0, 8)
    assert shardwise.progress_of(Sampler(parts[1], Order("resampled")).token(2)) == []
    loader = Loader(parts[1], columns=[columns.key()], threads=0, ranks=None)
    next(iter(loader))
    assert shardwise.progress_of(loader.state_dict())[0].samples == 32
    with pytest.raises(errors.InvalidArgument, match="state="):
        shardwise.progress_of({"batches": 3})


@pytest.mark.parametrize(
    "weights, schedule, named",
    [
        ([1, 1, 1], [1, 2], "schedule="),
        ([1, 1, 1], {"a": [1, 1, 1]}, "schedule="),
        ([1, 1, 1], {-1: [1, 1, 1]}, "schedule="),
        ([1, 1, 1], {300: "111"}, "schedule="),
        ([1, 1, 1], {300: [1, 1]}, "2 weights for 3 data sets"),
        (None, {300: [1, 1, 1]}, "schedule="),
    ],
)
def test_refuses_a_schedule(parts: list[Any], weights: Any, schedule: Any, named: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=named):
        shardwise.mix(parts, weights, schedule)


def test_refuses_weights_and_positions_that_are_not_valid(parts: list[Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match="position 0"):
        Sampler(shardwise.mix(parts, [1, 1, 1], {0: [1, 1, 1]}))
    with pytest.raises(errors.InvalidArgument, match="from position 512, data set 1"):
        Sampler(shardwise.mix(parts, [1, 1, 1], {300: [1, -1, 1]}))


def test_a_mixture_with_a_schedule_is_pickled(parts: list[Any]) -> None:
    mixed = shardwise.mix(parts, [1, 1, 1], {300: [1, 2, 3]})
    again = pickle.loads(pickle.dumps(mixed))
    assert repr(again) == repr(mixed) and "from position 300" in repr(mixed)
    order = Order(seed=3, chunk_size=10, epoch_size=1000)
    sampler = Sampler(mixed, order, batch_size=10)
    token = sampler.token(20)
    changed = Sampler(shardwise.mix(parts, [0, 1, 1]), order)
    changed.resume(token, allow_changes=True)
    assert list(pickle.loads(pickle.dumps(changed))) == list(changed)
    changed.set_epoch(0)
    changed.reset()
    assert list(pickle.loads(pickle.dumps(changed))) == list(changed)


def test_without_permission_other_weights_are_refused(parts: list[Any]) -> None:
    order = Order(seed=3, epoch_size=1000)
    token = Sampler(shardwise.mix(parts, [1, 1, 1]), order, batch_size=10).token(20)
    other = Sampler(shardwise.mix(parts, [1, 2, 1]), order)
    with pytest.raises(errors.Mismatch, match="position 200 of the run.*allow_changes=True"):
        other.resume(token)
    other.resume(token, allow_changes=True)
    later = other.token(10)
    again = Sampler(shardwise.mix(parts, [1, 2, 1]), order)
    again.resume(later)  # its own weights are those of the token from there on


RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "by length": {"by_length": ByLength(field="bin", max_tokens=300, window=128)},
    "by group": {"by_group": ByGroup("cls % 3", window=128)},
    "by group, smaller": {"by_group": ByGroup("cls % 3", window=128, leftovers="smaller_batch")},
}


class Run:
    """A run in pieces. Each piece has other ranks, and may have other weights."""

    def __init__(self, parts: list[Any], rule: str, seed: int) -> None:
        self.parts, self.rule, self.pick = parts, rule, random.Random(seed)
        self.order = Order(seed=seed, chunk_size=7, window=3, epoch_size=512)
        self.weights = [1.0, 1.0, 1.0]
        self.state: Any = None
        self.proofs = 0
        self.delivered: list[int] = []

    def piece(self) -> None:
        world, size = self.pick.choice([1, 2, 3]), 5 if self.rule != "plain" else self.pick.randint(1, 9)
        changes = self.state is not None and self.pick.random() < 0.6
        if changes:
            self.weights = [self.pick.choice([0.0, 0.3, 2.0]) for _ in self.parts]
            self.weights[self.pick.randrange(3)] = 1.0
        taken, threads = self.pick.randrange(30), self.pick.choice([0, 2])

        def work(rank: ranks.Reducer) -> tuple[list[int], Any, bool]:
            loader = Loader(
                shardwise.mix(self.parts, self.weights),
                columns=[columns.key()],
                order=self.order,
                batch_size=size,
                ranks=rank,
                threads=threads,
                **RULES[self.rule],
            )
            if self.state is not None:
                loader.load_state_dict(self.state, allow_changes=changes)
            left = loader.steps_left
            walk = iter(loader)
            batches = list(itertools.islice(walk, taken))
            if taken > left:
                assert "drawn from the mixture, as ordered: proven" in loader.prove()
            return (
                [n for batch in batches for n in batch.samples.tolist()],
                loader.state_dict(),
                taken > left,
            )

        given = FakeRanks(world).run(work)
        assert len({state["token"] for _, state, _ in given}) == 1
        self.delivered += [n for numbers, _, _ in given for n in numbers]
        self.state = given[0][1]
        self.proofs += given[0][2]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_chains_of_changes_lose_no_place(parts: list[Any], rule: str, seed: int) -> None:
    run = Run(parts, rule, seed)
    while run.proofs < 5:
        run.piece()
    while len(run.delivered) % 512:  # on to the end of an epoch
        run.piece()
    for had, (count, least, most) in zip(
        shardwise.progress_of(run.state), passes_of(parts, run.delivered), strict=True
    ):
        assert had.samples == count
        assert (least, most) == (had.passes, had.passes + (had.remainder > 0))
