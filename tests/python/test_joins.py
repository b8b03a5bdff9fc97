"""Dataset.join(): samples with the fields of two datasets."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import random
from typing import Any

import pytest
import shardwise
from conftest import FileServer, RangeHandler
from shardwise import Loader, Order, columns, references
from shardwise.errors import InvalidArgument, Mismatch, NotFound


def write(folder, name, samples, per_shard=7, **options):
    """Writes (key, fields) into shards, and returns the opened index."""
    pattern = os.fspath(folder / f"{name}-%03d.tar")
    index = folder / f"{name}.idx"
    with shardwise.ShardWriter(
        pattern, max_samples=per_shard, index=index, replace=True, **options
    ) as sink:
        for key, fields in samples:
            sink.write({"__key__": key, **fields})
    return shardwise.open(index)


def key(i):
    return f"k{i:03}"


@pytest.fixture
def images(tmp_path):
    samples = [(key(i), {"png": b"image %d" % i, "cls": str(i % 3).encode()}) for i in range(40)]
    return write(tmp_path, "images", samples, columns=["cls"])


@pytest.fixture
def captions(tmp_path):
    numbers = [i for i in range(50) if i % 4 != 0]
    random.Random(5).shuffle(numbers)
    samples = [(key(i), {"caption.txt": f"caption {i}", "n": str(i).encode()}) for i in numbers]
    return write(tmp_path, "captions", samples, columns=["n"])


def number(sample):
    return int(sample.key[1:])


def expect(data, numbers):
    assert len(data) == len(numbers)
    for i, (sample, expected) in enumerate(zip(data, numbers)):
        assert sample.key == key(expected) and sample.index == i
        assert bytes(sample["png"]) == b"image %d" % expected
        if expected % 4 != 0:
            assert sample.text("caption.txt") == f"caption {expected}"
            assert sample.keys() == ["png", "cls", "caption.txt", "n"]
        else:
            assert "caption.txt" not in sample and sample.keys() == ["png", "cls"]


MATCHED = [i for i in range(40) if i % 4 != 0]


def test_inner_and_left(images, captions):
    inner = images.join(captions)
    expect(inner, MATCHED)
    left = images.join(captions, how="left")
    expect(left, list(range(40)))
    report = left.join_report
    assert report == (40, 10, 37, 7, key(0), report.first_other_sample_without_match)
    assert int(report.first_other_sample_without_match[1:]) >= 40
    assert images.join_report is None
    assert left.fields == ["cls", "png", "caption.txt", "n"] and images.fields == ["cls", "png"]
    assert "joined" in repr(left) and "'caption.txt'" in repr(left)
    assert left.path == images.path and left.shard_starts == images.shard_starts
    assert len({images.fingerprint, inner.fingerprint, left.fingerprint}) == 3
    assert left.version != images.version


def test_views_and_columns(images, captions):
    joined = images.join(captions)
    some = joined.where("cls = 1")
    expect(some, [i for i in MATCHED if i % 3 == 1])
    assert some.numbers("n").tolist() == [i for i in MATCHED if i % 3 == 1]
    expect(joined[3:20:2], MATCHED[3:20:2])
    few = captions.where("n < 10")
    expect(images.join(few), [i for i in MATCHED if i < 10])
    left = images.join(few, how="left")
    assert left.column("n", [9, 10, 0]) == [9, None, None]
    offsets, data = joined.gather([2, 0], "caption.txt")
    assert bytes(data) == b"caption 3caption 1" and offsets.tolist() == [0, 9, 18]
    with pytest.raises(NotFound):
        left.gather([9, 10], "caption.txt")
    assert left.sizes("caption.txt", [9, 10]).tolist() == [9, 0]


def test_options(images, captions):
    with pytest.raises(InvalidArgument, match="suffix="):
        images.join(images)
    twice = images.join(images, suffix="again")
    assert twice[3].keys() == ["png", "cls", "again.png", "again.cls"]
    assert bytes(twice[3]["again.png"]) == b"image 3"
    assert twice[3].integer("again.cls") == 0
    for options in [{"how": "outer"}, {"on": "url"}, {"suffix": "."}]:
        with pytest.raises(InvalidArgument):
            images.join(captions, **options)
    with pytest.raises(TypeError):
        images.join(captions, "left")
    with pytest.raises(TypeError):
        images.join("captions.idx")


def test_a_repeated_key_of_the_other_is_an_error(tmp_path, images):
    samples = [(key(i % 5), {"x": str(i).encode()}) for i in range(10)]
    again = write(tmp_path, "again", samples, per_shard=5)
    with pytest.raises(InvalidArgument, match="again.idx"):
        images.join(again)
    assert len(again.join(images)) == 10
    assert len(images.join(again[2:7])) == 5


def read_in_worker(pickled: bytes) -> Any:
    data, sample = pickle.loads(pickled)
    return [bytes(s["caption.txt"]) for s in data], bytes(sample["caption.txt"]), sample.index


def test_pickling(images, captions):
    data = images.join(captions).where("cls = 2")
    expected = [s.text("caption.txt").encode() for s in data]
    references.forget()
    for again in (pickle.loads(pickle.dumps(data, protocol=4)), copy.deepcopy(data)):
        assert again.fingerprint == data.fingerprint and again.fields == data.fields
        assert [bytes(s["caption.txt"]) for s in again] == expected
    pickled = pickle.dumps((data, data[3]))
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply(read_in_worker, (pickled,)) == (expected, expected[3], 3)
    sample = pickle.loads(pickle.dumps(data[3]))
    assert sample == data[3] and sample != images[sample.number_in_index]
    assert sample.dataset is pickle.loads(pickle.dumps(data[3])).dataset, "joined once"
    # A join with another suffix is another dataset, although its samples are the same.
    one = pickle.loads(pickle.dumps(images.join(images, suffix="one")))
    two = pickle.loads(pickle.dumps(images.join(images, suffix="two")))
    assert "one.png" in one[0] and "two.png" in two[0]


def test_an_updated_index_is_another_join(tmp_path, images, captions):
    data = images.join(captions)
    pickled = pickle.dumps(data)
    state = Loader(data, columns=[columns.key()], order=Order(seed=1)).state_dict()
    write(tmp_path, "captions", [(key(i), {"caption.txt": "new", "n": "1"}) for i in range(40)])
    references.forget()
    with pytest.raises(Mismatch):
        pickle.loads(pickled)
    again = images.join(shardwise.open(captions.path))
    with pytest.raises(Mismatch):
        Loader(again, columns=[columns.key()], order=Order(seed=1)).load_state_dict(state)


def test_torch_workers(images, captions):
    torch = pytest.importorskip("torch", reason="needs PyTorch; skipped because it is not installed")
    data = images.join(captions)
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, collate_fn=list)
    found = [sample.text("caption.txt") for batch in loader for sample in batch]
    assert found == [f"caption {i}" for i in MATCHED]


@pytest.mark.parametrize("access", ["cache", "range"])
def test_remote_shards_of_both_sides(tmp_path, access):
    samples = [(key(i), {"png": b"image %d" % i, "cls": str(i % 3).encode()}) for i in range(40)]
    texts = [(key(i), {"caption.txt": f"caption {i}", "n": str(i).encode()}) for i in range(40)]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "a", "images", samples, per_shard=5)
    write(tmp_path / "b", "captions", texts[::-1], per_shard=8)
    with FileServer(tmp_path, RangeHandler) as server:
        sides = []
        for folder in ("a", "b"):
            urls = [f"{server.url}/{folder}/{p.name}" for p in (tmp_path / folder).glob("*.tar")]
            cache = shardwise.ShardCache(str(tmp_path / f"cache-{folder}"), 1 << 20)
            shardwise.index(tmp_path / f"{folder}.idx", sorted(urls), cache=cache)
            cache = shardwise.ShardCache(str(tmp_path / f"new-{folder}"), 1 << 20)
            options = {"cache": cache} if access == "cache" else {"access": "range"}
            sides.append(shardwise.open(tmp_path / f"{folder}.idx", **options))
        data = sides[0].join(sides[1])
        server.asked.clear()
        made = [columns.bytes("png"), columns.text("caption.txt")]
        for _ in range(2):
            loader = Loader(data, columns=made, order=Order(seed=1, chunk_size=5), batch_size=4)
            found = [text for batch in loader for text in batch.text("caption.txt")]
            loader.prove()
            assert sorted(found) == sorted(f"caption {i}" for i in range(40))
        if access == "cache":
            asked = [path for path in server.asked if path.endswith(".tar")]
            assert len(set(asked)) == 13


def test_decoding_and_repacking(tmp_path, images, captions):
    data = images.join(captions)
    decoded = data.decoded([columns.text("caption.txt"), columns.integer("cls")])
    assert decoded[0]["caption.txt"] == "caption 1"
    report = shardwise.repack(data, tmp_path / "both")
    both = shardwise.open(report.path)
    assert len(both) == len(data) and both[5].copy() == data[5].copy()


def test_a_column_of_a_missing_sample_is_missing(tmp_path):
    keys = {"images": [0, 1], "scores": [0], "captions": [0, 1]}
    sides = []
    for name, numbers in keys.items():
        write(tmp_path, name, [(key(i), {f"{name}.txt": name}) for i in numbers])
        table = {"key": [key(i) for i in numbers], "score": [float(len(name))] * len(numbers)}
        if name != "images":
            shardwise.attach(tmp_path / f"{name}.idx", table, on="key", name="s")
        sides.append(shardwise.open(tmp_path / f"{name}.idx"))
    data = sides[0].join(sides[1], how="left").join(sides[2], how="left")
    column = columns.metadata("score", float, missing=-1.0)
    assert data.column("score") == [6.0, None]
    loader = Loader(data, columns=[column], order=Order("sequential"), batch_size=2)
    assert [float(x) for batch in loader for x in batch["score"]] == [6.0, -1.0]
    assert [sample.decode([column])["score"] for sample in data] == [6.0, -1.0]
