"""Decoding of fields: the result for each extension, and refused fields."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import needs
from shardwise.errors import BadField, InvalidArgument, Unsupported
from shardwise.wids import ShardListDataset, decode_all_gz, decode_basic, default_decoder
from shardwise.wids.decode import decode_images_to_numpy, decode_images_to_pil, decompressed
from wids_support import own_folders, write_tar  # noqa: F401


def basic(**fields: bytes) -> dict[str, Any]:
    return decode_basic(
        {"." + name.replace("_", "."): io.BytesIO(data) for name, data in fields.items()}
    )


def test_text_numbers_and_json_are_decoded() -> None:
    decoded = basic(txt="ä".encode(), text=b"b", cls=b" 7\n", cls2=b"8", json=b'{"a": [1]}')
    assert decoded == {".txt": "ä", ".text": "b", ".cls": 7, ".cls2": 8, ".json": {"a": [1]}}


def test_the_last_part_of_a_name_counts_in_any_case() -> None:
    decoded = basic(meta_JSON=b"[1]", mp4=b"x", a_txt_b=b"y")
    assert decoded[".meta.JSON"] == [1]
    assert decoded[".mp4"].read() == b"x" and decoded[".a.txt.b"].read() == b"y"


def test_bytes_are_taken_as_well_as_streams_and_extras_are_left() -> None:
    assert decode_basic({".txt": b"a", "__key__": "k.txt"}) == {".txt": "a", "__key__": "k.txt"}
    with pytest.raises(InvalidArgument, match="'txt' has no leading dot"):
        decode_basic({"txt": b"a"})


def test_a_field_that_is_not_what_its_name_says_is_named() -> None:
    for field, data in ((".cls", b"x"), (".json", b"{"), (".txt", b"\xff")):
        with pytest.raises(BadField, match=rf"'k', field '\{field}' cannot be decoded"):
            decode_basic({field: data, "__key__": "k"})


def test_errors_of_decoders_are_of_one_kind_and_name_the_field() -> None:
    needs("PIL")
    for name, data in ((".npy", b""), (".npy", b"\x93NUMPY"), (".png", b"no image"), (".jpg", b"")):
        for decode in (decode_images_to_pil, decode_images_to_numpy, decode_basic):
            if (decode is decode_basic) != (name == ".npy"):
                continue
            with pytest.raises(BadField, match=rf"'k', field '\{name}' cannot be decoded: .") as e:
                decode({"__key__": "k", name: io.BytesIO(data)})
            assert e.value.__cause__ is not None


def test_arrays_are_decoded_without_pickles() -> None:
    numpy = needs("numpy")
    file = io.BytesIO()
    numpy.save(file, numpy.arange(6).reshape(2, 3))
    assert basic(npy=file.getvalue())[".npy"].tolist() == [[0, 1, 2], [3, 4, 5]]
    file = io.BytesIO()
    numpy.save(file, numpy.array([{}], dtype=object))
    with pytest.raises(BadField, match="npy"):
        basic(npy=file.getvalue())
    sample = {".npy": file.getvalue()}
    assert decode_basic(sample, allow_pickle=True)[".npy"][0] == {}


def test_msgpack_is_decoded() -> None:
    msgpack = needs("msgpack")
    assert basic(mp=msgpack.packb({"a": "b"}))[".mp"] == {"a": "b"}


@pytest.mark.parametrize("ending", ["pkl", "pickle", "pt", "pth"])
def test_pickles_are_refused_unless_allowed(ending: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [(f"a.{ending}", pickle.dumps([1, 2]))])
    shards = [{"url": str(path), "nsamples": 1}]
    with pytest.raises(Unsupported, match="allow_pickle=True"):
        ShardListDataset(shards)[0]
    assert ShardListDataset(shards, transformations=[])[0]["." + ending].read()
    if ending in ("pkl", "pickle"):
        assert ShardListDataset(shards, allow_pickle=True)[0]["." + ending] == [1, 2]


def test_tensors_are_decoded_if_allowed() -> None:
    torch = needs("torch")
    file = io.BytesIO()
    torch.save(torch.arange(3), file)
    decoded = decode_basic({".pt": file.getvalue()}, allow_pickle=True)
    assert decoded[".pt"].tolist() == [0, 1, 2]


def test_gz_is_decompressed_with_and_without_its_ending() -> None:
    data = gzip.compress(b"a") + gzip.compress(b"b")  # two members, as gzip(1) accepts
    taken_off = decode_all_gz({".txt.gz": io.BytesIO(data), "__key__": "k"})
    assert list(taken_off) == ["__key__", ".txt"] and taken_off[".txt"].read() == b"ab"
    kept = default_decoder({".txt.gz": io.BytesIO(data)}, format="numpy") if _numpy() else None
    assert kept is None or kept == {".txt.gz": "ab"}
    with pytest.warns(UserWarning, match="not decompressed"):
        assert decode_all_gz({".gz": b"x"}) == {".gz": b"x"}


def _numpy() -> bool:
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def test_gz_has_a_limit_and_damage_is_seen() -> None:
    data = gzip.compress(bytes(1000))
    assert len(decompressed(data, 1000)) == 1000
    with pytest.raises(BadField, match="more than 999 bytes"):
        decompressed(data, 999)
    with pytest.raises(BadField, match="more than 1,500 bytes"):
        decode_all_gz({".x.gz": data + data}, max_bytes=1500)
    with pytest.raises(BadField, match="truncated"):
        decompressed(data[:-9])
    with pytest.raises(BadField, match="damaged"):
        decompressed(b"no gzip")


def test_images_are_those_of_pillow_or_arrays(tmp_path: Path) -> None:
    image = needs("PIL.Image")
    file = io.BytesIO()
    image.new("RGB", (4, 3), (255, 0, 0)).save(file, "png")
    members = [("a.PNG", file.getvalue()), ("a.webp", b"left"), ("a.cls", b"3")]
    shards = [{"url": str(write_tar(tmp_path / "a.tar", members)), "nsamples": 1}]
    sample = ShardListDataset(shards)[0]
    assert sample[".png"].size == (4, 3) and sample[".PNG"] is sample[".png"]
    assert sample[".webp"].read() == b"left" and sample[".cls"] == 3
    array = ShardListDataset(shards, transformations="numpy")[0][".png"]
    assert array.shape == (3, 4, 3) and array[0, 0].tolist() == [255, 0, 0]


def test_the_decoder_leaves_the_sample_that_it_is_given() -> None:
    sample = {".json": io.BytesIO(b"1")}
    assert default_decoder(sample, format="PIL") == {".json": 1}
    assert isinstance(sample[".json"], io.BytesIO)
    with pytest.raises(InvalidArgument, match="format='jpeg'"):
        default_decoder(sample, format="jpeg")


def test_json_keeps_large_numbers() -> None:
    assert basic(json=json.dumps(2**70).encode())[".json"] == 2**70
