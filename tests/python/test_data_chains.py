"""Chains of random operations, compared with a model in plain dicts. They change a data set
(shards, side tables, views, joins), and read exact epochs of it, which are resumed, with columns
from all these sources."""

from __future__ import annotations

import json
import os
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from conftest import FakeRanks, write_shard

import shardwise
from shardwise import ByGroup, ByLength, Loader, Order, columns

CHAINS = 20_000 if os.environ.get("SHARDWISE_THOROUGH") else 60


class Row(NamedTuple):
    """A sample in the model."""

    key: str
    number: int
    """A number that is unique in the chain. The sample's bytes contain it."""
    has_id: bool
    """False if the sample lacks a value, so that a loader leaves it out as bad."""


class Model:
    """A folder of shards, its index and the index's side tables."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder, self.dice = folder, dice
        self.index = folder / "data.idx"
        self.shards: dict[str, list[Row]] = {}
        self.tables: dict[str, dict[str, Any]] = {}
        """The values of each side table's column by key."""
        self.made = 0
        self.seen: Counter[str] = Counter()
        for _ in range(dice.randint(1, 3)):
            self.add_shard()
        shardwise.index(self.index, folder / "shards", columns=["cls"], threads=0)

    def rows(self) -> list[Row]:
        return [row for name in sorted(self.shards) for row in self.shards[name]]

    def write(self, name: str, keys: list[str]) -> None:
        rows, samples = [], []
        for key in keys:
            row = Row(key, self.made, self.dice.random() < 0.95)
            self.made += 1
            record = {"id": row.number} if row.has_id else {"other": [1]}
            fields = {
                "json": json.dumps({"deep": record}).encode(),
                "bin": row.number.to_bytes(4, "little") * (1 + row.number % 5),
                "cls": b"%d" % (row.number % 3),
            }
            rows.append(row)
            samples.append((key, fields))
        write_shard(self.folder / "shards" / name, samples)
        self.shards[name] = rows

    def new_keys(self, count: int) -> list[str]:
        present = {row.key for row in self.rows()}
        keys = [f"{self.dice.choice(['', 'dir/', 'é'])}{self.made + i:05}" for i in range(count)]
        return [key for key in keys if key not in present]

    def add_shard(self) -> None:
        name = f"{self.dice.choice('abcdef')}{self.made:06}.tar"
        self.write(name, self.new_keys(self.dice.randint(1, 40)))

    def update(self) -> None:
        what = self.dice.choice(["add", "remove", "rewrite", "nothing"])
        name = self.dice.choice(sorted(self.shards))
        if what == "add":
            self.add_shard()
        elif what == "remove" and len(self.shards) > 1:
            (self.folder / "shards" / name).unlink()
            del self.shards[name]
        elif what == "rewrite":
            kept = [row.key for row in self.shards[name] if self.dice.random() < 0.7]
            keys = kept + self.new_keys(self.dice.randint(1, 9))
            self.dice.shuffle(keys)
            (self.folder / "shards" / name).unlink()
            self.write(name, keys)
        shardwise.update(self.index, threads=self.dice.choice([0, 2]), drop_missing=True)

    def attach(self) -> None:
        name = self.dice.choice(["w", "v"])
        keys = [row.key for row in self.rows() if self.dice.random() < 0.8]
        if not keys:
            return
        keys += [f"absent{i}" for i in range(self.dice.randint(0, 5))]
        self.dice.shuffle(keys)
        values = [self.dice.choice([None, self.dice.randint(-9, 9)]) for _ in keys]
        report = shardwise.attach(
            self.index, {"k": keys, name: values}, on="k", name=name, replace=name in self.tables
        )
        self.tables[name] = dict(zip(keys, values, strict=True))
        present = {row.key for row in self.rows()}
        assert report.samples_without_row == len(present - set(keys))

    def detach(self) -> None:
        for name in sorted(self.tables)[:1]:
            shardwise.detach(self.index, name)
            del self.tables[name]

    def repack(self) -> None:
        folder = self.folder / f"repacked{self.seen['repack']}"
        data = shardwise.open(self.index)
        if not len(data):
            return
        shardwise.repack(data, folder, max_samples=self.dice.choice([7, 1000]))
        (index,) = folder.glob("*.idx")
        keys = [sample.key for sample in shardwise.open(index)]
        assert keys == [row.key for row in self.rows()]

    def captions(self) -> shardwise.Dataset:
        """A dataset with a text for most keys, and for others, in random order."""
        self.made += 1
        keys = sorted({row.key for row in self.rows() if self.dice.random() < 0.9} | {"absent"})
        self.dice.shuffle(keys)
        samples = [(key, {"cap.txt": f"of {key}".encode()}) for key in keys]
        folder = self.folder / f"captions{self.made}"
        cut = self.dice.randint(0, len(samples))
        shards = [
            write_shard(folder / f"{i}.tar", part)
            for i, part in enumerate([samples[:cut], samples[cut:]])
            if part
        ]
        shardwise.index(folder / "c.idx", shards, threads=0)
        return shardwise.open(folder / "c.idx")

    def value(self, table: str, row: Row) -> Any:
        return self.tables[table].get(row.key)


