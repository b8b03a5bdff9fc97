"""Side tables: what attach() reads, and where the columns appear."""

from __future__ import annotations

import csv
import pickle
import random
import sqlite3

import pytest
from conftest import needs
import shardwise
from conftest import assert_ends
from shardwise import Loader, Order, columns
from shardwise.errors import InvalidArgument, Mismatch, NotFound, Unsupported


@pytest.fixture
def index(tmp_path):
    """An index of the samples k0 to k9, with the field txt."""
    with shardwise.TarWriter(tmp_path / "a.tar") as tar:
        for i in range(10):
            tar.write({"__key__": f"k{i}", "txt": str(i)})
    path = tmp_path / "t.idx"
    shardwise.index(path, tmp_path / "a.tar")
    return path


TABLE = {
    "key": ["k1", "k3", "other"],
    "i": [7, None, 1],
    "r": [0.5, float("nan"), 2.0],
    "t": ["007", "x", None],
    "b": [True, False, None],
}
EXPECTED = [("k1", 7, 0.5, "007", 1), ("k3", None, None, "x", 0), ("k5", None, None, None, None)]


def rows(index):
    sql = "SELECT key, i, r, t, b FROM samples WHERE key IN ('k1', 'k3', 'k5')"
    return shardwise.query(index, sql).rows


def expect(index, report, name):
    assert report == shardwise.side_tables(index)[0]
    assert report[:6] == (name, ["i", "r", "t", "b"], 3, 1, 10, 8)
    assert report.first_row_without_sample == "other" and report.first_sample_without_row == "k0"
    assert rows(index) == EXPECTED


def test_mappings(index):
    expect(index, shardwise.attach(index, TABLE, on="key"), "table")


def test_texts_of_queries_that_are_not_utf8(index):
    assert shardwise.query(index, "SELECT CAST(x'61ff' AS TEXT)").rows == [("a\udcff",)]


def test_frames_of_pandas(index):
    pandas = needs("pandas")
    frame = pandas.DataFrame(TABLE)
    expect(index, shardwise.attach(index, frame, on="key", name="f"), "f")
    report = shardwise.attach(index, frame.set_index("key"), on="key", name="f", replace=True)
    expect(index, report, "f")
    frame["c"] = frame["t"].astype("category")
    shardwise.attach(index, frame, on="key", columns=["c"], name="g")
    assert shardwise.open(index).column("c", [1, 3, 5]) == ["007", "x", None]
    numbered = frame[["key", "i"]].set_axis([0, 1], axis=1)
    shardwise.attach(index, numbered, on="0", columns=["d=1"], name="h")
    assert shardwise.open(index).column("d", [1, 3, 5]) == [7, None, None]


@pytest.mark.parametrize("kind", ["table", "parquet", "stream"])
def test_arrow(index, tmp_path, kind):
    pa = needs("pyarrow")
    from pyarrow import parquet

    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in TABLE.items()})
    if kind == "table":
        expect(index, shardwise.attach(index, table, on="key"), "table")
    elif kind == "parquet":
        # Another order of the columns, and row groups of one row.
        order = ["t", "b", "key", "r", "i"]
        parquet.write_table(table.select(order), tmp_path / "p.parquet", row_group_size=1)
        report = shardwise.attach(
            index, tmp_path / "p.parquet", on="key", columns=["i", "r", "t", "b"]
        )
        expect(index, report, "p")
    else:
        reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(1))
        expect(index, shardwise.attach(index, reader, on="key"), "table")


def test_integer_keys_and_large_values(index, tmp_path):
    with shardwise.TarWriter(tmp_path / "n.tar") as tar:
        tar.write({"__key__": "17", "txt": "x"})
    shardwise.index(index, tmp_path / "n.tar")
    shardwise.attach(index, {"id": [17], "a": [2**70], "b": [b"\0x"], "c": ["a\0b"]}, on="id")
    data = shardwise.open(index)
    assert data.columns == ["a", "b", "c"]
    assert [data.column(name)[0] for name in data.columns] == [str(2**70), b"\0x", b"a\0b"]


