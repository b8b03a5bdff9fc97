"""widsindex: create, update, info, sample."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import FileServer
from shardwise.errors import InvalidArgument
from shardwise.wids import ShardListDataset
from shardwise.wids.index_tool import (
    AtomicJsonUpdate,
    expand_braces,
    format_with_suffix,
    main,
    shorten_name,
)
from shardwise.wids.specs import is_remote, urldir, urlmerge
from wids_support import own_folders, served, shards, write_shards  # noqa: F401


@pytest.fixture
def made(tmp_path: Path, shards: list[dict[str, Any]]) -> Path:
    """A descriptor made by widsindex, beside the shards."""
    path = tmp_path / "shards" / "x.json"
    pattern = str(tmp_path / "shards" / "train-{000..002}.tar")
    assert main(["create", pattern, "-o", str(path), "-n", "mine"]) == 0
    return path


def test_create_counts_samples_bytes_and_md5(made: Path, shards: list[dict[str, Any]]) -> None:
    descriptor = json.loads(made.read_text())
    assert descriptor["wids_version"] == 1 and descriptor["name"] == "mine"
    for entry, shard in zip(descriptor["shardlist"], shards):
        data = Path(shard["url"]).read_bytes()
        assert entry == {
            **shard,
            "filesize": len(data),
            "md5sum": hashlib.md5(data).hexdigest(),
        }
    assert len(ShardListDataset(str(made))) == 21


def test_create_names_the_data_set_and_takes_a_list(
    tmp_path: Path, shards: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("shards/train-001.tar\nshards/train-000.tar\n"))
    (tmp_path / "about.txt").write_text("about it")
    arguments = ["-o", "y.json", "--no-md5", "-b", "here", "-i", "about.txt"]
    assert main(["create", "-", *arguments]) == 0
    descriptor = json.loads((tmp_path / "y.json").read_text())
    assert [shard["url"] for shard in descriptor["shardlist"]] == [
        "shards/train-000.tar",
        "shards/train-001.tar",
    ]
    assert "md5sum" not in descriptor["shardlist"][0]
    assert (descriptor["name"], descriptor["base"]) == ("shards-train", "here")
    assert descriptor["info"] == "about it"


def test_create_reads_remote_shards(served: FileServer, tmp_path: Path) -> None:
    write_shards(tmp_path / "served", [4])
    path = tmp_path / "remote.json"
    assert main(["create", served.url + "/train-000.tar", "-o", str(path)]) == 0
    (entry,) = json.loads(path.read_text())["shardlist"]
    assert entry["nsamples"] == 4 and entry["url"].startswith("http://")
    assert len(ShardListDataset(str(path))) == 4


def test_create_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    assert main(["create", str(tmp_path / "no.tar"), "-o", str(path)]) == 1
    assert "no.tar" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["create", "-", "-o", str(path)]) == 1
    assert "no shards are given; " in capsys.readouterr().err
    write_shards(tmp_path / "y", [1, 1])
    assert main(["create", str(tmp_path / "y" / "*.tar"), "-o", str(path)]) == 1
    assert "2 shards" in capsys.readouterr().err
    assert not path.exists()


def test_update_changes_a_descriptor_and_keeps_the_old_one(made: Path) -> None:
    before = made.read_text()
    assert main(["update", str(made), "--rebase", "-n", "new", "-i", "text", "-k"]) == 0
    descriptor = json.loads(made.read_text())
    assert descriptor["base"] == str(made.parent)
    assert [shard["url"] for shard in descriptor["shardlist"]] == [
        f"train-00{i}.tar" for i in range(3)
    ]
    assert (descriptor["name"], descriptor["info"], descriptor["keep"]) == ("new", "text", True)
    assert (made.parent / "x.json.bak").read_text() == before
    assert len(ShardListDataset(str(made))) == 21
    assert main(["update", str(made), "-d", "http://host/d", "-K"]) == 0
    descriptor = json.loads(made.read_text())
    assert descriptor["shardlist"][0]["url"] == "http://host/d/train-000.tar"
    assert descriptor["keep"] is False and descriptor["name"] == "new"
    assert main(["update", str(made), "-D"]) == 0
    assert json.loads(made.read_text())["shardlist"][0]["url"] == "train-000.tar"


def test_update_cannot_rebase_two_folders(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made.read_text()
    with AtomicJsonUpdate(str(made)) as data:
        data["shardlist"][0]["url"] = "/elsewhere/a.tar"
    assert main(["update", str(made), "-B"]) == 1
    assert "--rebase" in capsys.readouterr().err
    assert json.loads(made.read_text())["shardlist"][0]["url"] == "/elsewhere/a.tar"
    with pytest.raises(ZeroDivisionError), AtomicJsonUpdate(str(made)) as data:
        data["name"] = 1 / 0
    assert "elsewhere" in made.read_text() and made.read_text() != before


def test_info_sums_up(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(made)]) == 0
    shown = capsys.readouterr().out
    assert "name: mine" in shown and "total samples: 21.0" in shown
    assert main(["info", "-t", str(made)]) == 0
    header, line = capsys.readouterr().out.splitlines()
    size = sum(os.path.getsize(p) for p in made.parent.glob("*.tar"))
    assert dict(zip(header.split("\t"), line.split("\t"))) == {
        "file": str(made),
        "name": "mine",
        "nbytes": str(size),
        "nsamples": "21",
        "base": "None",
        "last": str(made.parent / "train-002.tar"),
        "datasets": "0",
    }
    assert main(["info", str(made) + ".no"]) == 1


def test_info_refuses_damaged_descriptors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    for text in ('{"shardlist": [7]}', '{"datasets": [7]}', '{"datasets": [{"shardlist": 7}]}'):
        path.write_text(text)
        assert main(["info", str(path)]) == 1
        assert capsys.readouterr().err.startswith("widsindex: ")


def test_sample_shows_fields(made: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["sample", str(made), "9"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert any(line.split() == [".cls", "9"] for line in lines)
    assert main(["sample", str(made), "9", "-r", "-w", "30"]) == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert any(line.split() == [".cls", "b'9'"] for line in lines)
    assert max(map(len, lines)) <= 30
    for name in (".bin", "bin"):
        assert main(["sample", str(made), "3", "-c", name]) == 0
        assert capsysbinary.readouterr().out == bytes([3]) * 4
    assert main(["sample", str(made), "3", "-c", "jpg"]) == 1
    assert b"'jpg'; its fields are .bin, .cls" in capsysbinary.readouterr().err
    assert main(["sample", str(made), "21"]) == 1


def test_names_and_numbers_are_shown_short() -> None:
    assert expand_braces("a-{08..11}.{x,y}")[:3] == ["a-08.x", "a-08.y", "a-09.x"]
    assert expand_braces("{1..3}") == ["1", "2", "3"]
    for pattern in ("{1..1000001}", "{1..1001}{1..1000}", "{a,b}" * 40):
        with pytest.raises(InvalidArgument, match="more than 1,000,000; give a list"):
            expand_braces(pattern)
    assert [format_with_suffix(n) for n in (0, 999, 1234567)] == ["0.0", "999.0", "1.2M"]
    assert shorten_name("/data/train/train-000{0..9}") == "data-train"


def test_urls_are_put_together() -> None:
    assert urldir("http://h/a/b.json?x=1") == "http://h/a?x=1"
    assert urldir("a/b.json") == "a" and urldir("b.json") == ""
    assert urlmerge("http://h/a/", "../b.tar") == "http://h/b.tar"
    assert urlmerge("/x", "/y.tar") == "/y.tar"
    assert urlmerge("http://h/a", "http://g/y.tar") == "http://g/y.tar"
    assert urlmerge("/x", "pipe:cat a") == "pipe:cat a"
    # A path is not a URL, whatever characters its names have.
    assert urldir("run#3/a;b?c/x.json") == "run#3/a;b?c"
    assert urlmerge("run#3/a;b?c", "../d\n.tar") == "run#3/d\n.tar"
    with pytest.raises(InvalidArgument, match="not a URL: .*Invalid IPv6 URL"):
        urlmerge("", "http://[::1/x.tar")
    assert is_remote("s3://b/k") and is_remote("pipe:x")
    assert not is_remote("file:///x") and not is_remote("a:b.tar")
