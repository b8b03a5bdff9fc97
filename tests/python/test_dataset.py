"""Datasets, samples and views of them."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import in_threads, plain_samples, write_shard, write_shards, write_tar

import shardwise
from shardwise import columns, errors, references


def test_samples_have_what_the_shards_have(ds: shardwise.Dataset) -> None:
    assert len(ds) == 103
    for i, (key, fields) in enumerate(plain_samples(0, 103)):
        sample = ds[i]
        assert (sample.key, sample.index, sample.number_in_index) == (key, i, i)
        assert sample.keys() == ["bin", "cls"] == list(sample)
        assert {name: bytes(view) for name, view in sample.items()} == fields
        assert sample.copy() == fields
        assert sample.integer("cls") == i
        assert len(sample) == 2


def test_indices_are_those_of_a_list(ds: shardwise.Dataset) -> None:
    assert ds[-1].index == 102
    assert ds[-103].index == 0
    assert ds[np.int64(5)].index == 5
    assert [sample.index for sample in ds] == list(range(103))
    where = f"{re.escape(repr(ds.path))}; .*103 samples, numbered from 0"
    for wrong in (103, -104, 1 << 40):
        with pytest.raises(IndexError, match=f"no such sample: sample {wrong} of {where}"):
            ds[wrong]
        with pytest.raises(errors.OutOfRange, match=f"sample {wrong} of {where}"):
            ds.gather(np.array([0, wrong]), "bin")
    with pytest.raises(errors.OutOfRange, match="sample -4 of a view .*train.idx'; .* 3 "):
        ds[50:53][-4]
    with pytest.raises(IndexError):
        ds[1 << 70]
    for wrong in (1 << 63, (1 << 64) - 1):
        numbers = np.array([3, wrong], np.uint64)
        uses = (ds.__getitem__, ds.select, ds.samples, ds.sample_keys, lambda n: ds.gather(n, "bin"))
        for use in uses:
            with pytest.raises(IndexError):
                use(numbers)
    with pytest.raises(TypeError, match="get\\(\\)"):
        ds["000001"]  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        ds[1.5]  # type: ignore[call-overload]


def test_samples_come_in_the_order_of_the_numbers(index: Path) -> None:
    ds = shardwise.open(index, max_open_shards=2)
    rng = random.Random(7)
    numbers = [rng.randrange(-103, 103) for _ in range(500)]
    kept = list(ds.samples(numbers))
    assert [(s.index, s.key, s.copy()) for s in kept] == [
        (s.index, s.key, s.copy()) for s in (ds[i] for i in numbers)
    ]
    assert all(sample == ds[i] and sample.dataset is ds for sample, i in zip(kept, numbers))
    assert [s.index for s in ds.samples(np.array([3, -1, 3]))] == [3, 102, 3]
    assert [s.number_in_index for s in ds[50:60].samples([9, 0])] == [59, 50]
    assert list(ds.samples([])) == []
    it = ds.samples([1])
    assert iter(it) is it
    assert next(it).index == 1
    assert next(it, None) is next(it, None) is None
    for numbers in ([0, 103], [0, -104]):
        with pytest.raises(errors.OutOfRange, match=f"sample {numbers[1]} of .*103 samples"):
            ds.samples(numbers)
    with pytest.raises(TypeError):
        ds.samples("000001")


def test_samples_outlive_their_range_and_the_dataset(index: Path) -> None:
    views = [s["bin"] for s in shardwise.open(index, max_open_shards=1).samples(range(103))]
    gc.collect()
    assert [bytes(view) for view in views] == [f["bin"] for _, f in plain_samples(0, 103)]


def test_samples_go_on_behind_one_that_cannot_be_read(index: Path, shards: Path) -> None:
    (shards / "train-000001.tar").unlink()
    it = shardwise.open(index).samples([39, 40, 53])
    assert next(it).index == 39
    with pytest.raises(errors.NotFound, match="train-000001.tar"):
        next(it)
    assert next(it).index == 53
    assert next(it, None) is None


def test_threads_go_through_ranges_of_their_own(ds: shardwise.Dataset) -> None:
    def read(seed: int) -> int:
        numbers = list(range(103)) * 20
        random.Random(seed).shuffle(numbers)
        return sum(sample.integer("cls") for sample in ds.samples(numbers))

    assert in_threads(read, range(4)) == [20 * sum(range(103))] * 4


def test_a_sample_has_what_a_mapping_has(ds: shardwise.Dataset) -> None:
    sample = ds[7]
    assert not isinstance(sample, Mapping)  # torch would collate a Mapping by its keys
    assert "bin" in sample
    assert "jpg" not in sample
    assert 7 not in sample
    assert sample.get("jpg") is None
    assert sample.get("jpg", 3) == 3
    assert bytes(sample.get("cls")) == b"7"
    assert dict(sample) == sample.views() == dict(sample.items())
    assert [bytes(view) for view in sample.values()] == [b"\x07" * 8, b"7"]
    with pytest.raises(errors.NotFound, match="no field 'jpg': sample 7 .*bin, cls"):
        sample["jpg"]
    with pytest.raises(LookupError):
        sample.bytes("jpg")
    with pytest.raises(TypeError):
        sample[3]  # type: ignore[index]


def test_views_are_read_only_and_keep_the_shard(index: Path) -> None:
    ds = shardwise.open(index, max_open_shards=1)
    view = ds[3]["bin"]
    assert view.readonly
    assert view.format == "B"
    with pytest.raises(TypeError):
        view[0] = 1
    array = ds[99].numpy("bin")
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array.setflags(write=True)
    part = view[1:3]
    for i in range(len(ds)):  # this evicts the shard
        ds[i]
    del ds
    gc.collect()
    assert bytes(part) == b"\x03" * 2
    assert array.tobytes() == b"\x63" * 50
    with pytest.raises(BufferError, match="a field"):
        memoryview(shardwise.open(index)[0])  # type: ignore[arg-type]


def test_equal_samples(ds: shardwise.Dataset, index: Path) -> None:
    assert ds[3] == shardwise.open(index)[3]
    assert hash(ds[3]) == hash(ds[3])
    assert ds[3] != ds[4]
    assert ds[10:][0] == ds[10]
    assert ds[3] != 3


def test_json_is_what_the_library_calls_json(tmp_path: Path) -> None:
    good = [b'\xef\xbb\xbf{"a": 1}', b'{"a": 1, "a": 2}', b"1e-999", b"[" * 500 + b"]" * 500]
    bad = {
        b'{"a": "\xc3\xb6", "b": NaN}': ("'NaN' where a value belongs", 16),
        b"[-Infinity]": ("'Infinity' where a digit belongs", 2),
        b"[1e999]": ("'1e999' is beyond the range", 1),
        b'["\\ud800"]': ("is an unpaired surrogate", 2),
        b'{"w":50}\0 garbage': ("'\\x00' after the value", 8),
        b"\xff\xfe1\0": ("UTF-16", 0),
        b"": ("where a value belongs", 0),
        b"[" * 501 + b"]" * 501: ("nested deeper than 500", 500),
    }
    write_shard(
        tmp_path / "a.tar", [(f"k{i}", {"json": text}) for i, text in enumerate([*good, *bad])]
    )
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar")
    data = shardwise.open(tmp_path / "a.idx")
    loader = shardwise.Loader(
        data, columns=[shardwise.columns.json("json")], batch_size=1, max_bad=len(bad)
    )
    for i, text in enumerate(good):
        assert data[i].json("json") == json.loads(text)
    for i, (what, place) in enumerate(bad.values(), len(good)):
        with pytest.raises(json.JSONDecodeError) as caught:
            data[i].json("json")
        assert what in caught.value.msg and caught.value.pos == place
    texts = [text for batch in loader for text in batch.text("json")]
    assert sorted(texts) == sorted(text.decode() for text in good), "the loader agrees"


def test_text_json_and_tensors(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("k", {"txt": "héllo".encode(), "json": b'{"a": [1, 2]}'})])
    sample = shardwise.open(tmp_path / "a.tar", index_directory=tmp_path)[0]
    assert sample.text("txt") == "héllo"
    assert sample.json("json") == {"a": [1, 2]}
    with pytest.raises(errors.BadField, match="not an integer"):
        sample.integer("txt")


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    key = os.fsdecode(b"caf\xe9")
    members = [("caf\xe9.b\xe9", b"1"), ("caf\xe9.txt", b"1")]
    write_tar(tmp_path / "a.tar", members, format=tarfile.USTAR_FORMAT, encoding="latin-1")
    ds = shardwise.open(tmp_path / "a.tar", index_directory=tmp_path)
    field = os.fsdecode(b"b\xe9")
    assert ds[0].key == key
    assert ds[0].keys() == [field, "txt"]
    assert bytes(ds[0][field]) == b"1"
    assert ds.find(key) == ds[0]
    assert key in ds
    assert ds.find("cafe") is None
    assert pickle.loads(pickle.dumps(ds.select([key]))).fingerprint


def test_keys(ds: shardwise.Dataset) -> None:
    assert "000042" in ds
    assert "x" not in ds
    assert 42 not in ds
    assert ds.find_number("000042") == 42
    assert ds.find("000042") == ds[42]
    assert ds.find("x") is None
    assert ds.get("000042").index == 42
    with pytest.raises(errors.NotFound, match="the key 'x'"):
        ds.get("x")
    view = ds[40:50]
    assert view.find_number("000042") == 2
    assert "000039" not in view


def test_views(ds: shardwise.Dataset) -> None:
    keys = [sample.key for sample in ds]
    for part in (slice(None), slice(5, 20), slice(3, None, 7), slice(-10, None), slice(50, 20)):
        view = ds[part]
        assert [sample.key for sample in view] == keys[part]
        assert view.is_view
        assert [sample.index for sample in view] == list(range(len(view)))
    for numbers in ([1, 5, 5 + 90], np.array([2, 4]), range(0, 50, 3), np.array([7], np.uint64), []):
        assert [sample.key for sample in ds[numbers]] == [keys[i] for i in numbers]  # type: ignore[call-overload]
    inner = ds[10:50][5:][::2]
    assert [sample.key for sample in inner] == keys[10:50][5:][::2]
    assert inner.number_in_index(0) == 15
    assert ds.select([9, -1, 3])[1].index == 1
    assert [sample.key for sample in ds.select([9, -1, 3])] == [keys[3], keys[9], keys[102]]
    assert [sample.key for sample in ds.select(["000009", "000003"])] == [keys[3], keys[9]]
    for given in (("000009", "000003"), {"000009", "000003"}, iter(["000009", "000003"])):
        assert [sample.key for sample in ds.select(given)] == [keys[3], keys[9]]
    for dtype in (str, object):
        assert len(ds.select(np.array(["000009", "000003"], dtype))) == 2
    assert [sample.index for sample in ds.select((9, 3))] == [0, 1]
    assert [s.integer("cls") for s in ds.where("cls >= 100")] == [100, 101, 102]
    assert [s.integer("cls") for s in ds.where("cls % 10 = 0", 5, 31)] == [10, 20, 30]
    assert len(ds[50:].where("cls < 60")) == 10
    with pytest.raises(ValueError, match="order of the samples"):
        ds[::-1]
    with pytest.raises(ValueError, match="not ascending"):
        ds[[3, 1]]
    with pytest.raises(ValueError, match="named twice"):
        ds[[3, 3]]
    with pytest.raises(IndexError):
        ds[[3, 103]]
    with pytest.raises(errors.NotFound, match="'nix'"):
        ds.select(["000009", "nix"])
    kept = ds.select(["000009", "nix", "000003"], missing="skip")
    assert [sample.key for sample in kept] == [keys[3], keys[9]]
    assert len(ds.select(["nix"], missing="skip")) == 0
    with pytest.raises(ValueError, match="missing='maybe'; .*error, skip"):
        ds.select(["nix"], missing="maybe")
    with pytest.raises(ValueError, match="no such column: nix"):
        ds.where("nix = 3")
    for parameter in ("?1", "?", ":x", "@x"):
        text = f"parameter {re.escape(repr(parameter))} .*no value"
        with pytest.raises(errors.InvalidArgument, match=text):
            ds.where(f"cls = {parameter}")


def test_columns_sizes_and_gathering(ds: shardwise.Dataset) -> None:
    assert ds.columns == ["cls"]
    assert ds.column("cls") == list(range(103))
    assert ds.column("cls", [5, -1]) == [5, 102]
    assert ds.numbers("cls").tolist() == list(range(103))
    assert ds.sizes("bin").tolist() == [i % 50 + 1 for i in range(103)]
    assert ds.sizes("nix", [1, 2]).tolist() == [0, 0]
    offsets, data = ds.gather([60, 3, 60], "bin")
    assert offsets.tolist() == [0, 11, 15, 26]
    assert data.tobytes() == b"\x3c" * 11 + b"\x03" * 4 + b"\x3c" * 11
    with pytest.raises(errors.NotFound, match="no column 'nix'"):
        ds.column("nix")
    with pytest.raises(errors.NotFound, match="no field 'nix'"):
        ds.gather([0], "nix")


def test_keys_are_told_without_a_shard(ds: shardwise.Dataset, shards: Path) -> None:
    numbers = [102, 0, 45, 45]
    assert ds.sample_keys(numbers) == [ds[i].key for i in numbers]
    assert ds[30:60].sample_keys() == [sample.key for sample in ds[30:60]]
    assert ds.sample_keys(np.array([], np.int64)) == []
    with pytest.raises(errors.OutOfRange, match="sample 103 of"):
        ds.sample_keys([103])
    for path in shards.glob("*.tar"):
        path.unlink()
    assert shardwise.open(ds.path).sample_keys() == ds.sample_keys()


def test_a_shard_without_an_end_marker_is_warned_of(shards: Path, tmp_path: Path) -> None:
    whole = sorted(shards.glob("*.tar"))[0]
    with tarfile.open(whole) as tar:
        end = max(m.offset_data + (m.size + 511) // 512 * 512 for m in tar.getmembers())
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:end])
    shardwise.index(tmp_path / "whole.idx", whole)  # pytest makes a warning an error
    with pytest.warns(UserWarning, match="may be truncated between two members: '.*cut.tar'") as seen:
        report = shardwise.index(tmp_path / "cut.idx", cut)
    assert seen[0].filename == __file__
    assert report.without_end_marker == [str(cut)]
    with pytest.warns(UserWarning, match="cut.tar") as seen:
        shardwise.open(cut, index_directory=tmp_path / "kept")
    assert seen[0].filename == __file__


def test_a_column_without_a_value_is_warned_of(
    shards: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    names = ["typo", "cls"]
    with pytest.warns(UserWarning, match="no sample has .*columns 'typo'") as seen:
        report = shardwise.index(tmp_path / "x.idx", shards, columns=names)
    assert seen[0].filename == __file__
    assert report.without_value == {"typo": report.num_samples, "cls": 0}
    with pytest.warns(UserWarning, match="'typo'") as seen:
        shardwise.open(shards, columns=names, index_directory=tmp_path / "kept")
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="'title'"):
        with shardwise.ShardWriter(
            tmp_path / "%d.tar", index=tmp_path / "w.idx", columns=["title"]
        ) as sink:
            sink.write({"__key__": "a", "txt": "x"})
    recwarn.clear()
    shardwise.open(shards, columns=names, index_directory=tmp_path / "kept")  # builds the index
    shardwise.index(tmp_path / "y.idx", shards, columns=["cls"])
    parts = [str(tmp_path / f"part-{i}.idx") for i in (1, 2)]
    for i, part in enumerate(parts, 1):  # another part may have values
        shardwise.index(part, shards, columns=names, part=(i, 2))
    assert not recwarn.list
    with pytest.warns(UserWarning, match="'typo'"):
        shardwise.merge(tmp_path / "merged.idx", parts)


def test_the_rest_of_a_damaged_shard_is_counted(shards: Path, tmp_path: Path) -> None:
    whole = sorted(shards.glob("*.tar"))[0].read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2 + 100])
    report = shardwise.index(tmp_path / "x.idx", tmp_path / "cut.tar", on_bad="skip")
    skipped = shardwise.query(tmp_path / "x.idx", "SELECT offset, reason FROM skipped").rows
    assert (report.num_skipped, report.shards_cut_short, len(skipped)) == (1, 1, 1)
    assert report.bytes_cut_off == len(whole) // 2 + 100 - skipped[0][0] > 0
    assert skipped[0][1].endswith(f"left out with it, {report.bytes_cut_off} bytes")


def test_what_is_in_an_index(ds: shardwise.Dataset, shards: Path) -> None:
    assert [shard.num_samples for shard in ds.shards] == [40, 13, 30, 20]
    assert ds.shards[1].path == str(shards / "train-000001.tar")
    assert ds.shard_starts == [0, 40, 53, 83, 103]
    assert ds[30:60].shard_starts == [0, 10, 23, 30, 30]
    assert ds.info.num_samples == 103
    assert [field.name for field in ds.info.fields] == ["bin", "cls"]
    assert len(ds.fingerprint) == 32


def test_the_version_tells_what_the_fingerprint_does_not(tmp_path: Path) -> None:
    shards, index = tmp_path / "shards", tmp_path / "a.idx"
    write_shards(shards, [5, 3])
    shardwise.index(index, shards, columns=["cls"], threads=0)
    ds = shardwise.open(index)
    os.utime(shards / "train-000001.tar", (1, 1))
    shardwise.index(index, shards, columns=["cls"], threads=0)
    touched = shardwise.open(index)
    shardwise.index(index, shards, forget=True, threads=0)
    without = shardwise.open(index)
    assert len({ds.version, touched.version, without.version}) == 3
    assert ds.fingerprint == touched.fingerprint == without.fingerprint
    assert len(ds.version) == 32
    assert ds[2:4].version == ds.version
    lenient = shardwise.open(index, accept_times=True)
    os.utime(shards / "train-000001.tar", (2, 2))
    shardwise.index(index, shards, threads=0)
    assert shardwise.open(index, accept_times=True).version == lenient.version
    assert shardwise.open(index).version != without.version


def test_pickles_are_references(ds: shardwise.Dataset, index: Path) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(ds, protocol))
        assert again.fingerprint == ds.fingerprint
        views = [ds[5:50:3], ds[[1, 9, 77]], ds.where("cls > 50")[3:], ds.select(["000007"])]
        for view in views:
            again = pickle.loads(pickle.dumps(view, protocol))
            assert again.fingerprint == view.fingerprint
            assert [sample.key for sample in again] == [sample.key for sample in view]
    assert len(pickle.dumps(ds[7])) < 120 + len(str(index))
    for sample in (ds[7], ds[5:][2]):
        again = pickle.loads(pickle.dumps(sample))
        assert again == ds[7]
        assert again.copy() == ds[7].copy()
        assert again.number == sample.number, "by which it was taken"
        assert pickle.loads(pickle.dumps(again)).number == sample.number
    mixed = shardwise.mix([ds, ds[5:]])
    assert pickle.loads(pickle.dumps(mixed[105])).number == 105


def test_a_pickled_condition_is_not_evaluated_again(ds: shardwise.Dataset) -> None:
    for view in (ds.where("cls > 50"), ds.where("cls < 0"), ds[3:].where("cls % 3 = 0")[::2]):
        steps = view.__reduce_ex__(5)[1][2]
        assert [step[0] for step in steps] == ["gaps"]
        again = pickle.loads(pickle.dumps(view))
        assert again.fingerprint == view.fingerprint
        twice = pickle.loads(pickle.dumps(again.where("cls > 60")))
        assert [sample.key for sample in twice] == [s.key for s in view.where("cls > 60")]


def test_numbers_of_a_view_go_out_of_band(ds: shardwise.Dataset) -> None:
    buffers: list[pickle.PickleBuffer] = []
    view = ds[list(range(0, 103, 2))]
    data = pickle.dumps(view, 5, buffer_callback=buffers.append)
    assert [buffer.raw().nbytes for buffer in buffers] == [52 * 8]
    assert pickle.loads(data, buffers=buffers).fingerprint == view.fingerprint


def test_a_pickle_of_another_index_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path / "s", [10])
    shardwise.index(tmp_path / "x.idx", tmp_path / "s")
    data = pickle.dumps(shardwise.open(tmp_path / "x.idx"))
    write_shards(tmp_path / "s", [10, 3])
    shardwise.index(tmp_path / "x.idx", tmp_path / "s")
    with pytest.raises(errors.Mismatch, match="fingerprint"):
        pickle.loads(data)
    (tmp_path / "x.idx").unlink()
    with pytest.raises(errors.NotFound):
        pickle.loads(data)


def test_pickles_of_an_updated_index_have_the_new_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "x.idx"

    def replace(text: bytes) -> None:
        """Replaces the shard by another one with the same fingerprint."""
        write_shard(tmp_path / "new", [("0", {"txt": text})]).rename(tmp_path / "s.tar")
        if index.exists():
            shardwise.update(index)
        else:
            shardwise.index(index, tmp_path / "s.tar")

    def again() -> shardwise.Dataset:
        data: shardwise.Dataset = pickle.loads(pickle.dumps(shardwise.open(index)))
        return data

    replace(b"old!")
    old = again()
    assert old[0].bytes("txt") == b"old!"
    assert again() is old
    replace(b"new!")
    assert again()[0].bytes("txt") == b"new!"
    assert copy.deepcopy(shardwise.open(index))[0].bytes("txt") == b"new!"
    assert pickle.loads(pickle.dumps(shardwise.open(index)[0])).bytes("txt") == b"new!"

    # Simulate an update between opening the index and reading its file's state.
    references.forget()
    texts = [b"last"]

    opener = sys.modules["shardwise.opening"]
    real = opener.open_as

    def hooked(*arguments: Any, **options: Any) -> shardwise.Dataset:
        data: shardwise.Dataset = real(*arguments, **options)
        if texts:
            replace(texts.pop())
        return data

    monkeypatch.setattr(opener, "open_as", hooked)
    again()
    assert again()[0].bytes("txt") == b"last"


def test_other_sources_than_an_index(shards: Path, tmp_path: Path) -> None:
    one = shardwise.open(shards, index_directory=tmp_path / "kept")
    assert len(one) == 103
    paths = sorted(str(path) for path in shards.iterdir())
    some = shardwise.open([paths[2], paths[0]], index_directory=tmp_path / "kept", columns=["cls"])
    assert some.column("cls")[:2] == [53, 54]
    assert len(some) == 70
    assert pickle.loads(pickle.dumps(some)).fingerprint == some.fingerprint
    with pytest.raises(ValueError, match="one of several sources"):
        shardwise.open([paths[0], str(tmp_path / "x.idx")])
    with pytest.raises(ValueError, match="build=False"):
        shardwise.open(shards, index_directory=tmp_path / "other", build=False)
    shardwise.index(tmp_path / "plain.idx", shards)
    with pytest.raises(errors.NotFound, match="no column 'cls'.*plain.idx"):
        shardwise.open(tmp_path / "plain.idx", columns=["cls"])
    with pytest.raises(ValueError, match="map, read or range"):
        shardwise.open(shards, access="nix", index_directory=tmp_path / "kept")


def test_access_by_reading(index: Path) -> None:
    ds = shardwise.open(index, access="read")
    assert [int(bytes(sample["cls"])) for sample in ds] == list(range(103))
    view = ds[5]["bin"]
    del ds
    assert bytes(view) == b"\x05" * 6


def test_truncated_shards_raise_and_do_not_kill(shards: Path, index: Path) -> None:
    code = f"""
