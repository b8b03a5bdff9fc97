"""What the tests of the Python package share."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

import shardwise


def write_shard(path: Path, samples: list[tuple[str, dict[str, bytes]]]) -> Path:
    """A shard with these samples: key, and bytes by field."""
    with tarfile.open(path, "w") as tar:
        for key, fields in samples:
            for field, data in fields.items():
                member = tarfile.TarInfo(f"{key}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def plain_samples(first: int, count: int) -> list[tuple[str, dict[str, bytes]]]:
    """Samples whose bytes tell their number."""
    return [
        (f"{i:06}", {"bin": bytes([i % 256]) * (i % 50 + 1), "cls": str(i).encode()})
        for i in range(first, first + count)
    ]


def write_shards(folder: Path, lengths: list[int]) -> list[Path]:
    """Shards of these lengths, whose samples are numbered through."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, first = [], 0
    for number, length in enumerate(lengths):
        path = folder / f"train-{number:06}.tar"
        paths.append(write_shard(path, plain_samples(first, length)))
        first += length
    return paths


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder with 103 samples in four shards."""
    write_shards(tmp_path / "shards", [40, 13, 30, 20])
    return tmp_path / "shards"


@pytest.fixture
def index(tmp_path: Path, shards: Path) -> Path:
    """An index over `shards`, with the column cls."""
    path = tmp_path / "train.idx"
    shardwise.index(path, shards, columns=["cls"], threads=0)
    return path


@pytest.fixture
def ds(index: Path) -> shardwise.Dataset:
    return shardwise.open(index)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of given files; a test that needs it is skipped where there is none."""
    folder = Path(os.environ.get("SHARDWISE_CORPUS", Path(__file__).parents[3] / "shared"))
    if not (folder / "corpus").is_dir():
        pytest.skip(f"no corpus at {folder}: set SHARDWISE_CORPUS")
    return folder
