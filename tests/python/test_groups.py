"""Batches by group: pictures by aspect ratio."""

from __future__ import annotations

import io
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeRanks, write_shard

import shardwise
from shardwise import ByGroup, ByLength, Loader, Order, aspect_groups, columns, errors
from shardwise.transforms import ImageTransform, RandomResizedCrop

NUM_SAMPLES = 300


def picture(height: int, width: int) -> bytes:
    """A PPM image."""
    return b"P6 %d %d 255\n" % (width, height) + bytes(3 * height * width)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> shardwise.Dataset:
    """Pictures of many sizes, with columns of width, height and class."""
    folder = tmp_path_factory.mktemp("pictures")
    dice = random.Random(7)
    samples = []
    for i in range(NUM_SAMPLES):
        height, width = dice.randint(20, 60), dice.randint(20, 60)
        sides = json.dumps({"h": height, "w": width}).encode()
        fields = {"ppm": picture(height, width), "json": sides, "cls": b"%d" % (i % 3)}
        samples.append((f"{i:04}", fields))
    shards = [
        write_shard(folder / f"p-{first}.tar", samples[first : first + 50])
        for first in range(0, NUM_SAMPLES, 50)
    ]
    path = folder / "p.idx"
    shardwise.index(path, shards, columns=["height=json:$.h", "width=json:$.w", "cls"], threads=0)
    return shardwise.open(path)


def loader_of(data: Any, rule: ByGroup, ranks: Any = None, **options: Any) -> Loader:
    image = columns.image("ppm", ImageTransform(resize="group"))
    order = Order(seed=3, chunk_size=10, window=2)
    return Loader(data, columns=[image], order=order, by_group=rule, ranks=ranks, **options)


@pytest.mark.parametrize("leftovers", ["hold_over", "smaller_batch"])
def test_batches_have_the_size_of_their_group(
    pictures: shardwise.Dataset, leftovers: str
) -> None:
    rule = aspect_groups(
        5, pixels=24 * 24, multiple=4, batch_size=8, window=64, leftovers=leftovers
    )
    loader = loader_of(pictures, rule)
    small: dict[str, int] = {}
    seen = []
    for batch in loader:
        assert batch["ppm"].shape[2:] == rule.groups[batch.group][1]  # type: ignore[index]
        assert f"{batch['ppm'].shape[2]}x{batch['ppm'].shape[3]}" == batch.group
        if len(batch) < 8:
            small[batch.group] = small.get(batch.group, 0) + 1
        seen += batch.samples.tolist()
    assert sorted(seen) == list(range(NUM_SAMPLES))
    assert "each exactly once: proven" in loader.prove()
    if leftovers == "hold_over":
        assert set(small.values()) <= {1}
    else:
        assert max(small.values()) > 1


def test_a_run_goes_on_with_other_ranks(pictures: shardwise.Dataset) -> None:
    rule = ByGroup(
        "CASE WHEN width > height THEN 'wide' ELSE 'tall' END",
        {"wide": (7, (16, 24)), "tall": (4, (24, 16))},
        window=50,
    )

    def run(count: int, state: Any, steps: int) -> tuple[list[int], Any, list[int]]:
        def one(rank: Any) -> tuple[list[int], Any, int]:
            loader = loader_of(pictures, rule, rank)
            if state is not None:
                loader.load_state_dict(state)
            said = {step: loader.explain(step) for step in range(min(steps, loader.steps))}
            samples: list[int] = []
            for step, batch in zip(range(steps), loader, strict=False):
                own = [found for found in said[step] if found.rank == rank.rank]
                assert [found.sample for found in own] == batch.samples.tolist()
                assert {found.group for found in own} == ({batch.group} if own else set())
                for found in own[:1]:
                    (when,) = loader.when(found.sample)
                    assert (when.rank, when.step, when.place) == (rank.rank, step, 0)
                samples += batch.samples.tolist()
            if loader.has_ended:
                assert "proven" in loader.prove()
            return samples, loader.state_dict(), loader.steps_left

        results = FakeRanks(count).run(one)
        return sum((r[0] for r in results), []), results[0][1], [r[2] for r in results]

    seen: list[int] = []
    state: Any = None
    for count, steps in [(2, 5), (3, 4), (1, 6), (4, 1000)]:
        samples, state, left = run(count, state, steps)
        assert len(set(left)) == 1
        seen += samples
    assert sorted(seen) == list(range(NUM_SAMPLES))


