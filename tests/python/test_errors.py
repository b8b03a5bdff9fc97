"""Errors: classes, texts, pickling; Ctrl-C."""

from __future__ import annotations

import gzip
import inspect
import os
import pickle
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import FileHandler, FileServer, plain_samples, write_shard, write_shards, write_tar

import shardwise
from shardwise import errors, records, transforms

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_class_is_an_error_and_pickles(kind: type[errors.Error]) -> None:
    error = kind("some text: 'x'; do this")
    assert isinstance(error, errors.Error)
    assert str(error) == "some text: 'x'; do this"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.code == kind.code


def test_classes_are_pythons_too() -> None:
    assert issubclass(errors.OutOfRange, IndexError)
    assert issubclass(errors.NotFound, LookupError)
    assert not issubclass(errors.NotFound, KeyError)
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.Io, OSError)
    assert issubclass(errors.NoSpace, OSError)


def test_codes_are_those_of_the_library() -> None:
    header = Path(__file__).parents[2] / "include/shardwise/base/error.h"
    codes = {
        line.split(",")[0].strip()[1:]
        for line in header.read_text().splitlines()
        if line.startswith("  k") and "///<" in line
    }
    assert codes == {kind.code for kind in KINDS} - {"Error"}


def test_building_meets_damage(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.tar", plain_samples(0, 20))
    data = bytearray(shard.read_bytes())
    data[1024 + 148] ^= 1
    shard.write_bytes(data)
    with pytest.raises(errors.CorruptShard, match="a.tar.*offset 1024"):
        shardwise.index(tmp_path / "x.idx", shard)
    assert not (tmp_path / "x.idx").exists()
    report = shardwise.index(tmp_path / "x.idx", shard, on_bad={"damage": "skip"})
    assert report.num_skipped > 0
    with pytest.raises(ValueError, match="bad member: 'nix'; .* damage"):
        shardwise.index(tmp_path / "y.idx", shard, on_bad={"nix": "skip"})
    with pytest.raises(ValueError, match="unknown policy: .nix."):
        shardwise.index(tmp_path / "y.idx", shard, on_bad={"damage": "nix"})
    with pytest.raises(errors.NotFound, match="nix.tar"):
        shardwise.index(tmp_path / "y.idx", tmp_path / "nix.tar")
    with pytest.raises(ValueError):
        shardwise.index(tmp_path / "y.idx")


def test_an_index_keeps_what_it_was_built_with(tmp_path: Path) -> None:
    path = tmp_path / "x.idx"
    [shard] = write_shards(tmp_path / "s", [5])
    shardwise.index(path, shard, columns=["cls"], hashes=True)
    assert shardwise.index(path, shard).shards_reused == 1
    assert shardwise.open(path).columns == ["cls"]
    assert shardwise.verify(path, full=True) == []  # the index has hashes
    shardwise.index(path, shard, columns=["txt"])
    assert shardwise.open(path).columns == ["txt"]
    shardwise.index(path, shard, forget=True)
    assert shardwise.open(path).columns == []
    with pytest.raises(errors.InvalidArgument, match="no hashes"):
        shardwise.verify(path, full=True)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="could not be read: '.*x.idx'; "):
        assert shardwise.index(path, shard).shards_scanned == 1


def test_a_changed_shard_is_stale(tmp_path: Path) -> None:
    paths = write_shards(tmp_path / "s", [20])
    shardwise.index(tmp_path / "x.idx", *paths)
    time.sleep(0.01)
    write_shard(paths[0], plain_samples(5, 20))
    with pytest.raises(errors.StaleIndex, match=r"shardwise.update\(\)"):
        shardwise.open(tmp_path / "x.idx")[0]
    [finding] = shardwise.verify(tmp_path / "x.idx")
    assert finding.shard == 0
    assert shardwise.update(tmp_path / "x.idx").shards_scanned == 1
    assert shardwise.verify(tmp_path / "x.idx") == []


def test_what_a_callback_raises_ends_the_build(tmp_path: Path, shards: Path) -> None:
    seen = []

    def stop(progress: object) -> None:
        seen.append(progress)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        shardwise.index(tmp_path / "x.idx", shards, progress=stop)
    assert seen
    assert not (tmp_path / "x.idx").exists()


def test_interrupt_ends_what_waits(tmp_path: Path) -> None:
    """The server never answers. Ctrl-C ends the wait for it."""
    code = """
import os, signal, socket, sys, threading, time, shardwise
server = socket.create_server(("127.0.0.1", 0))
url = "http://127.0.0.1:%d/a.tar" % server.getsockname()[1]
def interrupt():
    connection, _ = server.accept()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)
threading.Thread(target=interrupt, daemon=True).start()
try:
    shardwise.open(url, cache=sys.argv[1], index_directory=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "cache"), str(tmp_path / "kept")],
        capture_output=True,
        text=True,
        env={**os.environ, "http_proxy": "", "no_proxy": "*"},
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_handler_that_does_not_raise_lets_the_work_go_on(tmp_path: Path, shards: Path) -> None:
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        shardwise.index(
            tmp_path / "x.idx",
            shards,
            progress=lambda _: os.kill(os.getpid(), signal.SIGUSR1),
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen
    assert len(shardwise.open(tmp_path / "x.idx")) == 103


def test_import_takes_nothing_large() -> None:
    code = """