import os, shardwise
ds = shardwise.open({str(index)!r})
sample = ds[39]
os.truncate({str(shards / "train-000000.tar")!r}, 1024)
for call in (lambda: sample.bytes("bin"), sample.copy, lambda: sample.integer("cls"),
             lambda: ds.gather([39], "bin")):
    try:
        call()
    except shardwise.errors.StaleIndex as error:
        print("stale")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "stale\n" * 4), done.stderr


def test_threads_share_a_dataset(ds: shardwise.Dataset) -> None:
    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(3000):
            i = rng.randrange(len(ds))
            assert int(bytes(ds[i]["cls"])) == i

    in_threads(work, range(8))


def test_a_forked_child_goes_on(ds: shardwise.Dataset) -> None:
    assert ds[0].key == "000000"
    pid = os.fork()
    if pid == 0:
        ok = all(int(bytes(ds[i]["cls"])) == i for i in range(len(ds)))
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_chains_of_lifetimes(index: Path) -> None:
    """Compares random operations with the expected bytes. Drops objects at random."""
    chains = int(os.environ.get("SHARDWISE_CHAINS", "20000"))
    rng = random.Random(5)
    expected = dict(enumerate(fields for _, fields in plain_samples(0, 103)))
    opened = [shardwise.open(index, max_open_shards=2) for _ in range(2)]
    held: list[tuple[object, bytes]] = []
    samples: list[tuple[shardwise.Sample, int]] = []
    for _ in range(chains):
        match rng.randrange(9):
            case 0:
                opened[rng.randrange(2)] = shardwise.open(index, max_open_shards=rng.choice([1, 2, 50]))
            case 1 | 2:
                i = rng.randrange(103)
                samples.append((opened[rng.randrange(2)][i], i))
            case 3 if samples:
                sample, i = rng.choice(samples)
                held.append((sample["bin"], expected[i]["bin"]))
            case 4 if samples:
                sample, i = rng.choice(samples)
                held.append((sample.numpy("cls"), expected[i]["cls"]))
            case 5 if held:
                view, data = rng.choice(held)
                if isinstance(view, memoryview) and len(view) > 1:
                    held.append((view[1:], data[1:]))
            case 6 if held:
                held.pop(rng.randrange(len(held)))
            case 7 if samples:
                samples.pop(rng.randrange(len(samples)))
            case 8:
                start = rng.randrange(100)
                view_of = opened[rng.randrange(2)][start:]
                samples.append((view_of[0], start))
        if rng.random() < 0.002:
            gc.collect()
        if held:
            view, data = rng.choice(held)
            assert bytes(view) == data  # type: ignore[call-overload]
        del held[200:], samples[200:]


