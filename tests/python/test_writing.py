"""Writing shards, and reading them again."""

from __future__ import annotations

import errno
import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shardwise
from shardwise import ShardWriter, TarWriter, errors


def test_what_is_written_is_read(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    with ShardWriter(
        tmp_path / "a-%03d.tar", max_samples=3, index=tmp_path / "a.idx", columns=["cls"]
    ) as sink:
        for i in range(8):
            sink.write(
                {
                    "__key__": f"k{i}",
                    "__url__": "left out",
                    "txt": f"text {i}",
                    "cls": np.int64(i),
                    "json": {"a": [i]},
                    "npy": array + i,
                    "bin": memoryview(b"\0\1"),
                    "note.txt.gz": "packed",
                }
            )
    assert [Path(path).name for path in sink.paths] == ["a-000.tar", "a-001.tar", "a-002.tar"]
    ds = shardwise.open(tmp_path / "a.idx")
    assert ds.column("cls") == list(range(8))
    sample = ds[5]
    assert sample.text("txt") == "text 5"
    assert sample.json("json") == {"a": [5]}
    import gzip

    assert np.array_equal(np.load(io.BytesIO(sample.bytes("npy"))), array + 5)
    assert bytes(sample["bin"]) == b"\0\1"
    assert gzip.decompress(sample["note.txt.gz"]) == b"packed"


def test_pixels_out_of_range_are_refused(tmp_path: Path) -> None:
    sink = ShardWriter(tmp_path / "a-%d.tar")
    for pixels in (np.full((2, 2, 3), 1.5), np.full((2, 2, 3), np.nan), np.full((2, 2, 3), -1)):
        with pytest.raises(errors.BadField, match="'png' cannot be stored: pixels of "):
            sink.write({"__key__": "a", "png": pixels})
    sink.close()


def test_numbers_and_pixels_of_other_types_keep_their_values(tmp_path: Path) -> None:
    pixels = np.arange(12).reshape(2, 2, 3) * 20
    with ShardWriter(tmp_path / "a-%d.tar", index=tmp_path / "a.idx") as sink:
        sink.write(
            {
                "__key__": "a",
                "cls": 5.0,
                "id": True,
                "png": pixels,
                "eye.png": pixels / 255,
                "mask.png": pixels > 100,
            }
        )
    sample = shardwise.open(tmp_path / "a.idx")[0]
    assert (sample.integer("cls"), sample.integer("id")) == (5, 1)

    def read(field: str) -> Any:
        return np.asarray(Image.open(io.BytesIO(sample.bytes(field)))).astype(int)

    assert np.array_equal(read("png"), pixels)
    assert np.abs(read("eye.png") - pixels).max() <= 1
    assert np.array_equal(read("mask.png"), (pixels > 100) * 255)


def test_equal_samples_make_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with TarWriter(tmp_path / f"{name}.tar") as sink:
            sink.write({"__key__": "x", "txt.gz": "hello", "cls": 3})
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar"]


def test_bad_samples_are_refused(tmp_path: Path) -> None:
    sink = ShardWriter(tmp_path / "a-%d.tar")
    with pytest.raises(ValueError, match="__key__"):
        sink.write({"txt": "x"})
    with pytest.raises(ValueError, match="dot"):
        sink.write({"__key__": "a.b", "txt": "x"})
    with pytest.raises(errors.BadField, match="'cls' cannot be stored"):
        sink.write({"__key__": "a", "cls": [1]})
    for value in (5.7, float("nan"), float("inf"), np.float32(0.5)):
        with pytest.raises(errors.BadField, match="'cls' cannot be stored: wanted a whole number"):
            sink.write({"__key__": "a", "cls": value})
    with pytest.raises(errors.BadField, match="'json' cannot be stored: .*not JSON compliant"):
        sink.write({"__key__": "a", "json": {"x": [float("nan")]}})
    objects = np.array([object()])
    with pytest.raises(errors.BadField, match="'npz' cannot be stored: the array 'x' has objects"):
        sink.write({"__key__": "a", "npz": {"x": objects}})
    with pytest.raises(errors.BadField, match="'pt' cannot be stored: nothing here encodes a dict"):
        sink.write({"__key__": "a", "pt": {}})
    sink.write({"__key__": "a", "txt": "x"})
    sink.close()
    with pytest.raises(ValueError, match="a-0.tar"):
        other = ShardWriter(tmp_path / "a-%d.tar")
        other.write({"__key__": "a", "txt": "x"})
    with pytest.raises(ValueError):
        ShardWriter(tmp_path / "none.tar")
    with pytest.raises(ValueError, match="there already"):
        TarWriter(tmp_path / "a-0.tar")


def test_an_exception_makes_no_index(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        with ShardWriter(tmp_path / "a-%d.tar", 1, index=tmp_path / "a.idx") as sink:
            sink.write({"__key__": "a", "txt": "x"})
            sink.write({"__key__": "b", "txt": "x"})
            raise RuntimeError
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".tar", ".idx")) == [
        "a-0.tar"
    ]


def test_own_encoders(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "a.tar", encoders={"rev": lambda value: value[::-1].encode()}) as sink:
        sink.write({"__key__": "a", "rev": "abc"})
    assert bytes(shardwise.open(tmp_path / "a.tar", index_directory=tmp_path)[0]["rev"]) == b"cba"


