"""Single tars, and what is made of their members' names."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from shardwise.errors import CorruptShard, InvalidArgument, Mismatch, Unsupported
from shardwise.wids import (
    IndexedTarSamples,
    LRUShards,
    MMIndexedTar,
    compute_num_samples,
    group_by_key,
    splitname,
)
from shardwise.wids.lru import LRUCache
from shardwise.wids.shards import CacheLocalname, DefaultLocalname
from shardwise.wids.tars import compute_file_md5sum, keep_while_reading
from wids_support import own_folders, shards, write_tar  # noqa: F401


@pytest.mark.parametrize(
    "name, key, field",
    [
        ("a.jpg", "a", ".jpg"),
        ("a.seg.png", "a", ".seg.png"),
        ("d.ir/a.b.c", "d.ir/a", ".b.c"),
        ("d/.hidden", "d/", ".hidden"),
        ("./x/a.txt", "./x/a", ".txt"),
        ("a\nb.txt", "a\nb", ".txt"),
    ],
)
def test_a_name_is_split_at_the_first_dot_of_its_last_part(
    name: str, key: str, field: str
) -> None:
    assert splitname(name) == (key, field)


def test_names_without_an_extension_are_left_out() -> None:
    with pytest.raises(InvalidArgument, match="'d.ir/a' has no extension"):
        splitname("d.ir/a")
    with pytest.warns(UserWarning, match="'README' has no extension"):
        assert group_by_key(["a.x", "a.y", "README", "b.x", "a.z"]) == [[0, 1], [3], [4]]
    assert group_by_key([]) == []


def test_hidden_files_are_left_out_at_any_depth() -> None:
    """They would be samples with the key '' and 'train/'."""
    names = ["._0001.jpg", "0001.jpg", "train/._0001.jpg", "train/.DS_Store", "train/0001.jpg"]
    with pytest.warns(UserWarning, match="is a hidden file") as left_out:
        assert group_by_key(names) == [[1], [4]]
    assert len(left_out) == 3


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_sparse_member_is_refused(tmp_path: Path, form: str) -> None:
    """Its bytes in the tar are those of the pieces that hold data, and a map of them."""
    with open(tmp_path / "0.bin", "wb") as file:
        file.write(b"HEAD")
        file.truncate(1 << 20)
        file.seek(600_000)
        file.write(b"TAIL")
    tar = tmp_path / "s.tar"
    made = subprocess.run(["tar", f"--format={form}", "-C", tmp_path, "-cSf", tar, "0.bin"])
    if made.returncode != 0 or tar.stat().st_size > 1 << 19:
        pytest.skip("needs GNU tar, and a file system with holes")
    with pytest.raises(Unsupported, match="sparse.*0.bin"):
        IndexedTarSamples(path=tar)
    with pytest.raises(Unsupported, match="sparse"):
        MMIndexedTar(tar)


def test_samples_of_a_tar_are_dicts_of_streams(shards: list[dict[str, Any]]) -> None:
    path = shards[1]["url"]
    md5 = compute_file_md5sum(path)
    samples = IndexedTarSamples(path=path, md5sum=md5, expected_size=5)
    assert len(samples) == 5
    assert samples[2]["__key__"] == "000009"
    assert samples[-1][".cls"].read() == b"11"
    assert path in repr(samples)
    samples.close()
    with open(path, "rb") as stream:
        assert IndexedTarSamples(stream=stream)[0][".cls"].read() == b"7"
    with pytest.raises(Mismatch, match=f"has the MD5 {md5}, and not 00"):
        IndexedTarSamples(path=path, md5sum="00")
    with pytest.raises(Mismatch, match="has 5 samples, and not 6"):
        IndexedTarSamples(path=path, expected_size=6)
    with pytest.raises(InvalidArgument, match="a path or a stream"):
        IndexedTarSamples()


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_found_by_number_and_name(tmp_path: Path, format: int) -> None:
    long = "x" * 150 + "/ä"
    with tarfile.open(tmp_path / "a.tar", "w", format=format) as tar:
        for name in ("one", long, "empty"):
            member = tarfile.TarInfo(name)
            member.size = 0 if name == "empty" else len(name.encode())
            tar.addfile(member, io.BytesIO(name.encode()))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    tar_ = MMIndexedTar(str(tmp_path / "a.tar"))
    assert len(tar_) == 3 and list(tar_.names()) == ["one", long, "empty"]
    assert tar_[1] == tar_[long] == tar_.get_by_name(long) == (long, long.encode())
    assert tar_.get_file(0)[1].read() == b"one"
    assert list(tar_)[2] == ("empty", b"")
    with pytest.raises(KeyError):
        tar_["folder"]
    tar_.close()
    tar_.close()


def test_a_callback_hears_of_the_beginning_and_the_end(shards: list[dict[str, Any]]) -> None:
    heard = []
    path = shards[0]["url"]
    tar = MMIndexedTar(path, cleanup_callback=lambda name, fd, phase: heard.append((name, phase)))
    tar.close()
    assert heard == [(path, "start"), (path, "end")]


def test_a_file_stays_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("x")
    first, second = (os.open(path, os.O_RDONLY) for _ in range(2))
    for fd in (first, second):
        keep_while_reading(str(path), fd, "start")
    keep_while_reading(str(path), first, "end")
    assert path.exists()
    os.close(first)
    keep_while_reading(str(path), second, "end")
    assert not path.exists()
    os.close(second)
    with pytest.raises(InvalidArgument, match="'start' or 'end'"):
        keep_while_reading(str(path), 0, "middle")


def test_samples_are_counted_as_an_index_counts_them(
    shards: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert [compute_num_samples(shard["url"]) for shard in shards] == [7, 5, 9]
    bad = write_tar(tmp_path / "bad.tar", [("README", b"x")])
    with pytest.raises(CorruptShard, match="README"):
        compute_num_samples(bad)


def test_shards_that_were_used_last_stay_open(shards: list[dict[str, Any]]) -> None:
    urls = [shard["url"] for shard in shards]
    open_shards = LRUShards(2)
    assert len(open_shards.get_shard(urls[0])) == 7 and open_shards.last_missed
    assert open_shards.get_shard(urls[0]) is open_shards.get_shard(urls[0])
    for url in urls[1:]:
        open_shards.get_shard(url)
    assert list(open_shards.lru.keys()) == urls[1:] and len(open_shards) == 2
    assert (open_shards.accesses, open_shards.misses) == (5, 3)
    with pytest.raises(InvalidArgument, match="is remote, and has no copy here"):
        open_shards.get_shard("http://host/a.tar")
    open_shards.clear()
    assert len(open_shards) == 0


def test_what_was_used_longest_ago_is_released() -> None:
    released: list[tuple[str, int]] = []
    cache: LRUCache[str, int] = LRUCache(2, release_handler=lambda *pair: released.append(pair))
    cache["a"], cache["b"] = 1, 2
    assert cache["a"] == 1
    cache["c"] = 3
    assert released == [("b", 2)] and list(cache.items()) == [("a", 1), ("c", 3)]
    del cache["a"], cache["nothing"]
    assert released[1:] == [("a", 1)] and cache["a"] is None
    cache.clear()
    assert released[2:] == [("c", 3)] and len(cache) == 0


def test_local_names_lie_in_their_folder() -> None:
    url = "http://host/a/x.tar?y=1"
    assert CacheLocalname("/c")(url) == "/c/x.tar"
    assert DefaultLocalname("/c")(url) == "/c/http%3A%2F%2Fhost%2Fa%2Fx.tar%3Fy%3D1"