def test_repr(ds: shardwise.Dataset, index: Path) -> None:
    fields = "fields 'bin', 'cls'"
    assert repr(ds) == f"<shardwise.Dataset: 103 samples of {str(index)!r}, {fields}>"
    assert repr(ds[:5]) == f"<shardwise.Dataset: 5 samples (a view) of {str(index)!r}, {fields}>"
    assert "fields 'bin' (1 bytes), 'cls' (1 bytes)" in repr(ds[0])


def test_names_that_are_not_utf8_are_taken_as_they_are_given(tmp_path: Path) -> None:
    field = b"caf\xe9".decode("utf-8", "surrogateescape")
    members = [(f"0.{field}", b"12"), ("0.txt", b"t"), (f"1.{field}", b"3")]
    write_tar(tmp_path / "a.tar", members, format=tarfile.GNU_FORMAT, encoding="utf-8")
    ds = shardwise.open(tmp_path / "a.tar", index_directory=tmp_path / "kept")
    assert list(ds[0]) == [field, "txt"]
    offsets, data = ds.gather([0, 1], field)
    assert (offsets.tolist(), data.tobytes()) == ([0, 2, 3], b"123")
    assert ds.sizes(field).tolist() == [2, 1]
    made = [columns.bytes(field), columns.integer(field).named("number")]
    order = shardwise.Order("sequential")
    batch = next(iter(shardwise.Loader(ds, columns=made, order=order, batch_size=2)))
    assert made[0].name == field and field in batch
    assert batch.bytes(field) == [b"12", b"3"]
    assert batch["number"].tolist() == [12, 3]
