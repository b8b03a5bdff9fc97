"""Means that do not depend on how the ranks share the values."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from conftest import FakeRanks, needs

import shardwise
from shardwise import ExactMean, columns, errors, ranks, sums


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_is_exact_however_the_ranks_share_the_values(seed: int) -> None:
    dice = random.Random(seed)
    values = [math.ldexp(dice.uniform(-1, 1), dice.randint(-300, 300)) for _ in range(300)]
    expected = float(sum(map(Fraction, values)))
    for world_size in (1, 3):
        dice.shuffle(values)
        cuts = sorted(dice.choices(range(len(values)), k=world_size - 1))
        parts = [values[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]

        def run(rank: ranks.Reducer) -> sums.Mean:
            mean = ExactMean()
            mean.add(parts[rank.rank])  # noqa: B023
            return mean.reduce(rank)

        assert FakeRanks(world_size).run(run) == [sums.Mean(expected, 300)] * world_size


def test_values_of_any_type_are_added() -> None:
    torch = needs("torch")
    mean = ExactMean()
    for values in (1, 0.5, True, [1.0, 2.0], np.float32(0.25), np.arange(6).reshape(2, 3)[:, ::2]):
        mean.add(values)
    mean.add(torch.tensor([[0.5], [1.5]], dtype=torch.bfloat16, requires_grad=True))
    mean.add(torch.tensor(3))
    assert mean.count == 13
    assert mean.reduce(None) == sums.Mean(1 + 0.5 + 1 + 3 + 0.25 + 10 + 2 + 3, 13)


def test_what_is_no_number_stays_visible() -> None:
    mean = ExactMean()
    assert math.isnan(mean.reduce(None).value) and mean.reduce(None).count == 0
    mean.add([1.0, math.inf])
    assert mean.reduce(None).value == math.inf and float(mean.reduce(None)) == math.inf
    mean.add(-math.inf)
    assert math.isnan(mean.reduce(None).value)


@pytest.mark.parametrize("values", [1 + 2j, np.array([1j]), "1.5", ["1.5"], np.datetime64("2020")])
def test_what_is_not_real_is_refused(values: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="real numbers"):
        ExactMean().add(values)


def test_a_masked_array_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="compressed"):
        ExactMean().add(np.ma.array([1.0, 2.0], mask=[False, True]))


def test_complex_tensors_are_refused() -> None:
    torch = needs("torch")
    with pytest.raises(errors.InvalidArgument, match="real numbers"):
        ExactMean().add(torch.tensor([1 + 2j]))


def reduced(given: list[dict[str, list[float]]]) -> list[Any]:
    def run(rank: ranks.Reducer) -> Any:
        means = {}
        for name, values in given[rank.rank].items():
            means[name] = ExactMean()
            means[name].add(values)
        return sums.reduce_means(means, rank)

    return FakeRanks(len(given)).run(run)


def test_a_rank_without_samples_gets_the_means_of_the_others() -> None:
    given = [{}, {"loss": [0.5, 1.0], "größe": [2.0]}, {"loss": [], "größe": [4.0]}, {}]
    assert reduced(given) == [{"loss": sums.Mean(1.5, 2), "größe": sums.Mean(6.0, 2)}] * 4
    assert reduced([{}, {}]) == [{}, {}]


@pytest.mark.parametrize("other", ["lost", "a", "less"])
def test_ranks_with_other_names_are_refused(other: str) -> None:
    with pytest.raises(errors.Mismatch, match="different means"):
        reduced([{"loss": [1.0]}, {other: [1.0]}])


def loader_of(ds: shardwise.Dataset, rank: Any = None, **options: Any) -> shardwise.Loader:
    options.setdefault("order", shardwise.Order(seed=1))
    made = [columns.integer("cls")]
    return shardwise.Loader(ds, columns=made, batch_size=16, ranks=rank, **options)


def evaluated(loader: Any, measure: Any = None, rank: Any = None) -> Any:
    evaluating = needs("shardwise.torch")
    count = measure or (lambda batch: {"n": batch["cls"] * 0 + 1})
    return evaluating.evaluate(count, loader, ranks=rank)


def test_an_evaluation_counts_the_whole_epoch(ds: shardwise.Dataset) -> None:
    loader, once = loader_of(ds), {"n": sums.Mean(len(ds), len(ds))}
    loader.next()
    assert evaluated(loader) == once and loader.epoch == 0
    assert evaluated(loader) == once and loader.epoch == 1
    loader.set_epoch(2)
    loader.next()
    resumed = loader_of(ds)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(errors.InvalidArgument, match="after the 1 batches"):
        evaluated(resumed)


def test_an_evaluation_counts_the_samples_of_one_replica(ds: shardwise.Dataset) -> None:
    found = FakeRanks(4).run(lambda rank: evaluated(loader_of(ds, rank, replicas=2), rank=rank))
    assert found == [{"n": sums.Mean(len(ds), len(ds))}] * 4


@pytest.mark.parametrize("tail", ["pad", "drop"])
def test_an_evaluation_refuses_an_order_that_depends_on_the_ranks(
    ds: shardwise.Dataset, tail: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"tail='{tail}'"):
        evaluated(loader_of(ds, order=shardwise.Order(tail=tail)))


@pytest.mark.parametrize(
    ("what", "measure"),
    [
        ("shape \\(\\)", lambda batch: {"loss": batch["cls"].sum()}),
        ("shape \\(\\)", lambda batch: {"loss": 1.5}),
        ("shape \\(16, 3\\)", lambda batch: {"loss": batch["cls"].expand(3, -1).T}),
        ("shape \\(3,\\)", lambda batch: {"loss": [1, 2, 3]}),
        ("numbers by name", lambda batch: None),
        ("other names", lambda batch: {str(batch["cls"].sum()): batch["cls"]}),
    ],
)
def test_a_measure_gives_a_number_for_each_row(
    ds: shardwise.Dataset, what: str, measure: Any
) -> None:
    with pytest.raises(errors.InvalidArgument, match=what):
        evaluated(loader_of(ds), measure)


def test_an_evaluation_needs_a_loader(ds: shardwise.Dataset) -> None:
    with pytest.raises(errors.InvalidArgument, match="shardwise.Loader"):
        evaluated(ds)