def test_groups_without_a_list_are_the_values_that_occur(pictures: shardwise.Dataset) -> None:
    loader = Loader(
        pictures, columns=[columns.integer("cls")], batch_size=9, by_group=ByGroup("cls")
    )
    for batch in loader:
        assert set(batch["cls"].tolist()) == {int(batch.group)}
    assert "proven" in loader.prove()


def test_the_keys_of_a_condition_are_bools(pictures: shardwise.Dataset) -> None:
    rule = ByGroup("width > height", {True: (7, (16, 24)), False: (4, (24, 16))})
    assert {batch.group for batch in loader_of(pictures, rule)} == {"0", "1"}


def test_a_single_sample_has_no_size_by_group(pictures: shardwise.Dataset) -> None:
    by_group = [columns.image("ppm", ImageTransform(resize="group"))]
    with pytest.raises(errors.InvalidArgument, match="size by group"):
        pictures[0].decode(by_group)
    with pytest.raises(errors.InvalidArgument, match="size by group"):
        pictures.decoded(by_group)


def test_groups_may_be_sorted_by_length_too(pictures: shardwise.Dataset) -> None:
    loader = Loader(
        pictures,
        columns=[columns.integer("cls"), columns.bytes("ppm")],
        by_group=ByGroup("cls", window=100),
        by_length=ByLength("ppm", window=100, max_tokens=60_000),
    )
    for batch in loader:
        lengths = [len(row) for row in batch.bytes("ppm")]
        assert lengths == sorted(lengths)
        assert len(lengths) == 1 or len(lengths) * max(lengths) <= 60_000
        assert set(batch["cls"].tolist()) == {int(batch.group)}
    assert "proven" in loader.prove()


def test_crops_have_the_ratio_of_their_group(pictures: shardwise.Dataset) -> None:
    crop = ImageTransform(random_resized_crop=RandomResizedCrop("group", (0.5, 1), (1, 1)))
    column = pickle.loads(pickle.dumps(columns.image("ppm", crop)))
    rule = ByGroup("width > height", {0: (8, (32, 16)), 1: (8, (16, 32))})
    for batch in Loader(pictures, columns=[column], by_group=rule):
        assert batch["ppm"].shape[1:] == ((3, 16, 32) if batch.group == "1" else (3, 32, 16))


def test_what_is_wrong_is_refused(pictures: shardwise.Dataset) -> None:
    def text(rule: Any, **options: Any) -> str:
        with pytest.raises((errors.InvalidArgument, TypeError)) as raised:
            loader_of(pictures, rule, **options)
        return str(raised.value)

    sizes = {"0": (8, (9, 9)), "1": (8, (9, 9))}
    assert "belongs to no group" in text(ByGroup("cls", sizes))
    assert "'2'" in text(ByGroup("cls", sizes))
    assert "NULL" in text(ByGroup("NULLIF(cls, 2)", sizes))
    assert "NULL" in text(aspect_groups(width="NULL"))
    assert "no such column: nope" in text(ByGroup("nope", sizes))
    assert "one value for each sample" in text(ByGroup("min(cls)", sizes))
    assert "needs an expression" in text(ByGroup(""))
    assert "its group has no size" in text(ByGroup("cls"))
    assert "its group has no size" in text(None)
    assert "window is 0" in text(ByGroup("cls", window=0))
    assert "windows" in text(ByGroup("cls"), by_length=ByLength("ppm", window=9))
    assert "leftovers='lost'" in text(ByGroup("cls", leftovers="lost"))
    assert "groups=" in text(ByGroup("cls", {"0": (8, (9, 9), 1)}))  # type: ignore[dict-item]
    assert "global_batch_size" in text(ByGroup("cls"), global_batch_size=8)
    assert "by_group" in text(8)
    assert "pixels=3" in str(pytest.raises(errors.InvalidArgument, aspect_groups, 3, pixels=3).value)