def test_packing_is_that_of_the_command(tmp_path: Path) -> None:
    for name, color in (("a", b"\1"), ("b", b"\2")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "photos" / name / f"{i}.v1.jpg").write_bytes(color * i)
    (tmp_path / "photos" / "notes.txt").write_text("x")
    (tmp_path / "out").mkdir()
    seen = []
    report = shardwise.pack(
        tmp_path / "out" / "x-%06d.tar",
        images=tmp_path / "photos",
        max_samples=4,
        shuffle=True,
        index=tmp_path / "x.idx",
        progress=seen.append,
    )
    assert report.classes == ["a", "b"]
    assert report.num_samples == 10
    assert len(report.paths) == 3
    assert seen
    ds = shardwise.open(tmp_path / "x.idx")
    for sample in ds:
        folder, name = sample.key.split("/")
        assert sample.integer("cls") == ["a", "b"].index(folder)
        assert len(sample["jpg"]) == int(name[0])
    assert [sample.key for sample in ds] != sorted(sample.key for sample in ds)
    with pytest.raises(ValueError, match="one of images and files"):
        shardwise.pack(tmp_path / "out" / "y-%d.tar")
    with pytest.raises(errors.NotFound):
        shardwise.pack(tmp_path / "out" / "y-%d.tar", files=tmp_path / "nix")


def test_an_exception_ends_the_writer(tmp_path: Path) -> None:
    sample = {"__key__": "a", "txt": "x"}
    for make in (
        lambda: ShardWriter(tmp_path / "s-%d.tar", max_samples=1),
        lambda: TarWriter(tmp_path / "t.tar"),
    ):
        with pytest.raises(KeyError), make() as sink:
            sink.write(sample)
            if isinstance(sink, ShardWriter):
                sink.write(sample)  # of the next shard
            raise KeyError
        with pytest.raises(errors.InvalidArgument, match="has ended this writer"):
            sink.write(sample)
        sink.close()
        assert [path.name for path in tmp_path.iterdir()] == ["s-0.tar"]
        if isinstance(sink, ShardWriter):
            assert sink.paths == [str(tmp_path / "s-0.tar")] and sink.num_samples == 2


def test_a_sample_is_a_dict(tmp_path: Path) -> None:
    sink = ShardWriter(tmp_path / "s-%d.tar")
    with pytest.raises(errors.InvalidArgument, match="^not valid: sample=3; give a dict of"):
        sink.write(3)  # type: ignore[arg-type]


def fill(sink: ShardWriter | TarWriter, key: str) -> None:
    sink.write({"__key__": key, "bin": b"1"})


def test_of_two_writers_with_the_same_names_the_later_one_is_told(tmp_path: Path) -> None:
    first, second = (ShardWriter(tmp_path / "a-%d.tar", max_samples=2) for _ in range(2))
    for sink, key in ((first, "a"), (second, "b")):
        fill(sink, key)
    first.close()
    with pytest.raises(errors.InvalidArgument, match="the shard exists already: '.*a-0.tar'"):
        second.close()
    assert [sample.key for sample in shardwise.open(tmp_path / "a-0.tar")] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["a-0.tar"]


def test_of_two_writers_of_one_shard_the_later_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    first, second, third = (TarWriter(path, replace=again) for again in (False, False, True))
    for sink, key in ((first, "a"), (second, "b"), (third, "c")):
        fill(sink, key)
    first.close()
    with pytest.raises(errors.InvalidArgument, match="the file is there already: '.*a.tar'"):
        second.close()
    assert [sample.key for sample in shardwise.open(path, index_directory=tmp_path / "i")] == ["a"]
    third.close()
    assert [sample.key for sample in shardwise.open(path, index_directory=tmp_path / "j")] == ["c"]
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.tar", "i", "j"]


@pytest.mark.parametrize("name", ["a-%d.tar.gz", "a-%d.tgz", "a-%d.tar.zst"])
def test_names_of_compressed_shards_are_refused(tmp_path: Path, name: str) -> None:
    for make in (lambda: ShardWriter(tmp_path / name), lambda: TarWriter(tmp_path / name)):
        with pytest.raises(errors.InvalidArgument, match="shards are written uncompressed"):
            make()


def test_a_shard_without_a_limit(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a-%d.tar", max_bytes=float("inf")) as sink:
        fill(sink, "a")
    assert len(sink.paths) == 1


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    own: Any = {"own": lambda value: "text"}
    with TarWriter(tmp_path / "a.tar", encoders=own) as sink:
        fill(sink, "a")
        for sample, text in (
            ({"gz": 1}, "the field 'gz' cannot be stored: nothing here encodes a int"),
            ({"own": 1}, "the field 'own' cannot be stored: its encoder gave a str, and not bytes"),
        ):
            with pytest.raises(errors.BadField, match=text):
                sink.write({"__key__": "b", **sample})
        wrong: dict[object, object] = {"__key__": "b", 3: b"1"}
        with pytest.raises(errors.InvalidArgument, match="a field is named by a str, and not by 3"):
            sink.write(wrong)  # type: ignore[arg-type]
    assert [sample.key for sample in shardwise.open(tmp_path / "a.tar")] == ["a"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EOPNOTSUPP])
def test_a_shard_is_not_replaced_where_there_are_no_links(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    first, second = (TarWriter(tmp_path / "a.tar") for _ in range(2))
    fill(first, "a")
    fill(second, "b")
    first.close()
    with pytest.raises(errors.InvalidArgument, match="the file is there already"):
        second.close()
    third = TarWriter(tmp_path / "b.tar")
    fill(third, "c")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match=re.escape(os.strerror(code))):
        third.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]
    assert [sample.key for sample in shardwise.open(tmp_path / "a.tar")] == ["a"]
