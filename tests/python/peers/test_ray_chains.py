"""Random chains of reading, filtering, mapping, writing and reading again, compared with a simple
model. Random passes on changing numbers of workers are also tested: they are peeked into,
abandoned, stopped and continued."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import needs, part_of, write_shard
from ray_runs import SHUFFLED

import shardwise
from shardwise import Order, Sampler

needs("ray.data")

import ray
from ray.data.expressions import col

import shardwise.ray as sr

pytest_plugins = ["ray_runs"]
pytestmark = pytest.mark.usefixtures("cluster")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

Row = dict[str, Any]
COLUMNS = ["__key__", "cls", "cap.txt", "__index__"]
ORDERS = [Order("sequential"), SHUFFLED, Order(seed=4, chunk_size=5, window=3)]
WHERE: dict[str | None, Callable[[Row], bool]] = {
    None: lambda row: True,
    "cls < 5": lambda row: row["cls"] < 5,
    "w > 20": lambda row: row["w"] is not None and row["w"] > 20,
    "cls < 0": lambda row: False,
}


def make_rows(folder: Path) -> list[Row]:
    """Makes 137 samples with a class, a number or null, and a text that may be empty or missing."""
    rows: list[Row] = []
    folder.mkdir()
    for shard, length in enumerate([40, 1, 60, 36]):
        samples = []
        for i in range(len(rows), len(rows) + length):
            w = None if i % 7 == 0 else i * 0.5
            fields = {"cls": b"%d" % (i % 10)}
            fields["json"] = b"{}" if w is None else b'{"w": %.1f}' % w
            if i % 3:
                fields["cap.txt"] = b"c%d" % i if i % 5 else b""
            samples.append((f"dir/k{i:04}", fields))
            row = {"__key__": f"dir/k{i:04}", "cls": i % 10, "w": w}
            rows.append(row | {"cap.txt": fields.get("cap.txt")})
        write_shard(folder / f"{shard}.tar", samples)
    shardwise.index(folder / "x y.idx", folder, columns=["cls", "w=json:$.w"], threads=0)
    return rows


def read(index: Path, rows: list[Row], pick: random.Random) -> tuple[Any, list[Row]]:
    """Reads all or some of these rows in an order, from the beginning or from a token. Returns the
    data, and the rows of the model."""
    where, order = pick.choice(list(WHERE)), pick.choice(ORDERS)
    view = shardwise.open(index) if where is None else shardwise.open(index).where(where)
    chosen = [row for row in rows if WHERE[where](row)]
    sampler = Sampler(view, order)
    sampler.set_epoch(pick.randrange(4))
    begin = pick.choice([0, pick.randrange(len(chosen) + 1)])
    data = sr.read(
        index,
        where=where,
        order=order,
        epoch=sampler.epoch,
        resume=sampler.token(begin) if 0 < begin < len(chosen) else None,
        columns=pick.choice([None, COLUMNS]),
        override_num_blocks=pick.choice([None, 1, 3, 50]),
    )
    if begin == len(chosen):
        begin = 0
    return data, [chosen[i] | {"__index__": i} for i in list(sampler)[begin:]]


def step(data: Any, rows: list[Row], label: str, pick: random.Random) -> tuple[Any, list[Row], str]:
    """Applies one more operation to the dataset and to the model. Returns both, and the present
    name of the class column."""
    kinds = ["class", "key", "number", "select", "materialize", "map", "limit", "rename", "look"]
    kind = pick.choice(kinds)
    if kind == "class":
        data = data.filter(expr=col(label) >= 4)
        rows = [row for row in rows if row["cls"] >= 4]
    elif kind == "key":
        data = data.filter(expr=col("__key__") < "dir/k0050")
        rows = [row for row in rows if row["__key__"] < "dir/k0050"]
    elif kind == "number":
        data = data.filter(expr=(col("__index__") < 60) & ~col("__index__").is_in([1, 2, 30]))
        rows = [row for row in rows if row["__index__"] < 60 and row["__index__"] not in (1, 2, 30)]
    elif kind == "select":
        data = data.select_columns(["__key__", label, "cap.txt", "__index__"])
    elif kind == "materialize":
        data = data.materialize()
    elif kind == "map":
        data = data.map(lambda row: row)
    elif kind == "look":  # peeking does not advance the data
        first = [(row["__key__"], row[label]) for row in data.take(1)]
        assert first == [(row["__key__"], row["cls"]) for row in rows[:1]]
        next(iter(data.iter_batches(batch_size=2)), None)
    elif kind == "limit":
        most = pick.choice([0, 1, 20, 1000])
        data, rows = data.limit(most), rows[:most]
    elif label == "cls":
        data, label = data.rename_columns({"cls": "label"}), "label"
    return data, rows, label


@pytest.mark.parametrize("seed", part_of(range(12), 4))
def test_a_chain_gives_what_the_model_has(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    rows = make_rows(tmp_path / "a b")
    data, wanted = read(tmp_path / "a b" / "x y.idx", rows, pick)
    label = "cls"
    for _ in range(pick.randrange(5)):
        data, wanted, label = step(data, wanted, label, pick)
    names = ["__key__", label, "cap.txt", "__index__"]
    model = [[row[name] for name in COLUMNS] for row in wanted]
    assert [[row[name] for name in names] for row in data.take_all()] == model
    assert data.count() == len(model)
    if not model:
        return
    index = tmp_path / "new.idx"
    sr.write(
        data,
        tmp_path / "new",
        fields={label: "cls", "cap.txt": "cap.txt"},
        max_samples=pick.choice([5, 1000]),
        index=index,
        columns=["cls"],
    )
    again = [
        [row["__key__"], row["cls"], row.get("cap.txt"), row["__index__"]]
        for row in sr.read(index).take_all()
    ]
    assert again == [[*row[:3], number] for number, row in enumerate(model)]
    assert shardwise.verify(index, full=False) == []


def of_all(shards: list[Any], ask: Callable[[Any, Callable[[Any], Any]], Any]) -> Any:
    """Returns the result of a call that sums over all ranks. Calls one rank after another."""
    words: list[list[int]] = []

    def note(own: list[int]) -> list[int]:
        words.append(own)
        return own

    for shard in shards[1:]:
        try:
            ask(shard, note)
        except shardwise.errors.NotExact:  # this rank alone has not delivered everything
            pass
    add = lambda own: [sum(column) for column in zip(own, *words, strict=True)]  # noqa: E731
    return ask(shards[0], add)


@pytest.mark.parametrize("seed", part_of(range(8), 3))
def test_passes_on_changing_numbers_of_workers_give_each_sample_once_an_epoch(
    tmp_path: Path, seed: int
) -> None:
    pick = random.Random(seed)
    rows = make_rows(tmp_path / "a")
    index, where, order = tmp_path / "a/x y.idx", pick.choice(list(WHERE)[:3]), pick.choice(ORDERS)
    view = shardwise.open(index) if where is None else shardwise.open(index).where(where)
    data = sr.read(index, where=where, order=order, columns=["cls", "__index__"])
    if pick.random() < 0.5:
        data = data.map_batches(lambda batch: batch)
    size = pick.choice([4, 9, 50])
    seen: list[list[int]] = [[], [], []]
    state: Any = None
    epoch = stops = 0
    while epoch < 3:
        world = pick.randrange(1, 5)
        config = sr.ExactDataConfig()
        shards = [given["a"] for given in config.configure({"a": data}, world)]
        for shard in shards:
            if state is not None:
                shard.load_state_dict(state)
        while epoch < 3:
            samplers = [Sampler(view, order, rank=rank, world_size=world) for rank in range(world)]
            for sampler in samplers:
                sampler.set_epoch(epoch)
                if state is not None:
                    sampler.resume(state["token"])
                assert sampler.epoch == epoch
            whole = samplers[0].num_batches(size, False, True)
            stop = pick.choice([None, pick.randrange(whole + 1)]) if stops < 6 else None
            counts = []
            for shard, sampler in zip(shards, samplers, strict=True):
                if pick.random() < 0.3:
                    next(iter(shard.iter_batches(batch_size=size)), None)  # abandoned
                if pick.random() < 0.2:
                    data.take(1)
                passed = iter(shard.iter_batches(batch_size=size))
                batches = [b["__index__"].tolist() for b in itertools.islice(passed, stop)]
                given = sum(batches, [])
                assert given == list(sampler)[: len(given)]
                assert all(len(batch) == size for batch in batches[:-2])
                seen[epoch] += given
                counts.append(len(batches))
            assert set(counts) == {whole if stop is None else stop}
            if stop is not None:
                stops += 1
                state = of_all(shards, lambda shard, add: shard.state_dict(add))
                if stop == whole:  # nothing is left: the state is the beginning of the next epoch
                    assert sorted(seen[epoch]) == list(range(len(view)))
                    epoch += 1
                break
            proof = of_all(shards, lambda shard, add: shard.prove(add))
            assert proof == f"epoch {epoch}: {len(view):,} samples, each exactly once: proven"
            assert sorted(seen[epoch]) == list(range(len(view)))
            epoch, state = epoch + 1, None
            assert [shard.epoch for shard in shards] == [epoch] * world
