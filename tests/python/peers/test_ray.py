"""shardwise.ray.read(): rows in the order of the samples, counts and schema from the index,
parallel reads."""

from __future__ import annotations

import enum
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import FileServer, RangeHandler, in_threads, needs, write_shard, write_shards
from peer_runs import NUM_SAMPLES
from ray_runs import SHUFFLED, numbers_of

import shardwise
from shardwise import Order, Sampler, errors

needs("ray.data")

import numpy as np
import pyarrow as pa
import ray
from ray.data.expressions import col, lit

import shardwise.ray as sr
from shardwise.ray.predicates import to_sql
from shardwise.ray.reading import PUSHES, source_of

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytest_plugins = ["ray_runs"]
pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """An index with a column. Tests may remove its shards."""
    write_shards(tmp_path / "shards", [40, 13, 30, 20])
    shardwise.index(tmp_path / "own.idx", tmp_path / "shards", columns=["cls"], threads=0)
    return tmp_path / "own.idx"


def take_away(index: Path, *shards: int) -> None:
    for shard in shards:
        os.unlink(index.parent / "shards" / f"train-{shard:06}.tar")


# The order.


def test_rows_have_what_the_samples_have(train: Path) -> None:
    ds = shardwise.open(train)
    rows = sr.read(train, order=SHUFFLED, override_num_blocks=5).take_all()
    for slot, row in enumerate(rows):
        sample = ds[row["__index__"]]
        assert (row["__key__"], row["__slot__"]) == (sample.key, slot)
        assert row["__shard__"] == sample.shard_path
        assert {"bin": row["bin"], "cls": row["cls"]} == sample.copy()


def test_a_view_is_ordered_by_itself(own: Path) -> None:
    ds = shardwise.open(own).where("cls % 3 = 1")
    data = sr.read(own, where="cls % 3 = 1", order=SHUFFLED)
    assert numbers_of(data) == list(Sampler(ds, SHUFFLED))
    assert [row["cls"] for row in sr.read(ds).take(3)] == [1, 4, 7]


def test_a_token_leaves_the_rest(train: Path) -> None:
    ds = shardwise.open(train)
    sampler = Sampler(ds, SHUFFLED, world_size=3, batch_size=10)
    sampler.set_epoch(4)
    token = sampler.token(20)
    data = sr.read(train, order=SHUFFLED, resume=token)
    alone = Sampler(ds, SHUFFLED)
    alone.resume(token)
    assert data.count() == NUM_SAMPLES - 600
    assert numbers_of(data) == list(alone)
    with pytest.raises(errors.Mismatch):
        sr.read(train, order=Order(seed=18), resume=token)


@pytest.mark.parametrize(
    ("where", "deal", "blocks"), [(None, 7, 40), ("sample < 101", 2, 20), ("sample < 5", 2, 20)]
)
def test_consumers_of_a_split_get_what_ranks_get(
    train: Path, where: str | None, deal: int, blocks: int
) -> None:
    data = sr.read(
        train,
        where=where,
        order=SHUFFLED,
        columns=["__index__"],
        deal=deal,
        override_num_blocks=blocks,
    )
    parts = data.streaming_split(deal, equal=False)
    given: list[list[int]] = [[] for _ in parts]

    def consume(rank: int) -> None:
        for batch in parts[rank].iter_batches(batch_size=64):
            given[rank] += batch["__index__"].tolist()

    in_threads(consume, range(deal))
    ds = shardwise.open(train) if where is None else shardwise.open(train).where(where)
    assert given == [list(Sampler(ds, SHUFFLED, rank=r, world_size=deal)) for r in range(deal)]
    assert sorted(sum(given, [])) == list(range(len(ds)))