def test_csv_as_the_module_csv_writes_it(index, tmp_path):
    """Random cells with separators, quotes and line ends are read as they were written, with both
    line ends."""
    dice = random.Random(3)
    for attempt in range(200):
        cells = [
            "".join(dice.choice('ab,"\n\r \tx1é') for _ in range(dice.randrange(6)))
            for _ in range(9)
        ]
        with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(
                file,
                # The module does not quote every cell that ends in CR.
                quoting=csv.QUOTE_ALL if "\r" in "".join(cells) else csv.QUOTE_MINIMAL,
                lineterminator=dice.choice(["\n", "\r\n"]),
            )
            writer.writerow(["key", "a"])
            writer.writerow(["k0", "text"])
            writer.writerows([f"k{i + 1}", cell] for i, cell in enumerate(cells))
        shardwise.attach(index, tmp_path / "t.csv", on="key", replace=True)
        found = shardwise.open(index).column("a")
        assert found == ["text", *(cell or None for cell in cells)], attempt


def test_sqlite(index, tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as db:
        db.execute("CREATE TABLE t (key, i, r, t, b)")
        for row in zip(*TABLE.values()):
            db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", row)
    db.close()
    expect(index, shardwise.attach(index, tmp_path / "t.db", on="key"), "t")


def test_columns_serve_views_weights_and_pickles(index):
    plain = shardwise.open(index)
    shardwise.attach(index, {"k": [f"k{i}" for i in range(10)], "w": list(range(10))}, on="k")
    assert plain.columns == []
    data = shardwise.open(index, where="w >= 7")
    assert data.column("w") == [7, 8, 9] and data.numbers("w").tolist() == [7, 8, 9]
    assert data.fingerprint == plain[7:].fingerprint
    assert shardwise.open(index).fingerprint == plain.fingerprint
    assert shardwise.open(index).version != plain.version
    assert pickle.loads(pickle.dumps(data)).column("w") == [7, 8, 9]
    order = shardwise.Order("resampled", weights="w")
    sampler = shardwise.Sampler(shardwise.open(index), order)
    assert 0 not in list(sampler)
    for start in (10, 20):  # a dataset from an earlier pickle is still open
        weights = {"k": [f"k{i}" for i in range(10)], "w": [start + i for i in range(10)]}
        shardwise.attach(index, weights, on="k", replace=True)
        again = pickle.loads(pickle.dumps(shardwise.open(index, where="w % 10 = 7")))
        assert again.column("w") == [start + 7]
    shardwise.detach(index, "table")
    assert pickle.loads(pickle.dumps(shardwise.open(index))).columns == []
    assert shardwise.open(index).columns == [] and data.column("w") == [7, 8, 9]
    assert shardwise.side_tables(index) == []


def test_columns_make_batches_groups_and_repacked_shards(index, tmp_path):
    numpy = needs("numpy")
    keys = [f"k{i}" for i in range(8)]
    table = {
        "key": keys,
        "i": list(range(8)),
        "r": [i / 4 for i in range(8)],
        "t": ["even" if i % 2 == 0 else "odd" for i in range(8)],
    }
    shardwise.attach(index, table, on="key")
    data = shardwise.open(index)
    made = [
        columns.metadata("i", missing=-1),
        columns.metadata("r", float, missing=-2.5),
        columns.metadata("t", str, missing="none"),
        columns.key(),
    ]
    order = Order("sequential")
    batch = Loader(data, columns=made, order=order, batch_size=10).next()
    assert batch["i"].tolist() == [*range(8), -1, -1]
    assert numpy.array_equal(batch["r"], [*table["r"], -2.5, -2.5])
    assert [row.tobytes().decode() for row in batch["t"]] == [*table["t"], "none", "none"]
    with pytest.raises(NotFound, match="'i': sample 8 .'k8'.*missing"):
        Loader(data, columns=[columns.metadata("i")], order=order, batch_size=10).next()

    view = data.where("t = 'odd' AND r > 0.5")
    assert view.sample_keys() == ["k3", "k5", "k7"]
    loader = Loader(view, columns=[columns.metadata("r", float)], order=order, batch_size=3)
    assert loader.next()["r"].tolist() == [0.75, 1.25, 1.75]

    by_group = shardwise.ByGroup("coalesce(t, 'none')")
    loader = Loader(data, columns=made, order=Order(seed=3), batch_size=4, by_group=by_group)
    groups = []
    for batch in loader:
        assert {row.tobytes().decode() for row in batch["t"]} == {batch.group}
        groups += [batch.group] * len(batch)
    assert sorted(groups) == ["even"] * 4 + ["none"] * 2 + ["odd"] * 4
    with pytest.raises(InvalidArgument, match="NULL: .*sample 8"):
        Loader(data, columns=made, by_group=shardwise.ByGroup("t"))

    report = shardwise.repack(view, tmp_path / "packed")
    packed = shardwise.open(report.path)
    assert packed.sample_keys() == view.sample_keys() and packed.columns == []
    assert shardwise.side_tables(report.path) == []


def test_wrong_tables(index, tmp_path):
    def refused(error, text, table, **options):
        with pytest.raises(error, match=text):
            shardwise.attach(index, table, **{"on": "key", **options})

    refused(InvalidArgument, "not valid: table", 7)
    refused(InvalidArgument, "no column 'id'", TABLE, on="id")
    refused(InvalidArgument, "two rows have the key 'k1'", {"key": ["k1", "k1"], "a": [1, 2]})
    refused(InvalidArgument, "no key: row 2", {"key": ["k1", None], "a": [1, 2]})
    refused(InvalidArgument, "different lengths", {"key": ["k1"], "a": [1, 2]})
    refused(InvalidArgument, "unsupported type", {"key": ["k1"], "a": [object()]})
    refused(InvalidArgument, "give a list", TABLE, columns="i")
    refused(InvalidArgument, "for SQLite files", TABLE, sql_table="t")
    refused(InvalidArgument, "cannot have the name 'a b'", {"key": ["k1"], "a b": [1]})
    refused(Mismatch, "the first key of the table is 'x'", {"key": ["x"], "a": [1]})
    refused(NotFound, "none.csv", tmp_path / "none.csv")
    refused(Unsupported, "local", tmp_path.as_posix().join(["s3://b", "x.csv"]))
    refused(InvalidArgument, "by str", {"key": ["k1"], 7: [1]})
    for values in ("x", b"x", iter([1]), {1}, 5):
        refused(InvalidArgument, "one value for each row", {"key": ["k1"], "a": values})
    shardwise.attach(index, TABLE, on="key")
    refused(InvalidArgument, "side table of this name", TABLE)
    refused(InvalidArgument, "the index already has a column 'i'", TABLE, name="other")
    with pytest.raises(NotFound, match="its side tables are 'table'"):
        shardwise.detach(index, "other")


def test_open_names_the_side_table_of_a_requested_column(index):
    shardwise.attach(index, TABLE, on="key")
    with pytest.raises(NotFound, match="no column 'i' made from a field: .*side table 'table'"):
        shardwise.open(index, columns=["i"])
    with pytest.raises(NotFound, match="'i' is a metadata column"):
        shardwise.open(index)[1].decode([columns.integer("i")])
    with pytest.raises(NotFound, match="no column 'none': .*shardwise.index"):
        shardwise.open(index, columns=["none"])


def test_ctrl_c_ends_waiting_for_another_writer(index):
    script = """
import fcntl

class Keys(list):
    def __getitem__(self, places):
        begun.set()
        return super().__getitem__(places)

def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)

table = {"key": Keys(["k1"]), "a": [1]}
for call in (lambda: shardwise.attach(sys.argv[1], table, on="key"), lambda: detach()):
    begun = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with open(sys.argv[1]) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        try:
            call()
        except KeyboardInterrupt:
            print("interrupted")
    thread.join()
"""
    detach = """
def detach():
    begun.set()
    shardwise.detach(sys.argv[1], "table")
"""
    assert_ends(index, detach + script, "interrupted\ninterrupted\n")