class Epoch:
    """An epoch over a view, in runs with changing numbers of ranks."""

    def __init__(self, model: Model) -> None:
        self.model, self.dice = model, model.dice
        self.view: Any = shardwise.open(model.index)
        self.rows = model.rows()
        assert [self.view[i].key for i in range(len(self.view))] == [row.key for row in self.rows]
        self.choose_view()
        self.options = self.choose_options()
        self.delivered: Counter[int] = Counter()
        self.state: Any = None

    def choose_view(self) -> None:
        dice = self.dice
        where, keep = dice.choice(
            [("", lambda row: True), ("cls < 2", lambda row: row.number % 3 < 2)]
        )
        if self.model.tables and dice.random() < 0.5:
            table = dice.choice(sorted(self.model.tables))
            where = f"{table} > 0"
            keep = lambda row: (self.model.value(table, row) or 0) > 0  # noqa: E731
            self.model.seen["where of a side table"] += 1
        if where:
            self.view, self.rows = self.view.where(where), [r for r in self.rows if keep(r)]
        self.other_keys: set[str] | None = None
        if dice.random() < 0.4:
            self.model.seen["joins"] += 1
            other = self.model.captions()
            self.other_keys = {sample.key for sample in other}
            how = dice.choice(["inner", "left"])
            self.view = self.view.join(other, how=how)
            if how == "inner":
                self.rows = [row for row in self.rows if row.key in self.other_keys]
        if dice.random() < 0.3:
            start = dice.randint(0, 5)
            self.view, self.rows = self.view[start:], self.rows[start:]
        if dice.random() < 0.2:
            self.view = pickle.loads(pickle.dumps(self.view))
        assert len(self.view) == len(self.rows)

    def choose_options(self) -> dict[str, Any]:
        dice = self.dice
        kind = dice.choice(["chunked", "sharded", "sequential"])
        order: dict[str, Any] = {} if kind == "sequential" else {"window": dice.choice([1, 3, 64])}
        if kind == "chunked":
            order["chunk_size"] = dice.choice([1, 7, 1000])
        options: dict[str, Any] = {
            "order": Order(kind, seed=dice.randrange(9), **order),
            "batch_size": dice.randint(1, 12),
            "max_bad": 10**6,
        }
        if dice.random() < 0.4:
            self.model.seen["groups"] += 1
            expression = "cls"
            if "w" in self.model.tables and dice.random() < 0.5:
                expression = "coalesce(w, 0) > 0"
            options["by_group"] = ByGroup(
                expression,
                window=dice.choice([5, 30, 10_000]),
                leftovers=dice.choice(["hold_over", "smaller_batch"]),
            )
        elif dice.random() < 0.3:
            self.model.seen["lengths"] += 1
            options["by_length"] = ByLength("bin", window=dice.choice([5, 30, 10_000]))
        return options

    def check(self, batch: Any) -> None:
        ids, keys = batch["id"].tolist(), batch.text("__key__")
        if self.other_keys is not None:
            texts = [f"of {key}" if key in self.other_keys else "none" for key in keys]
            assert batch.text("cap.txt") == texts
        for place, sample in enumerate(batch.samples.tolist()):
            row = self.rows[sample]
            assert ids[place] == row.number and keys[place] == row.key and row.has_id
            assert bytes(batch.bytes("bin")[place][:4]) == row.number.to_bytes(4, "little")
            for table in self.model.tables:
                value = self.model.value(table, row)
                assert batch[table].tolist()[place] == (1000 if value is None else value)
            self.delivered[sample] += 1

    def run(self, world: int, steps: int) -> bool:
        def work(rank: Any) -> tuple[list[Any], Any, bool]:
            wanted = [columns.integer("json:$.deep.id"), columns.key(), columns.bytes("bin")]
            wanted += [columns.metadata(name, missing=1000) for name in self.model.tables]
            if self.other_keys is not None:
                wanted.append(columns.text("cap.txt", missing="none"))
            threads = self.dice.choice([0, 2])
            loader = Loader(
                self.view, columns=wanted, ranks=rank, threads=threads, **self.options
            )
            if self.state is not None:
                loader.load_state_dict(self.state)
            batches = [batch for _, batch in zip(range(steps), loader, strict=False)]
            ended = loader.steps_left == 0
            if ended:
                assert "proven" in loader.prove()
            return batches, loader.state_dict(), ended

        results = FakeRanks(world).run(work)
        for batches, _, _ in results:
            for batch in batches:
                self.check(batch)
        self.state = results[0][1]
        return bool(results[0][2])

    def walk(self) -> None:
        good = [i for i, row in enumerate(self.rows) if row.has_id]
        if len(good) < 1:
            return
        # 1,000 steps are more than an epoch has; all runs before have fewer.
        for _ in range(self.dice.randint(0, 3)):
            self.model.seen["runs"] += 1
            if self.run(self.dice.randint(1, 4), self.dice.randint(1, 6)):
                break
        else:
            assert self.run(self.dice.randint(1, 4), 1000)
        assert sorted(self.delivered.elements()) == good


def test_changes_and_epochs_agree_with_a_model(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    first = int(os.environ.get("SHARDWISE_SEED", "0"))
    for seed in range(first, first + CHAINS):
        dice = random.Random(seed)
        folder = tmp_path / str(seed)
        (folder / "shards").mkdir(parents=True)
        try:
            model = Model(folder, dice)
            for _ in range(dice.randint(1, 5)):
                what = dice.choice(["update", "attach", "attach", "detach", "repack", "epoch"])
                model.seen[what] += 1
                Epoch(model).walk() if what == "epoch" else getattr(model, what)()
            Epoch(model).walk()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        seen += model.seen
    wanted = ["update", "attach", "detach", "repack", "groups", "lengths"]
    wanted += ["where of a side table", "joins"]
    assert all(seen[what] >= 3 for what in wanted), seen
