"""Shared by the tests of shardwise.wids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FileServer, RangeHandler, write_tar


def write_shards(folder: Path, lengths: list[int]) -> list[dict[str, Any]]:
    """Writes shards with these numbers of samples, which are numbered across all shards. Returns
    them as a list for wids."""
    shards, first = [], 0
    for number, length in enumerate(lengths):
        members = []
        for i in range(first, first + length):
            members.append((f"{i:06}.bin", bytes([i % 256]) * (i % 50 + 1)))
            members.append((f"{i:06}.cls", str(i).encode()))
        path = write_tar(folder / f"train-{number:03}.tar", members)
        shards.append({"url": str(path), "nsamples": length})
        first += length
    return shards


def write_descriptor(path: Path, shards: list[dict[str, Any]], **others: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"wids_version": 1, "shardlist": shards, **others}))
    return path


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts indexes and cached shards into the test's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "wids-cache"))
    monkeypatch.delenv("SHARDWISE_WIDS_CLAIMS", raising=False)
    monkeypatch.delenv("SHARDWISE_WIDS_EXACT", raising=False)


@pytest.fixture
def shards(tmp_path: Path) -> list[dict[str, Any]]:
    """Three shards with 7, 5 and 9 samples."""
    return write_shards(tmp_path / "shards", [7, 5, 9])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FileServer]:
    """Serves tmp_path / "served" by http."""
    (tmp_path / "served").mkdir(exist_ok=True)
    with FileServer(tmp_path / "served", RangeHandler) as server:
        yield server
