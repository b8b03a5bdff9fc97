"""Datasets whose index is at a URL."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FileHandler, FileServer, write_shards

import shardwise
from shardwise import references
from shardwise.errors import InvalidArgument, Mismatch, NotFound, Unsupported

SAMPLES = [5, 4]


class Asked(FileHandler):
    """Serves files, and also records requests for the version of a file."""

    def do_HEAD(self) -> None:
        self.site.asked.append("HEAD " + self.path)
        super().do_HEAD()


class Site:
    """A server of a folder that has an index and its shards."""

    def __init__(self, folder: Path, server: FileServer, kept: Path) -> None:
        self.folder, self.server, self.kept = folder, server, kept
        self.url = server.url + "/train.idx"
        self.age = 1000.0
        self.build(SAMPLES)

    def build(self, lengths: list[int]) -> None:
        """Replaces the shards and the index. The server states a version in whole seconds."""
        paths = write_shards(self.folder, lengths)
        self.age -= 10
        then = (time.time() - self.age,) * 2
        for path in paths:
            os.utime(path, then)
        shardwise.index(self.folder / "train.idx", paths)
        os.utime(self.folder / "train.idx", then)

    def open(self, **options: Any) -> Any:
        return shardwise.open(
            self.url, cache=self.kept / "cache", index_directory=self.kept / "indexes", **options
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "www"
    folder.mkdir()
    with FileServer(folder, Asked) as server:
        yield Site(folder, server, tmp_path / "kept")


def test_one_url_is_a_dataset(site: Site) -> None:
    data = site.open()
    local = shardwise.open(site.folder / "train.idx")
    assert [s.bytes("bin") for s in data] == [s.bytes("bin") for s in local]
    assert data.fingerprint == local.fingerprint
    assert (data.origin, local.origin) == (site.url, "")
    assert data.shards[1].path == site.server.url + "/train-000001.tar"
    asked = len(site.server.asked)
    assert len(site.open(where="sample < 3")) == 3
    assert len(site.open(offline=True)) == sum(SAMPLES)
    assert site.server.asked[asked:] == ["HEAD /train.idx"]
    with pytest.raises(NotFound, match="no index is at this URL.*404.*upload both files"):
        shardwise.open(site.server.url + "/none.idx", index_directory=site.kept / "indexes")
    with pytest.raises(NotFound, match="this machine has no copy of the index.*offline=True"):
        shardwise.open(site.server.url + "/none.idx", offline=True)


def test_functions_that_take_an_index_take_its_url(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(site.kept))
    assert shardwise.verify(site.url) == []
    assert shardwise.query(site.url, "SELECT count(*) FROM samples").rows == [(sum(SAMPLES),)]
    for write in (
        lambda: shardwise.index(site.url, site.folder),
        lambda: shardwise.update(site.url),
        lambda: shardwise.merge(site.url, site.folder / "train.idx"),
    ):
        with pytest.raises(Unsupported, match="an index cannot be written to a URL"):
            write()
    with pytest.raises(InvalidArgument, match="an index cannot be one of several sources"):
        shardwise.open([site.url, site.folder])


def test_a_pickle_opens_the_version_that_was_pickled(site: Site) -> None:
    data = site.open()
    pickled = pickle.dumps((data, data[2:6], data[7]))
    site.build([5, 4, 3])
    assert len(site.open()) == 12  # fetches the new version
    asked = len(site.server.asked)
    references.forget()
    whole, view, sample = pickle.loads(pickled)
    assert (len(whole), len(view), sample.key) == (9, 4, data[7].key)
    assert whole.fingerprint == data.fingerprint
    assert len(site.server.asked) == asked
    # Without a copy of that version, the new one is refused.
    site.build([5, 4, 3, 2])
    site.open()
    site.build([5, 4, 3, 2, 1])
    site.open()
    references.forget()
    del whole, view, sample, data
    with pytest.raises(Mismatch, match="index changed .* fingerprint .* the pickle "):
        pickle.loads(pickled)


def _size_and_label(data: Any) -> tuple[int, int]:
    return len(data), data[8].integer("cls")


def test_a_spawned_worker_asks_no_server(site: Site) -> None:
    data = site.open()
    assert data[8].integer("cls") == 8
    site.build([5, 4, 3])
    asked = len(site.server.asked)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_size_and_label, (data,)) == (9, 8)
    assert len(site.server.asked) == asked


def test_a_server_that_is_away_is_a_warning(site: Site, tmp_path: Path) -> None:
    assert len(site.open()) == 9
    with FileServer(tmp_path) as other:
        gone = other.url
    cache = shardwise.ShardCache(
        str(tmp_path / "cache"), url_base={site.server.url: gone}, retry_for=0
    )
    options: dict[str, Any] = {"cache": cache, "index_directory": site.kept / "indexes"}
    with pytest.warns(UserWarning, match="was not reached, so the last copy of the index is used"):
        data = shardwise.open(site.url, **options)
    assert len(data) == 9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(shardwise.open(site.url, offline=True, **options)) == 9
