"""Chains of runs through one epoch: samplers, batches and loaders, with changing numbers of ranks
and batch sizes. Each run continues at the end of the previous one. Together they deliver
each sample once. If batches are to be even, each rank gets the same number."""

from __future__ import annotations

import importlib.util
import itertools
import pickle
import random
from collections import Counter
from typing import Any, NamedTuple

from conftest import FakeRanks

import shardwise
from shardwise import Loader, Order, Sampler, columns, errors, ranks


class Place(NamedTuple):
    """The position at which a run has stopped."""

    token: str | None
    own: list[dict[str, Any]]
    """The states of the ranks; empty for a loader, whose state is the token."""
    are_even: bool
    """True if all ranks had taken equally many samples, so that a state is valid for any number of
    ranks."""
    is_audited: bool
    """True if the token contains the sums of the delivered samples, which a loader requires."""


class Chain:
    def __init__(self, data: Any, order: Order, pick: random.Random) -> None:
        self.data, self.order, self.pick = data, order, pick
        self.seen: Counter[str] = Counter()
        self.delivered: list[int] = []
        self.place = Place(None, [], True, True)

    def run(self, kind: str, world: int, size: int) -> None:
        if kind == "loader" and not self.place.is_audited:
            kind = "core"
        self.seen[kind] += 1
        if not self.place.are_even:
            world = len(self.place.own)
        if kind == "loader":
            self._run_loader(world, size)
        else:
            self._run_walks(kind, world, size)

    def _run_loader(self, world: int, size: int) -> None:
        taken = self.pick.randrange(8)

        def work(rank: ranks.Reducer) -> tuple[list[int], str]:
            made = {"columns": [columns.key()], "order": self.order, "batch_size": size}
            loader = Loader(self.data, ranks=rank, threads=self.pick.choice([0, 1, 3]), **made)
            if self.place.token is not None:
                loader.load_state_dict({"token": self.place.token})
            assert loader.epoch == 0
            left = len(loader)
            walk = iter(loader)
            batches = list(itertools.islice(walk, taken))
            assert len(batches) == min(taken, left)
            assert loader.steps_left == left - len(batches)
            if taken > left:
                assert loader.prove().endswith(", each exactly once: proven")
            numbers = [n for batch in batches for n in batch.samples.tolist()]
            return numbers, loader.state_dict()["token"]

        given = FakeRanks(world).run(work)
        assert len({token for _, token in given}) == 1
        self.delivered += [n for numbers, _ in given for n in numbers]
        self.place = Place(given[0][1], [], True, True)

    def _walks(self, kind: str, world: int, size: int, even: bool) -> list[Any]:
        """Returns for each rank a source of batches, and an iterator at the chain's position."""
        by_token = self.pick.random() < 0.5 if self.place.are_even else False
        token = self.place.token if by_token or not self.place.own else None
        made = []
        for rank in range(world):
            if kind == "core":
                sampler: Any = Sampler(self.data, self.order, rank=rank, world_size=world)
            else:
                import shardwise.torch as st

                sampler = st.DistributedSampler(
                    self.data, self.order, rank=rank, world_size=world
                )
            if token is not None:
                self.seen["tokens"] += 1
                sampler.resume(token)
                sampler = pickle.loads(pickle.dumps(sampler))
            if kind == "core":
                walk = sampler.batches(size, even=even)
            else:
                sampler = st.BatchSampler(sampler, size, even=even)
                walk = iter(sampler)
            if token is None and self.place.own:
                self.seen["states"] += 1
                walk.load_state_dict(pickle.loads(pickle.dumps(self._state_for(rank))))
            made.append((sampler, walk))
        return made

    def _state_for(self, rank: int) -> dict[str, Any]:
        if not self.place.are_even:
            return self.place.own[rank]
        return self.pick.choice(self.place.own)  # Lightning gives one rank's state to all ranks

    def _run_walks(self, kind: str, world: int, size: int) -> None:
        even = self.place.are_even and self.pick.random() < 0.7
        try:
            made = self._walks(kind, world, size, even)
        except errors.InvalidArgument as error:  # one rank would have one batch more
            assert even and "same number of batches" in str(error)
            even, made = False, self._walks(kind, world, size, False)
        taken = [self.pick.randrange(8)] * world
        self.seen["even" if even else "not even"] += 1
        if not even and self.pick.random() < 0.3:
            taken = [self.pick.randrange(8) for _ in taken]
        lists = [list(itertools.islice(walk, n)) for (_, walk), n in zip(made, taken, strict=True)]
        assert all(len(batch) <= size for batches in lists for batch in batches)
        if even:
            assert len({len(batches) for batches in lists}) == 1
        self.delivered += [n for batches in lists for batch in batches for n in batch]
        own = [walk.state_dict() for _, walk in made]
        if even:
            assert len({state["token"] for state in own}) == 1
            self.place = Place(own[0]["token"], own, True, False)
        else:
            self.place = Place(None, own, False, False)
        if all(walk.at_end for _, walk in made):
            assert sorted(self.delivered) == list(range(len(self.data)))


KINDS = ["core", "loader"] + (["torch"] if importlib.util.find_spec("torch") else [])


def orders(pick: random.Random) -> Order:
    kind = pick.choice(["chunked", "sharded", "sequential"])
    options: dict[str, Any] = {} if kind == "sequential" else {"window": pick.choice([1, 3, 64])}
    if kind == "chunked":
        options["chunk_size"] = pick.choice([1, 7, 1000])
    return Order(kind, seed=pick.randrange(9), **options)


def test_runs_of_an_epoch_give_each_sample_once(ds: shardwise.Dataset) -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        pick = random.Random(seed)
        data = ds[: pick.choice([1, 5, 20, 21, 53, 103])]
        chain = Chain(data, orders(pick), pick)
        try:
            while len(chain.delivered) < len(data):
                chain.run(pick.choice(KINDS), pick.randrange(1, 6), pick.randrange(1, 17))
            assert sorted(chain.delivered) == list(range(len(data)))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seen += chain.seen
    wanted = [*KINDS, "even", "not even", "states", "tokens"]
    assert all(seen[what] > 20 for what in wanted), seen