def test_a_worker_that_is_killed_in_its_task_gives_the_same_rows(
    train: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"

    def kill_once(batch: Any) -> Any:  # Ray runs this in the task that reads
        if 1000 in batch["__index__"] and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    data = sr.read(train, order=SHUFFLED, override_num_blocks=6).map_batches(kill_once)
    assert numbers_of(data) == list(Sampler(shardwise.open(train), SHUFFLED))
    assert killed.exists()


# Results without reading.


def test_count_size_and_schema_are_known_without_a_shard_or_a_task(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = shardwise.open(own)
    field_bytes = int(ds.sizes("bin").sum())
    take_away(own, 0, 1, 2, 3)
    data = sr.read(own, columns=["bin", "cls", "__key__", "__index__", "__slot__", "__shard__"])

    def execute(*_: Any, **__: Any) -> None:
        raise AssertionError("tasks were begun")

    executor = "ray.data._internal.execution.streaming_executor.StreamingExecutor.execute"
    monkeypatch.setattr(executor, execute)
    assert data.count() == 103
    assert dict(zip(data.schema().names, data.schema().types, strict=True)) == {
        "bin": pa.large_binary(),
        "cls": pa.int64(),
        "__key__": pa.string(),
        "__index__": pa.int64(),
        "__slot__": pa.int64(),
        "__shard__": pa.string(),
    }
    assert sr.read(own, columns=["bin"]).size_bytes() == field_bytes + 8 * 103
    assert sr.read(own, where="cls < 0").count() == 0
    with pytest.raises(AssertionError, match="tasks were begun"):
        data.take(1)
    monkeypatch.undo()
    with pytest.raises(Exception, match="train-000000.tar"):
        data.take(1)


def test_a_task_is_small_whatever_it_reads(train: Path) -> None:
    data = sr.read(train, order=SHUFFLED)
    source = source_of(data)
    tasks = source.get_read_tasks(40)
    assert len(tasks) == 40
    assert max(len(ray.cloudpickle.dumps(task)) for task in tasks[1:]) < 1024
    sizes = [task.metadata.size_bytes for task in tasks]
    assert sum(sizes) == data.size_bytes()
    assert max(sizes) < 1.2 * min(sizes)
    assert sum(task.metadata.num_rows for task in tasks) == NUM_SAMPLES


def test_little_is_read_by_a_task_for_each_cpu_and_more_by_two(
    train: Path, tmp_path: Path
) -> None:
    assert sr.read(train).materialize().num_blocks() == 2
    write_shard(tmp_path / "a.tar", [(f"{i}", {"bin": bytes(1 << 20)}) for i in range(8)])
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", threads=0)
    assert sr.read(tmp_path / "a.idx").materialize().num_blocks() == 4


@pytest.mark.skipif(not PUSHES, reason="needs a Ray that selects columns; skipped because this one reads all")
def test_columns_that_are_not_selected_are_not_read(own: Path) -> None:
    take_away(own, 0, 1, 2, 3)
    rows = sr.read(own).select_columns(["cls", "__index__"]).take_all()
    assert rows == [{"cls": i, "__index__": i} for i in range(103)]


@pytest.mark.skipif(not PUSHES, reason="needs a Ray that selects columns; skipped because this one reads all")
def test_rows_that_a_filter_leaves_out_are_not_read(own: Path) -> None:
    take_away(own, 1, 2, 3)
    condition = (col("cls") < 40) & (col("__key__") != "000007")
    data = sr.read(own, order=SHUFFLED).filter(expr=condition)
    wanted = [i for i in Sampler(shardwise.open(own), SHUFFLED) if i < 40 and i != 7]
    assert [row["__index__"] for row in data.take_all()] == wanted
    assert data.count() == 39


@pytest.mark.skipif(not PUSHES, reason="needs a Ray that selects columns; skipped because this one reads all")
def test_bytes_that_are_not_asked_for_do_not_leave_a_server(tmp_path: Path) -> None:
    size, num_samples = 20_000, 100
    (tmp_path / "shards").mkdir()
    for shard in range(2):
        numbers = range(shard * 50, shard * 50 + 50)
        fields = {i: {"bin": bytes(size), "cls": b"%d" % i, "txt": b"text"} for i in numbers}
        path = tmp_path / f"shards/{shard:06}.tar"
        write_shard(path, [(f"{i:03}", fields[i]) for i in numbers])
    index = tmp_path / "a.idx"
    with FileServer(tmp_path / "shards", RangeHandler) as server:
        urls = server.url + "/{000000..000001}.tar"
        shardwise.index(index, urls, columns=["cls"], threads=0)

        def sent(data: Any) -> tuple[int, int]:
            """Returns the number of rows, and the bytes sent for them."""
            server.sent = 0
            rows = sum(batch.num_rows for batch in data.iter_batches(batch_format="pyarrow"))
            return rows, server.sent

        data = sr.read(index, order=SHUFFLED, access="range", override_num_blocks=3)
        least = num_samples * size
        rows, everything = sent(data)
        assert rows == num_samples
        assert everything > least
        assert sent(data.select_columns(["cls", "__key__", "__index__"])) == (num_samples, 0)
        rows, some = sent(data.select_columns(["bin", "cls"]).filter(expr=col("cls") < 10))
        assert rows == 10
        assert 10 * size <= some < least / 5


# Maps, and other operations of Ray.


def test_rows_of_a_split_come_once_also_if_a_map_makes_them_larger(train: Path) -> None:
    context = ray.data.DataContext.get_current()
    before = context.target_max_block_size
    context.target_max_block_size = 50_000
    try:
        data = sr.read(train, order=SHUFFLED, columns=["__index__"], deal=3)
        parts = data.map(lambda row: row | {"large": bytes(1000)}).streaming_split(3, equal=False)
    finally:
        context.target_max_block_size = before
    given: list[int] = []

    def consume(part: Any) -> None:
        for batch in part.iter_batches(batch_size=64):
            given.extend(batch["__index__"].tolist())

    in_threads(consume, parts)
    assert sorted(given) == list(range(NUM_SAMPLES))


def test_a_checkpoint_of_ray_knows_rows_by_their_index(train: Path, tmp_path: Path) -> None:
    checkpoint = needs("ray.data.checkpoint")
    parquet = needs("pyarrow.parquet")
    broken, seen = tmp_path / "broken", tmp_path / "seen"

    def fail_once(batch: Any) -> Any:
        if 1900 in batch["__index__"] and not broken.exists():
            time.sleep(5)  # meanwhile other tasks finish
            broken.touch()
            raise ValueError("broken")
        with open(seen, "a") as file:
            file.writelines(f"{number}\n" for number in batch["__index__"])
        return batch

    context = ray.data.DataContext.get_current()
    config = checkpoint.CheckpointConfig("__index__", str(tmp_path / "done"))
    context.checkpoint_config = config
    try:
        data = sr.read(train, order=SHUFFLED, columns=["cls", "__index__"], override_num_blocks=12)
        mapped = data.map_batches(fail_once)
        with pytest.raises(Exception, match="ValueError: broken"):
            mapped.write_parquet(str(tmp_path / "out"))
        before = len(seen.read_text().split())
        mapped.write_parquet(str(tmp_path / "out"))
        with pytest.raises(errors.Unsupported, match="checkpoint_config.*lose rows"):
            sr.write(data, tmp_path / "new")
    finally:
        context.checkpoint_config = None
    written = parquet.read_table(tmp_path / "out")["__index__"].to_pylist()
    assert sorted(written) == list(range(NUM_SAMPLES))
    again = len(seen.read_text().split()) - before
    assert 0 < again < NUM_SAMPLES


# Conditions.


class Class(enum.IntEnum):
    THREE = 3


CONDITIONS = [
    (col("cls") >= 90, True),
    (col("cls").is_in([3, 5, 1000]), True),
    (~(col("cls") == 3) & (lit(7) > col("cls")), True),
    (col("w").is_null() | (col("w") > 1.5), True),
    (col("w").not_in([1.0]), True),
    (~(col("w").is_in([1.0])), True),
    (~(col("w") > 1.0), True),
    (col("w") == np.float64(0.5), True),
    (col("cls") == Class.THREE, True),
    (col("cls").is_in([Class.THREE, 5]), True),
    (col("name") == "it's 4", True),
    ((col("name") > "it's 3") & col("__index__").is_in([0, 5, 33, 99999, -1]), True),
    ((col("__index__") >= 5) & (col("__index__") < 9), True),
    ((col("__index__") > -3) & (col("__index__") <= 10**6) & (col("__index__") != 2), True),
    ((col("__index__") == 10**6) | (col("__index__") == 4), True),
    (col("__key__") < "000017", True),
    (col("cls") + 1 == 4, False),
    (col("txt").is_not_null(), False),
    ((col("cls") < 50) & (col("cls") + 1 == 4), False),
    (col("__slot__") < 5, False),
]


@pytest.mark.parametrize(("condition", "is_pushed"), CONDITIONS)
@pytest.mark.parametrize("where", [None, "cls % 4 != 1"])
def test_conditions_hold_for_the_rows_for_which_they_hold_in_ray(
    tmp_path_factory: pytest.TempPathFactory, condition: Any, is_pushed: bool, where: str | None
) -> None:
    folder = tmp_path_factory.getbasetemp() / "conditions"
    if not folder.exists():
        folder.mkdir()
        samples: list[tuple[str, dict[str, bytes]]] = []
        for i in range(100):
            fields = {"cls": str(i).encode(), "txt": b"x"}
            values: dict[str, Any] = {"name": f"it's {i % 10}"}
            if i % 3:
                values["w"] = i % 5 / 2 if i % 5 % 2 else i % 5 // 2
            samples.append((f"{i:06}", fields | {"json": json.dumps(values).encode()}))
        write_shard(folder / "a.tar", samples)
        columns = ["cls", "w=json:$.w", "name=json:$.name"]
        shardwise.index(folder / "a.idx", folder / "a.tar", columns=columns, threads=0)
    data = sr.read(folder / "a.idx", where=where, order=SHUFFLED)
    source = source_of(data)
    assert (to_sql(condition, source._all_columns, source.data) is not None) == is_pushed
    in_ray = data.materialize().filter(expr=condition).take_all()
    assert data.filter(expr=condition).take_all() == in_ray


# Columns.


def test_fields_that_are_missing_are_null_and_metadata_has_types(tmp_path: Path) -> None:
    samples = [
        ("a", {"txt": b"x", "json": b'{"n": 1, "r": 2, "t": "u", "m": 1}'}),
        ("b", {"txt": b"", "json": b'{"n": null, "r": 2.5, "t": null, "m": "v"}'}),
        ("c", {"bin": b"z"}),
    ]
    write_shard(tmp_path / "a.tar", samples)
    columns = [f"{name}=json:$.{name}" for name in "nrtm"]
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", columns=columns, threads=0)
    data = sr.read(tmp_path / "a.idx", columns=["txt", "bin", "n", "r", "t", "m"])
    types = dict(zip(data.schema().names, data.schema().types, strict=True))
    assert [types[name] for name in "nrtm"] == [pa.int64(), pa.float64(), pa.string(), pa.string()]
    assert [list(row.values()) for row in data.take_all()] == [
        [b"x", None, 1, 2.0, "u", "1"],
        [b"", None, None, 2.5, None, "v"],
        [None, b"z", None, None, None, None],
    ]
    with pytest.raises(errors.NotFound, match="no column 'jpg'; .*bin, json, txt"):
        sr.read(tmp_path / "a.idx", columns=["jpg"])


def test_a_field_with_the_name_of_what_all_rows_have_is_not_read(tmp_path: Path) -> None:
    samples = [("a", {"__key__": b"x", "a.b": b"1"}), ("b", {"__index__": b"7"})]
    write_shard(tmp_path / "a.tar", samples)
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar", columns=["__index__"], threads=0)
    rows = sr.read(tmp_path / "a.idx").take_all()
    names = ["a.b", "__key__", "__index__", "__slot__", "__shard__"]
    assert [list(row) for row in rows] == [names, names]
    assert [list(row.values())[:4] for row in rows] == [[b"1", "a", 0, 0], [None, "b", 1, 1]]


def test_blocks_are_no_larger_than_ray_asks(train: Path) -> None:
    context = ray.data.DataContext.get_current()
    before = context.target_max_block_size
    context.target_max_block_size = 5000
    try:
        data = sr.read(train, order=SHUFFLED, columns=["bin", "__index__"])
        bundles = data.materialize().iter_internal_ref_bundles()
        blocks = [block for bundle in bundles for block in bundle.metadata]
        assert sum(block.num_rows for block in blocks) == NUM_SAMPLES
        assert max(block.size_bytes for block in blocks) < 1.5 * 5000  # Ray cuts larger blocks
    finally:
        context.target_max_block_size = before


# Errors.


def test_a_node_with_another_index_is_named(own: Path, tmp_path: Path) -> None:
    data = sr.read(own, columns=["bin"])
    write_shards(tmp_path / "others", [11])
    shardwise.index(tmp_path / "other.idx", tmp_path / "others", threads=0)
    shutil.move(own, tmp_path / "kept.idx")
    shutil.copy(tmp_path / "other.idx", own)
    for table in tmp_path.glob("other.idx.*.table"):
        shutil.copy(table, tmp_path / table.name.replace("other", "own"))
    with pytest.raises(errors.Mismatch, match="on the node .*index changed"):
        data.take_all()
    os.unlink(own)
    with pytest.raises(errors.NotFound, match="on the node .*own.idx"):
        data.take_all()


def test_what_is_given_wrongly_is_named(train: Path) -> None:
    ds = shardwise.open(train)
    with pytest.raises(errors.InvalidArgument, match="open dataset cannot be"):
        sr.read(ds, access="read")
    with pytest.raises(errors.InvalidArgument, match="not valid: order='chunked'"):
        sr.read(train, order="chunked")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="not valid: deal=0"):
        sr.read(train, deal=0)
    for blocks in (0, "3"):
        with pytest.raises(errors.InvalidArgument, match=f"not valid: override.*={blocks!r}"):
            sr.read(train, override_num_blocks=blocks)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="column 'bin' is named twice"):
        sr.read(train, columns=["bin", "cls", "bin"])
    with pytest.raises(errors.InvalidArgument, match=r"not valid: columns=\[\]; "):
        sr.read(train, columns=[])
    with pytest.raises(errors.InvalidArgument, match="not valid: resume=5; .*token"):
        sr.read(train, resume=5)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="not valid: lazily=True"):
        sr.read("https://host/train.json", lazily=True)


def test_importing_shardwise_imports_no_ray() -> None:
    code = "import sys, shardwise; sys.exit('ray' in sys.modules or 'pyarrow' in sys.modules)"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


def test_where_ray_is_not_installed_it_is_said_what_to_install() -> None:
    code = "import sys; sys.modules['ray'] = None; import shardwise.ray"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: shardwise.ray needs Ray Data (" in done.stderr
    assert "install Ray Data: pip install 'ray[data]'" in done.stderr