import sys, shardwise
print([name for name in ("numpy", "torch", "ray", "dataclasses", "inspect") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_one_thread_goes_through_a_range_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json
    import threading

    monkeypatch.setenv("no_proxy", "*")
    write_shards(tmp_path / "s", [40])
    described = {"wids_version": 1, "shardlist": [{"url": "train-000000.tar", "nsamples": 40}]}
    (tmp_path / "s" / "a.json").write_text(json.dumps(described))
    asked, answers = threading.Event(), threading.Event()
    answers.set()

    class Waiting(FileHandler):
        def do_GET(self) -> None:
            asked.set()
            answers.wait()
            super().do_GET()

    with FileServer(tmp_path / "s", Waiting) as server:
        ds = shardwise.open(
            f"{server.url}/a.json", lazily=True, cache=tmp_path / "cache", index_directory=tmp_path
        )
        it = ds.samples([7, 8])
        asked.clear()
        answers.clear()
        first: list[shardwise.Sample] = []
        thread = threading.Thread(target=lambda: first.append(next(it)), daemon=True)
        thread.start()
        asked.wait()
        with pytest.raises(errors.InvalidArgument, match=r"two threads .*samples\("):
            next(it)
        answers.set()
        thread.join()
        assert [first[0].index, *(sample.index for sample in it)] == [7, 8]


def test_remote_shards_by_the_word_of_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("no_proxy", "*")
    write_shards(tmp_path / "s", [40, 30])
    shards = [
        {"url": f"train-{i:06}.tar", "nsamples": n} for i, n in enumerate((40, 30))
    ]
    (tmp_path / "s" / "a.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    shards[1]["nsamples"] = 31
    (tmp_path / "s" / "lie.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    with FileServer(tmp_path / "s") as server:
        kept = tmp_path / "kept"

        ds = shardwise.open(
            f"{server.url}/a.json", lazily=True, cache=tmp_path / "cache", index_directory=kept
        )
        assert len(ds) == 70
        assert server.asked == ["/a.json"]
        assert int(bytes(ds[45]["cls"])) == 45
        assert [path for path in server.asked if path.endswith(".tar")] == ["/train-000001.tar"]
        assert [int(bytes(s["cls"])) for s in ds.samples([45, 3, 46])] == [45, 3, 46]  # fetches one
        assert pickle.loads(pickle.dumps(ds[45])) == ds[45]
        assert sorted(shardwise.Sampler(ds)) == list(range(70))
        with pytest.raises(errors.Unsupported, match=r"shardwise.index\(index, descriptor\)"):
            ds.find("000003")
        lie = shardwise.open(
            f"{server.url}/lie.json", lazily=True, cache=tmp_path / "other", index_directory=kept
        )
        with pytest.raises(errors.Mismatch, match="31"):
            lie[50]
        whole = shardwise.open(f"{server.url}/a.json", cache=tmp_path / "cache", index_directory=kept)
        assert [int(bytes(s["cls"])) for s in whole] == list(range(70))
        with pytest.raises(ValueError, match="one descriptor"):
            shardwise.open(["a.json", "b.json"], lazily=True)


def test_texts_name_options_as_they_are_called_here(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0.txt", b""), ("1.txt", b"")])
    with gzip.open(tmp_path / "b.tar.gz", "wb") as packed:
        packed.write((tmp_path / "a.tar").read_bytes())
    shardwise.index(tmp_path / "b.idx", tmp_path / "b.tar.gz")
    with pytest.raises(errors.Unsupported, match=r"; .*\(cache=\), or expand"):
        shardwise.open(tmp_path / "b.idx")[0]
    with pytest.raises(shardwise.Error, match=r", or replace it \(replace=True\)$"):
        with shardwise.ShardWriter(tmp_path / "b-%d.tar") as sink:
            (tmp_path / "b-0.tar").write_bytes(b"")
            sink.write({"__key__": "0", "txt": "x"})
    hard = tarfile.TarInfo("2.txt")
    hard.type, hard.linkname = tarfile.LNKTYPE, "1.txt"
    with tarfile.open(tmp_path / "c.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("1.txt"))
        tar.addfile(hard)
    with pytest.raises(errors.Unsupported, match=r'use shardwise.index\(on_bad={"link": "resolve"}\)'):
        shardwise.index(tmp_path / "c.idx", tmp_path / "c.tar")
    sampler = shardwise.Sampler(100_000)
    audit = shardwise.Audit(sampler)
    audit.add([3, 4])
    with pytest.raises(errors.NotExact, match="at least 99,998 missing, 0 repeated$"):
        audit.prove(sampler)
    with pytest.raises(errors.NotFound, match="none'; .* root=$"):
        shardwise.open(tmp_path / "b.idx", root=tmp_path / "none")
    with pytest.raises(errors.InvalidArgument, match=r"\(build=False\): "):
        shardwise.open(tmp_path / "a.tar", build=False)
    shardwise.index(tmp_path / "a.idx", tmp_path / "a.tar")
    os.utime(tmp_path / "a.tar", (1, 1))
    with pytest.raises(errors.StaleIndex, match="with accept_times=True$"):
        shardwise.open(tmp_path / "a.idx")[0]
    (tmp_path / "a.tar").unlink()
    with pytest.raises(errors.NotFound, match="folder with root=, or store"):
        shardwise.open(tmp_path / "a.idx")[0]


def test_advice_is_for_the_call_that_can_take_it(tmp_path: Path) -> None:
    """open() builds an index at first use, but lacks some options of index(), which its advice must
    not name."""
    write_tar(tmp_path / "a.tar", [("README", b"")])
    with pytest.raises(errors.CorruptShard, match=r'shardwise.index\(on_bad={"no_field": "skip"}\)'):
        shardwise.open(tmp_path / "a.tar")
    with pytest.raises(errors.NotFound, match=r"shardwise.index\(drop_missing=True\) leaves out"):
        shardwise.open(tmp_path / "gone-{0..3}.tar")
    joined = f"{tmp_path}/a-{{0..1}}.tar::{tmp_path}/b-{{0..1}}.tar"
    with pytest.raises(errors.InvalidArgument, match="joined by ::, as webdataset"):
        shardwise.open(joined)
    with pytest.raises(TypeError, match="str .* not b'a.idx'"):
        shardwise.open(b"a.idx")  # type: ignore[arg-type]


def test_a_condition_that_cannot_be_used_is_named_in_words_of_python(
    ds: shardwise.Dataset,
) -> None:
    text = r"Dataset.columns .*; shardwise.index\(columns=\)"
    with pytest.raises(errors.InvalidArgument, match=text):
        ds.where("width > 3")
    with pytest.raises(errors.InvalidArgument, match="incomplete input; "):
        ds.where("cls =")
    with pytest.raises(errors.InvalidArgument, match="cannot be used: near"):
        ds.where("1) OR (1")


def _spellings() -> list[str]:
    """Returns how errors name options and calls in Python: the last column of the library's
    list."""
    text = (Path(__file__).parents[2] / "src/base/spelling.h").read_text()
    text = text.partition("kSpellings =")[2].partition("\n});")[0]
    string = r'"((?:[^"\\]|\\.)*)"'
    three = re.findall(rf"\{{{string},\s*{string},\s*{string}\}}", text)
    options = re.findall(rf"spelling::option\({string}", text)
    commands = re.findall(rf"spelling::command\(\s*{string},\s*{string}\)", text)
    spellings = [row[-1] for row in three + commands] + options
    assert len(spellings) == text.count("{\"") + text.count("g::option(") + text.count("g::command(")
    return sorted({name.replace('\\"', '"') for name in spellings} - {""})


# Calls whose arguments an error may name without the call.
_CALLS = [
    shardwise.open, shardwise.index, shardwise.attach, shardwise.ShardCache, shardwise.ShardWriter,
    shardwise.Sampler, shardwise.Loader, shardwise.Loader.load_state_dict,
    transforms.ImageTransform,
]  # fmt: skip


def _parameters(call: Any) -> set[str]:
    try:
        return set(inspect.signature(call).parameters)
    except (TypeError, ValueError):  # an extension's class: parse the first line of its docstring
        return set(re.findall(r"(\w+):", (call.__init__.__doc__ or "").partition(") ->")[0]))


@pytest.mark.parametrize("spelling", _spellings())
def test_what_errors_advise_is_there(spelling: str) -> None:
    if spelling.startswith("`shardwise "):  # the package includes the command
        return
    if spelling.startswith("ShardCache: "):
        assert set(spelling[12:].split(", ")) <= _parameters(shardwise.ShardCache)
        return
    called = re.fullmatch(r"(?:shardwise\.)?([\w.]+)(?:\((.*)\))?", spelling)
    if called and (called[2] is not None or "." in spelling):
        target: Any = shardwise
        for name in called[1].split("."):
            if target is shardwise.Dataset.info:
                assert name in records.Info.__annotations__
                return
            target = getattr(target, name, None) or getattr(transforms, name)
        names = re.findall(r"(\w+)=", re.sub(r"\{.*\}", "", called[2] or ""))
        assert set(names) <= _parameters(target)
        return
    name = re.match(r"\w+", spelling)
    assert name and any(name[0] in _parameters(call) for call in _CALLS), spelling
