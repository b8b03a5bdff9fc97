"""Values at JSON paths and of metadata, and samples that are decoded one by one."""

from __future__ import annotations

import io
import json
import math
import multiprocessing
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shardwise
from conftest import needs, write_shard
from shardwise import Loader, Order, columns, errors
from shardwise.transforms import ImageTransform, RandomResizedCrop

SEED = int(os.environ.get("SHARDWISE_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
REPEATS = 400 if os.environ.get("SHARDWISE_THOROUGH") else 40


def picture(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (20 + number % 3, 30, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def array(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def fields(number: int) -> dict[str, bytes]:
    note: dict[str, Any] = {"id": number, "size": {"w": number + 10}, "caption": f"ö {number}"}
    if number % 2:
        note["score"] = number / 4
    return {
        "png": picture(number),
        "cls": str(number % 5).encode(),
        "json": json.dumps(note).encode(),
        "npy": array(np.arange(number % 4, dtype=np.float32)),
        "txt": f"no. {number}".encode(),
        "bin": bytes([number]),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decoded")
    shards = [
        write_shard(folder / f"{i}.tar", [(f"{n:03}", fields(n)) for n in range(i, i + 20)])
        for i in (0, 20)
    ]
    made = ["w=json:$.size.w", "score=json:$.score", "caption=json:$.caption"]
    shardwise.index(folder / "d.idx", shards, columns=made, threads=0)
    return folder / "d.idx"


@pytest.fixture
def data(path: Path) -> shardwise.Dataset:
    return shardwise.open(path)


def one_batch(data: shardwise.Dataset, *made: columns.Column, **options: Any) -> shardwise.Batch:
    batch = Loader(
        data, columns=list(made), order=Order("sequential"), batch_size=len(data), **options
    ).next()
    assert batch is not None
    return batch


def test_paths_and_metadata_are_columns(data: shardwise.Dataset) -> None:
    batch = one_batch(
        data,
        columns.integer("json:$.id"),
        columns.number("json:$.score", missing=math.nan),
        columns.text("json:$.caption"),
        columns.json("json:$.size"),
        columns.metadata("w"),
        columns.metadata("score", float, missing=-1).named("s"),
        columns.metadata("caption", str).named("c"),
        columns.number("cls"),
    )
    scores = [i / 4 if i % 2 else math.nan for i in range(40)]
    assert batch["id"].tolist() == list(range(40))
    assert batch["score"].dtype == np.float64
    np.testing.assert_array_equal(batch["score"], scores)
    assert batch.text("caption") == batch.text("c") == [f"ö {i}" for i in range(40)]
    assert batch.json("size") == [{"w": i + 10} for i in range(40)]
    assert batch["w"].tolist() == [i + 10 for i in range(40)]
    assert batch["s"].tolist() == [i / 4 if i % 2 else -1 for i in range(40)]
    assert batch["cls"].tolist() == [i % 5 for i in range(40)]


def test_arrays_in_json_are_rows_of_numbers(tmp_path: Path) -> None:
    values = [{"ids": list(range(i)), "box": [i, 0.5], "grid": [[i]] * i} for i in range(4)]
    shard = write_shard(
        tmp_path / "a.tar",
        [(str(i), {"json": json.dumps(value).encode()}) for i, value in enumerate(values)],
    )
    data = shardwise.open(str(shard), index_directory=tmp_path)
    batch = one_batch(
        data,
        columns.tokens("json:$.ids", "int64"),
        columns.array("json:$.box", "float32", (2,)),
        columns.array("json:$.grid", "int16"),
    )
    for i, value in enumerate(values):
        assert batch["ids"][i].tolist() == value["ids"]
        assert batch["box"][i].tolist() == value["box"]
        assert batch["grid"][i].tolist() == value["grid"]


def test_a_missing_value_is_an_error_or_leaves_the_sample_out(data: shardwise.Dataset) -> None:
    for column in (columns.number("json:$.score"), columns.metadata("score", float)):
        with pytest.raises(errors.NotFound, match=r"sample 0 \('000'\).*missing.*max_bad"):
            one_batch(data, column)
        batch = one_batch(data, column, max_bad=20)
        assert batch["score"].tolist() == [i / 4 for i in range(1, 40, 2)]
    with pytest.raises(errors.BadField, match=r"'json' as an integer at '\$.caption' \(it is"):
        one_batch(data, columns.integer("json:$.caption", missing=0))
    with pytest.raises(errors.NotFound, match="no column 'h'.*'w'"):
        one_batch(data, columns.metadata("h", missing=1))


def test_samples_without_a_value_get_that_of_missing(data: shardwise.Dataset) -> None:
    batch = one_batch(
        data,
        columns.text("json:$.none", missing="a"),
        columns.text("none", missing="").named("b"),
        columns.json("none", missing="[1]").named("c"),
        columns.integer("none", missing=-1).named("d"),
        columns.number("none;json:$.score", missing=0),
    )
    assert batch.text("none") == ["a"] * 40 and batch.text("b") == [""] * 40
    assert batch.json("c") == [[1]] * 40 and batch["d"].tolist() == [-1] * 40
    assert batch["score"].tolist() == [i / 4 if i % 2 else 0 for i in range(40)]


def test_options_of_values_are_checked() -> None:
    for make, missing in (
        (columns.integer, 1.5),
        (columns.integer, 2**63),
        (columns.number, "x"),
        (columns.text, b"x"),
        (columns.text, "\ud800"),
    ):
        with pytest.raises(errors.InvalidArgument, match="missing="):
            make("json:$.a", missing=missing)  # type: ignore[operator]
    with pytest.raises(errors.InvalidArgument, match="not JSON"):
        columns.json("json", missing="{")
    with pytest.raises(errors.InvalidArgument, match="int, float or str"):
        columns.metadata("w", bytes)
    with pytest.raises(errors.InvalidArgument, match="JSON path"):
        columns.image("json:$.a")
    with pytest.raises(errors.InvalidArgument, match="malformed"):
        columns.text("json:$.")


def document(dice: random.Random, depth: int = 3) -> Any:
    kind = dice.randrange(9 if depth else 6)
    if kind < 6:
        return dice.choice(
            [None, True, False, 0, -5, 2**63 - 1, 2.5, 1e300, "", "ö\n", "a\0b", "7"]
        )
    if kind < 8:
        return {dice.choice("abc"): document(dice, depth - 1) for _ in range(dice.randrange(4))}
    return [document(dice, depth - 1) for _ in range(dice.randrange(4))]


KINDS: dict[Any, Any] = {
    columns.json: object,
    columns.integer: int,
    columns.number: (int, float),
    columns.text: (str, list, dict),
}


def value_at(value: Any, steps: list[Any]) -> Any:
    """Returns the value at a path in a value that Python's json has parsed; None if it does not
    exist."""
    for step in steps:
        fits = isinstance(value, dict if isinstance(step, str) else list)
        try:
            value = value[step] if fits else None
        except (KeyError, IndexError):
            return None
    return value


def test_random_documents_have_the_values_that_python_finds(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    documents = [document(dice) for _ in range(REPEATS)]
    indents = [dice.choice([None, 1]) for _ in documents]
    texts = [
        json.dumps(value, indent=i, ensure_ascii=dice.choice([True, False]))
        for value, i in zip(documents, indents)
    ]
    shard = write_shard(
        tmp_path / "a.tar", [(str(i), {"json": text.encode()}) for i, text in enumerate(texts)]
    )
    data = shardwise.open(str(shard), index_directory=tmp_path)
    for _ in range(20):
        steps = [dice.choice(["a", "b", "c", 0, 1, -1]) for _ in range(dice.randrange(4))]
        path = "$" + "".join(
            f".{step}" if isinstance(step, str) else f"[{step}]".replace("[-", "[#-")
            for step in steps
        )
        for sample, value in zip(data, documents):
            found = value_at(value, steps)

            for make, kinds in KINDS.items():
                where = f"SHARDWISE_SEED={SEED}: {make.__name__} of {path} in {value!r}"
                column = make("json:" + path).named("x")
                if found is None or not isinstance(found, kinds):
                    error = errors.NotFound if found is None else errors.BadField
                    with pytest.raises(error):
                        print(where, sample.decode([column]))
                    continue
                got = sample.decode([column])["x"]
                if make is columns.text and not isinstance(found, str):
                    got = json.loads(got)
                assert got == (float(found) if make is columns.number else found), where


def test_a_sample_is_decoded_by_the_kinds_of_its_fields(data: shardwise.Dataset) -> None:
    values = data[7].decode()
    assert list(values) == ["png", "cls", "json", "npy", "txt", "bin"]
    assert np.array_equal(values["png"].transpose(1, 2, 0), shardwise.decode_image(picture(7)))
    assert (values["cls"], values["txt"], values["bin"]) == (2, "no. 7", b"\7")
    assert values["json"] == {"id": 7, "size": {"w": 17}, "caption": "ö 7", "score": 1.75}
    assert values["npy"].dtype == np.float32 and values["npy"].tolist() == [0, 1, 2]


def test_decoding_expands_fields_and_names_those_that_are_bad(tmp_path: Path) -> None:
    import gzip

    shard = write_shard(
        tmp_path / "a.tar",
        [
            ("a", {"json.gz": gzip.compress(b"[1]"), "x.gz": b"raw", "pkl": b"\x80", "a;b": b"7"}),
            ("b", {"txt": b"\xff"}),
            ("c", {"npy": b"no"}),
            ("d", {"json": b"{"}),
        ],
    )
    data = shardwise.open(str(shard), index_directory=tmp_path)
    assert data[0].decode() == {"json.gz": [1], "x.gz": b"raw", "pkl": b"\x80", "a;b": b"7"}
    for number, field in ((1, "txt"), (2, "npy"), (3, "json")):
        with pytest.raises(errors.BadField, match=f"field '{field}'.*sample {number}"):
            data[number].decode()


CROP = ImageTransform(random_resized_crop=RandomResizedCrop(8), horizontal_flip=0.5)


def drawn(sample: shardwise.Sample, random: int) -> int:
    return random % 2**31


MADE = [
    columns.image("png", CROP),
    columns.integer("cls"),
    columns.text("json:$.caption"),
    columns.metadata("w"),
    columns.key(),
    columns.function("drawn", "int64", (), drawn),
]


def same(item: dict[str, Any], other: dict[str, Any]) -> bool:
    return item.keys() == other.keys() and all(
        np.array_equal(item[name], other[name]) for name in item
    )


def test_items_are_the_rows_that_a_loader_makes(data: shardwise.Dataset) -> None:
    decoded = data.decoded(MADE, seed=3)
    loader = Loader(data, columns=MADE, order=Order("chunked", seed=3), batch_size=7)
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        decoded.set_epoch(epoch)
        for batch in loader:
            texts = batch.text("caption"), batch.text("__key__")
            for row, number in enumerate(batch.samples.tolist()):
                item = decoded[number]
                assert (item["caption"], item["__key__"]) == (texts[0][row], texts[1][row])
                assert np.array_equal(item["png"], batch["png"][row])
                for name in ("cls", "w", "drawn"):
                    assert item[name] == batch[name][row]
    assert len(decoded) == 40 and [item["cls"] for item in decoded] == [i % 5 for i in range(40)]
    assert same(decoded[-1], decoded[39])
    with pytest.raises(IndexError):
        decoded[40]


def test_a_mixture_is_decoded_as_its_loader_does(data: shardwise.Dataset) -> None:
    mixed = shardwise.mix([data[30:], data[:5]])
    decoded = mixed.decoded(MADE, seed=5)
    batches = Loader(mixed, columns=MADE, order=Order(seed=5), batch_size=4)
    seen = 0
    for batch in batches:
        for row, number in enumerate(batch.samples.tolist()):
            assert np.array_equal(decoded[number]["png"], batch["png"][row])
            assert decoded[number]["drawn"] == batch["drawn"][row]
            seen += 1
    assert seen == 15
    assert [item["w"] for item in decoded.__getitems__([0, 14])] == [40, 14]


@pytest.mark.parametrize("start", ["none", "fork", "spawn"])
def test_a_data_loader_takes_the_view_with_samplers(path: Path, start: str) -> None:
    torch = needs("torch")
    from torch.utils.data import DataLoader

    from shardwise.torch import BatchSampler, DistributedChunkedSampler

    decoded = shardwise.open(path).where("w < 40").decoded(MADE, seed=9)
    sampler = DistributedChunkedSampler(decoded, seed=1, rank=0, world_size=1)
    workers: dict[str, Any] = {} if start == "none" else {
        "num_workers": 2,
        "multiprocessing_context": start,
    }
    loader = DataLoader(decoded, batch_sampler=BatchSampler(sampler, 4), **workers)
    seen = []
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        decoded.set_epoch(epoch)
        for batch in loader:
            assert batch["png"].shape[1:] == (3, 8, 8) and batch["png"].dtype == torch.uint8
            assert batch["w"].dtype == torch.int64
            for row, key in enumerate(batch["__key__"]):
                item = decoded[int(key)]
                assert np.array_equal(item["png"], batch["png"][row].numpy())
                assert item["caption"] == batch["caption"][row]
                assert item["drawn"] == batch["drawn"][row]
                seen.append(int(key))
    assert sorted(seen) == sorted(list(range(30)) * 2)


def test_a_sampler_of_other_data_is_refused(data: shardwise.Dataset) -> None:
    needs("torch")
    from torch.utils.data import DataLoader

    from shardwise.torch import DistributedChunkedSampler

    sampler = DistributedChunkedSampler(data[:10], rank=0, world_size=1)
    with pytest.raises(errors.InvalidArgument, match="different data"):
        next(iter(DataLoader(data.decoded(MADE), sampler=sampler, batch_size=None)))


def test_the_view_pickles_as_a_reference(data: shardwise.Dataset) -> None:
    decoded = data[5:].decoded(MADE, seed=2)
    decoded.set_epoch(4)
    packed = pickle.dumps(decoded)
    assert len(packed) < 3000
    assert same(pickle.loads(packed)[3], decoded[3])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert same(pool.apply(decoded.__getitem__, (3,)), decoded[3])


def test_wrong_columns_of_a_view_are_refused_at_once(data: shardwise.Dataset) -> None:
    with pytest.raises(errors.NotFound, match="no column 'h'"):
        data.decoded([columns.metadata("h")])
    for given in (columns.key(), "png", ["png"], 3):
        with pytest.raises(errors.InvalidArgument, match="columns="):
            data.decoded(given)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="same name"):
        data[0].decode([columns.key("cls"), columns.integer("cls")])
    with pytest.raises(errors.BadField, match="sample 3"):
        data.decoded([columns.integer("txt")])[3]


def test_a_functions_error_reaches_the_caller(data: shardwise.Dataset) -> None:
    def fail(sample: shardwise.Sample, random: int) -> int:
        raise ZeroDivisionError(sample.key)

    decoded = data.decoded([columns.function("f", "int64", (), fail)])
    with pytest.raises(ZeroDivisionError, match="011"):
        decoded[11]
