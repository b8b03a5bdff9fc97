"""Shared by the tests of shardwise.webdataset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import write_shards

LENGTHS = [401, 300, 302]
NUM_SAMPLES = sum(LENGTHS)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts indexes and caches into the test's own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("RANK", "WORLD_SIZE", "WDS_SEED", "WDS_CACHE", "WDS_CACHE_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A pattern of shards with 1,003 samples, whose keys are their numbers."""
    write_shards(tmp_path / "shards", LENGTHS)
    return str(tmp_path / "shards" / "train-{000000..000002}.tar")


@contextmanager
def rank_of(rank: int, world_size: int) -> Iterator[None]:
    """Makes this process a rank of several, by a launcher's variables."""
    kept = {name: os.environ.get(name) for name in ("RANK", "WORLD_SIZE")}
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size))
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def numbers(keys: Any) -> list[int]:
    return [int(key) for key in keys]
